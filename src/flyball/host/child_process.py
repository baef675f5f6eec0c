"""Programs that are started apart: Ctrl-C at our terminal does not reach them.

Apart from ``process.py``, since ``exec`` and ``slot`` start no program this way, and ``subprocess`` would
cost each start two milliseconds and each one that waits 0.15 MB.
"""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any


def start_apart(argv: Sequence[str], **how: Any) -> subprocess.Popen[bytes]:
    """Start it in a session of its own. It has SIGINT blocked, and so have those it starts.

    A new session alone is not enough: a Ctrl-C between the fork and the new session would end the program.
    """
    with _held_back():
        return subprocess.Popen(list(argv), start_new_session=True, **how)


def run_apart(
    argv: Sequence[str],
    *,
    cwd: Path | None = None,
    env: Mapping[str, str] | None = None,
    stdin: bytes | IO[bytes] | None = None,
    timeout_s: float,
    pass_fds: Sequence[int] = (),
    stdout: IO[bytes] | None = None,
) -> subprocess.CompletedProcess[bytes]:
    """Run it to its end and keep what it printed, which goes to ``stdout`` where that is given.
    ``subprocess.TimeoutExpired`` where it takes too long."""
    pipe = subprocess.PIPE
    text = stdin if isinstance(stdin, bytes) else None
    given = pipe if text is not None else stdin or subprocess.DEVNULL
    with start_apart(
        argv, cwd=cwd, env=env, stdin=given, stdout=stdout or pipe, stderr=pipe, pass_fds=pass_fds
    ) as process:
        try:
            out, err = process.communicate(text, timeout_s)
        except BaseException:
            process.kill()
            raise
    return subprocess.CompletedProcess(list(argv), process.returncode, out or b"", err)


@contextmanager
def _held_back() -> Iterator[None]:
    """Ctrl-C waits; a program that starts meanwhile never hears of it."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
