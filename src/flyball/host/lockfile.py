"""A lock between processes that a killed holder cannot leave behind and a stopped one cannot hide behind.

POSIX record locks: released by the kernel with the process, not inherited by fork. They belong to the whole
process, so the file is opened once per process and a thread lock goes in front.

Waiting is a short poll instead of a blocking call: it is no slower, and it can notice that the holder makes
no progress and say who it is (docs/decisions/0004).
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import random
import threading
import time

from flyball.errors import StoreBusyError, StoreError, StoreReadOnlyError

_FIRST_NAP_S = 0.00005
_LONGEST_NAP_S = 0.001
_STAMP_LENGTH = 32


class LockFile:
    """Use ``of(path)``; never close it while the process may still lock."""

    def __init__(self, path: str, stuck_after_s: float) -> None:
        self.path = path
        self.stuck_after_s = stuck_after_s
        try:
            self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            words = f"cannot open {path} ({error.strerror}); set FLYBALL_HOME to a folder you can write to"
            raise StoreReadOnlyError(words) from error
        self._turn = 0
        # The kernel's lock belongs to the whole process: between its threads this one decides.
        self._threads = threading.Lock()

    @staticmethod
    def of(path: str, *, stuck_after_s: float = 10.0) -> LockFile:
        """The one lock file of this process for ``path``. A forked child gets its own."""
        key = (os.getpid(), path)
        found = _open.get(key)
        # Two threads may race to the first use: setdefault lets one win, the loser's file stays open, unused.
        return found if found is not None else _open.setdefault(key, LockFile(path, stuck_after_s))

    def acquire(self) -> None:
        self._threads.acquire()
        try:
            self._acquire_from_processes()
        except BaseException:
            self._threads.release()
            raise

    def _acquire_from_processes(self) -> None:
        nap_s = _FIRST_NAP_S
        stamp, since = b"", 0.0
        while not self._try():
            time.sleep(nap_s * (0.5 + random.random()))
            nap_s = min(nap_s * 1.5, _LONGEST_NAP_S)
            if nap_s == _LONGEST_NAP_S:
                now = time.monotonic()
                seen = os.pread(self._fd, _STAMP_LENGTH, 0)
                if seen != stamp or since == 0.0:
                    stamp, since = seen, now
                elif now - since > self.stuck_after_s:
                    raise StoreBusyError(self._stuck(stamp))
        self._turn += 1
        # Who holds it is for the message only: a full disk must not keep anybody from letting go of a slot.
        with contextlib.suppress(OSError):
            os.pwrite(self._fd, f"{os.getpid()} {self._turn}".ljust(_STAMP_LENGTH).encode(), 0)

    def _try(self) -> bool:
        try:
            fcntl.lockf(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            if error.errno in (errno.EACCES, errno.EAGAIN):
                return False
            raise StoreError(f"cannot lock {self.path}: {error.strerror}") from error
        return True

    def waits_for(self) -> str:
        """Try once: empty if the lock is free, else what its holder last wrote, to compare later."""
        with self._threads:
            if self._try():
                fcntl.lockf(self._fd, fcntl.LOCK_UN)
                return ""
            return os.pread(self._fd, _STAMP_LENGTH, 0).decode(errors="replace").strip() or "unknown"

    def release(self) -> None:
        fcntl.lockf(self._fd, fcntl.LOCK_UN)
        self._threads.release()

    def _stuck(self, stamp: bytes) -> str:
        pid = stamp.split()[0].decode() if stamp.split() else "unknown"
        return (
            f"process {pid} has held the lock {self.path} for over {self.stuck_after_s:.0f} s "
            f"without progress; if it is stopped, continue it with `kill -CONT {pid}` or end it"
        )


_open: dict[tuple[int, str], LockFile] = {}
