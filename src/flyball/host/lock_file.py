"""Locks between processes that a killed holder cannot leave behind.

POSIX record locks: released by the kernel with the process, not inherited by fork. They belong to the whole
process, so the file is opened once per process and a thread lock goes in front.

``LockFile`` is held for a moment and waited for. Waiting blocks in the kernel, where the lock is passed on
without delay. But a blocked call cannot be given up, and a process stopped while it holds the lock would hang
all others for ever: so a helper thread blocks, and the caller watches whether the holder still makes progress
(docs/decisions/0004).

``LongLock`` is held for long, by one process or by it and its children, and taken at once or not at all.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import struct
import sys
import threading
import time
from collections.abc import Callable
from typing import NamedTuple

from flyball.errors import StoreBusyError, StoreError, StoreReadOnlyError
from flyball.host.background_thread import start_thread

_GLANCE_S = 1.0
_POLITE_TRIES = 120
_STAMP_LENGTH = 20
_SIGN_EVERY_S = 0.25
_KIND_FIRST = sys.platform == "linux"
_FLOCK = "@hhqqi0q" if _KIND_FIRST else "@qqihh0q"
"""The kernel's record of a lock: kind and from where, then start, length and pid; elsewhere after them."""


class LockProgress(NamedTuple):
    """How far the lock of another process has got."""

    pid: int = 0
    """The process that holds it; 0 for one of another namespace."""
    stamp: bytes = b""

    @property
    def holder(self) -> str:
        return f"process {self.pid}" if self.pid else "a process that cannot be seen from here"

    @property
    def way_out(self) -> str:
        return f"continue it with `kill -CONT {self.pid}` or end it" if self.pid else "continue or end it"


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
        self._signed_at = self._let_go_at = 0.0
        # The kernel's lock belongs to the whole process: between its threads this one decides. It knows its
        # owner, so that a thread that is interrupted gives back what it has, and nothing else.
        self._threads = threading.RLock()
        self._is_mine: Callable[[], bool] = self._threads._is_owned  # type: ignore[attr-defined]
        """Has this thread got it? A method of the lock's own: each acquire asks."""
        self._helper: _Helper | None = None

    @staticmethod
    def of(path: str, *, stuck_after_s: float = 10.0) -> LockFile:
        """The one lock file of this process for ``path``. A forked child gets its own."""
        key = (os.getpid(), path)
        found = _open.get(key)
        if found is not None and not found._is_there():
            _open.pop(key, None)
            found = None
        # Two threads may race to the first use: setdefault lets one win, the loser's file stays open, unused.
        return found if found is not None else _open.setdefault(key, LockFile(path, stuck_after_s))

    def _is_there(self) -> bool:
        """A lock on a file that was removed or replaced does not keep out a process that comes later."""
        try:
            return os.path.samestat(os.stat(self.path), os.fstat(self._fd))
        except OSError:
            return False

    def acquire(self) -> None:
        if self._is_mine():
            raise StoreBusyError(f"this thread has the lock {self.path} already")
        try:
            self._threads.acquire()
            left_blocked = self._helper is not None and self._helper.blocked
            if left_blocked or not (self._try() or self._try_politely()):
                self._wait_for_processes()
            self._sign()
        except BaseException:
            self.let_go()
            raise

    def acquire_at_once(self) -> bool:
        """``acquire``, if it is free; False without waiting where it is not."""
        try:
            if self._is_mine() or not self._threads.acquire(blocking=False):
                return False
            left_blocked = self._helper is not None and self._helper.blocked
            if not left_blocked and self._try():
                self._sign()
                return True
        except BaseException:
            self.let_go()
            raise
        self._threads.release()
        return False

    def let_go(self) -> None:
        """Give back whatever this thread has of it, wherever it was interrupted, by a Ctrl-C for one."""
        if self._is_mine():
            if self._helper is not None and not self._helper.stop_waiting():
                self._helper.has_it(within_s=0)
            fcntl.lockf(self._fd, fcntl.LOCK_UN)
            self._threads.release()

    def _sign(self) -> None:
        """Show now and then that the lock moves on, where the kernel names the same process each time.

        A process that comes back later than that left it to the others in between.
        """
        now = time.monotonic()
        if now - self._let_go_at > _SIGN_EVERY_S or now - self._signed_at < _SIGN_EVERY_S:
            return
        self._signed_at = now
        # This is for the message only: a full disk must not keep a slot from being released.
        with contextlib.suppress(OSError):
            os.pwrite(self._fd, b"%-20d" % (now * 1e6), 0)

    def _try_politely(self) -> bool:
        """A transaction is shorter than going to sleep and being woken: let the holder run, and try again."""
        for _ in range(_POLITE_TRIES):
            os.sched_yield()
            if self._try():
                return True
        return False

    def _wait_for_processes(self) -> None:
        """Let the helper block; give up when the lock's holder writes nothing new for too long."""
        if self._helper is None:
            self._helper = _Helper(self._fd)
        self._helper.start_waiting()
        last, since = LockProgress(), time.monotonic()
        while not self._helper.has_it(within_s=_GLANCE_S):
            seen, now = self._progress(), time.monotonic()
            if seen != last:
                last, since = seen, now
            elif now - since > self.stuck_after_s and self._helper.stop_waiting():
                words = f"{last.holder} has held the lock {self.path} for over {self.stuck_after_s:.0f} s"
                raise StoreBusyError(f"{words} without progress; if it is stopped, {last.way_out}")

    def _try(self) -> bool:
        try:
            fcntl.lockf(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            if error.errno in (errno.EACCES, errno.EAGAIN):
                return False
            raise StoreError(f"cannot lock {self.path}: {error.strerror}") from error
        return True

    def waits_for(self) -> LockProgress | None:
        """Try once: None if the lock is free, else how far it got, to compare later."""
        with self._threads:
            if self._try():
                fcntl.lockf(self._fd, fcntl.LOCK_UN)
                return None
            return self._progress()

    def _progress(self) -> LockProgress:
        """Who has it, and what was last written: one of them changes while the lock is passed on."""
        return LockProgress(self._holder_pid(), os.pread(self._fd, _STAMP_LENGTH, 0))

    def _holder_pid(self) -> int:
        kind, place = (fcntl.F_WRLCK, os.SEEK_SET), (0, 0, 0)
        wanted = struct.pack(_FLOCK, *((*kind, *place) if _KIND_FIRST else (*place, *kind)))
        try:
            found = struct.unpack(_FLOCK, fcntl.fcntl(self._fd, fcntl.F_GETLK, wanted))
        except OSError:
            return 0
        pid: int = found[4 if _KIND_FIRST else 2]
        return max(pid, 0)

    def release(self) -> None:
        try:
            self._let_go_at = time.monotonic()
            fcntl.lockf(self._fd, fcntl.LOCK_UN)
        except BaseException:
            self.let_go()
            raise
        self._threads.release()


class _Helper:
    """A thread that may block in the kernel where the caller must be able to give up.

    A caller that gives up leaves it blocked; if the lock comes after all, it is let go at once, or kept if by
    then a caller waits again. One caller at a time.
    """

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._state = threading.Lock()
        self._wanted = self.blocked = False
        """Blocked, it may get the lock any moment and let go of it: who takes it beside it loses it again."""
        # Two locks used as signals: held until the other side has something to say.
        self._go, self._done = threading.Lock(), threading.Lock()
        self._go.acquire()
        self._done.acquire()
        start_thread(self._run, name="flyball-lock")

    def start_waiting(self) -> None:
        with self._state:
            self._wanted = True
            if not self.blocked:
                self.blocked = True
                self._go.release()

    def has_it(self, *, within_s: float) -> bool:
        return self._done.acquire(timeout=within_s)

    def stop_waiting(self) -> bool:
        """True if the helper did not get the lock in the meantime."""
        with self._state:
            if not self.blocked:
                return False
            self._wanted = False
            return True

    def _run(self) -> None:
        while True:
            self._go.acquire()
            fcntl.lockf(self._fd, fcntl.LOCK_EX)
            with self._state:
                if not self._wanted:
                    # While this thread counts as blocked, no other takes what is about to be given away.
                    fcntl.lockf(self._fd, fcntl.LOCK_UN)
                self.blocked = False
                if self._wanted:
                    self._wanted = False
                    self._done.release()


_open: dict[tuple[int, str], LockFile] = {}


class LongLock:
    """One file that one object holds, from ``take`` to ``release`` or the end of the process.

    ``inherited``: children that are given the descriptor hold it too. The lock then belongs to the open file
    and not to the process (``flock``), and is free when the last of them has ended.
    """

    def __init__(self, path: str | os.PathLike[str], *, inherited: bool = False) -> None:
        self.path = os.fspath(path)
        self._inherited = inherited
        self.fd: int | None = None
        """Open while it is held."""

    def take(self) -> bool:
        """Take it now, or not."""
        with _guard:
            # Record locks do not keep a process from itself, and closing a second descriptor would free them.
            if self.fd is not None or (not self._inherited and (os.getpid(), self.path) in _held):
                return False
            fd = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            try:
                (fcntl.flock if self._inherited else fcntl.lockf)(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                os.close(fd)
                return False
            self.fd = fd
            _held.add((os.getpid(), self.path))
        return True

    def write(self, text: bytes) -> None:
        """For other processes to read; a full disk loses it."""
        if self.fd is not None:
            with contextlib.suppress(OSError):
                os.ftruncate(self.fd, 0)
                os.pwrite(self.fd, text, 0)

    def release(self) -> None:
        with _guard:
            if self.fd is None:
                return
            if self._inherited:
                # A child that still has the descriptor does not hold it any more.
                fcntl.flock(self.fd, fcntl.LOCK_UN)
            os.close(self.fd)
            self.fd = None
            _held.discard((os.getpid(), self.path))


_held: set[tuple[int, str]] = set()
_guard = threading.Lock()
