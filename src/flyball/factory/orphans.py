"""git commands that outlived a killed engine, and waiting until they are gone.

kill -9 ends the engine and not the git it has just started: that one would check out, commit or delete in the
middle of what the next engine does. So every git command holds a descriptor of one locked file. The lock
belongs to the open file, which children share: it is free when the engine *and* its last git are gone.

What talks to a remote is left out: credential helpers stay behind on purpose, and a push that goes out late
is found out by looking. Patience has an end all the same.
"""

from __future__ import annotations

import fcntl
import os
import time
from pathlib import Path

from flyball.factory import git

FILE_NAME = "git.lock"
_PATIENCE_S = 10.0
_LOOK_EVERY_S = 0.02


class GitLock:
    """Held by one engine and its git commands, from here to ``release``."""

    def __init__(self, state: Path) -> None:
        self._fd = os.open(state / FILE_NAME, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)

    def take(self, *, patience_s: float = _PATIENCE_S) -> bool:
        """Wait for the orphans of an engine before us; False if one of them does not end."""
        end = time.monotonic() + patience_s
        while not self._try() and time.monotonic() < end:
            time.sleep(_LOOK_EVERY_S)
        git.inherited.add(self._fd)
        return self._try()

    def _try(self) -> bool:
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            return False
        return True

    def release(self) -> None:
        git.inherited.discard(self._fd)
        # Whoever still has the descriptor has no right to it any more.
        fcntl.flock(self._fd, fcntl.LOCK_UN)
        os.close(self._fd)
