"""Starts the threads that flyball keeps for itself. They take no signals.

The system may give a signal to any thread that does not block it, and Python runs handlers in the main thread
only. While that one blocks in a system call, such as the wait for a command, it would hear of a signal that
another thread took only when the next signal comes.

A program that such a thread starts inherits the blocked signals, and has to unblock them itself.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable


def start_thread(run: Callable[[], object], *, name: str) -> threading.Thread:
    """Start a daemon thread. Its signals are blocked before it begins: there is no moment to catch one."""
    thread = threading.Thread(target=run, name=name, daemon=True)
    before = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
    try:
        thread.start()
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
    return thread
