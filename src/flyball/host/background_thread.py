"""Starts the threads that flyball keeps for itself. They take no signals.

The system may give a signal to any thread that does not block it, and Python runs handlers in the main thread
only. While that one blocks in a system call, such as the wait for a command, it would hear of a signal that
another thread took only when the next signal comes.

A program that such a thread starts inherits the blocked signals, and has to unblock them itself.

Heartbeats and renewals run in a ``PeriodicThread``: never on the user's event loop, which may be busy for
longer than a lease lasts.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable


def start_thread(run: Callable[[], object], *, name: str) -> threading.Thread:
    """Start a daemon thread. Its signals are blocked before it begins, so that it never catches one."""
    thread = threading.Thread(target=run, name=name, daemon=True)
    before = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
    try:
        thread.start()
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
    return thread


class PeriodicThread:
    """Calls ``beat`` in a background thread, again and again, while there is something to do.

    ``beat`` returns in how many seconds to call it again; after None the thread ends, unless ``start`` was
    called meanwhile. It must not raise.
    """

    def __init__(self, beat: Callable[[], float | None], *, name: str) -> None:
        self._beat, self._name = beat, name
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None
        self._wanted = self._woken = self._closed = False

    def start(self) -> None:
        """Start the thread, unless it runs."""
        with self._changed:
            if self._thread is not None:
                self._wanted = True
            elif not self._closed:
                self._thread = start_thread(self._run, name=self._name)

    def wake(self) -> None:
        """Start the thread, or call ``beat`` now."""
        with self._changed:
            self.start()
            self._woken = True
            self._changed.notify()

    def close(self, *, join_s: float = 0.0) -> None:
        """End the thread; wait that long for a call of ``beat`` under way."""
        with self._changed:
            self._closed = True
            self._changed.notify()
            thread = self._thread
        if thread is not None and join_s > 0:
            thread.join(join_s)

    def _run(self) -> None:
        while True:
            next_s = self._beat()
            with self._changed:
                if next_s is not None and not self._woken and not self._closed:
                    self._changed.wait(next_s)
                if self._closed or (next_s is None and not self._wanted):
                    self._thread = None
                    return
                self._wanted = self._woken = False


class Linger:
    """A beat every ``beat_s`` while there is work, and for ``linger_s`` after it."""

    def __init__(self, beat_s: float, linger_s: float) -> None:
        self._beat_s, self._linger_s, self._idle_s = beat_s, linger_s, 0.0

    def next_s(self, *, busy: bool) -> float | None:
        """When the next beat is due; None when it has lingered long enough."""
        self._idle_s = 0.0 if busy else self._idle_s + self._beat_s
        if self._idle_s < self._linger_s:
            return self._beat_s
        self._idle_s = 0.0
        return None
