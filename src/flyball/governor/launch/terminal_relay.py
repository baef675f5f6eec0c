"""What a command writes to a terminal, read on its way there.

    command --1, 2--> pseudo-terminal --> relay --+--> a file of its run, which the launcher reads
                                                  +--> the terminal

Only what the command writes takes this way. Its input, session, process group and controlling terminal are
those that the shell gave it, so keys, prompts and job control reach it without us. The pseudo-terminal has
the terminal's size and changes no byte: what is to be done with a newline the terminal itself does.

The relay is a process of its own, because the launcher may be killed: the command writes on, and what it
writes is shown on. It ends when no process has the pseudo-terminal open any more, which may be after the
command: what that left running writes to the terminal as it would by itself. Keys that signal the process
group do not end it; the size of the window it passes on.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import termios
from typing import NoReturn

from flyball.governor.launch.output_files import write_all

_PIECE_BYTES = 1 << 16
_NOT_FOR_THE_RELAY = (
    signal.SIGINT,
    signal.SIGQUIT,
    signal.SIGTSTP,
    signal.SIGTERM,
    signal.SIGHUP,
    signal.SIGUSR1,
    signal.SIGUSR2,
)
"""They are the command's: what it still says when it gets them has to be shown."""
_OUTPUT_MODES = 1
"""Their place in what ``tcgetattr`` returns."""


class TerminalRelay:
    """``end`` is the command's end of the pseudo-terminal, until it has it."""

    def __init__(self, terminal: int, file: int) -> None:
        self._terminal = terminal
        self._modes = termios.tcgetattr(terminal)
        source, self.end = os.openpty()
        _pass_unchanged(self.end, self._modes)
        _fit(source, terminal)
        over, self._over = os.pipe()
        self._drained, drained = os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            _run(source, terminal, file, over, drained)
        for theirs in (source, over, drained):
            os.close(theirs)

    def let_go(self) -> None:
        """The command has its end: from now on it alone keeps the pseudo-terminal open."""
        if self.end >= 0:
            os.close(self.end)
            self.end = -1

    def drain(self) -> None:
        """The command has ended: wait until all that it wrote is shown and in the file."""
        if self._over >= 0:
            os.close(self._over)
            self._over = -1
            while os.read(self._drained, 1):
                pass

    def restore_modes(self) -> None:
        """A command that was killed could not: give the terminal its modes back, if it is ours to change."""
        with contextlib.suppress(OSError, termios.error):
            if os.tcgetpgrp(self._terminal) == os.getpgrp():
                termios.tcsetattr(self._terminal, termios.TCSADRAIN, self._modes)

    def close(self) -> None:
        self.let_go()
        for ours in (self._over, self._drained):
            if ours >= 0:
                os.close(ours)
        self._over = self._drained = -1
        with contextlib.suppress(ChildProcessError):
            os.waitpid(self.pid, os.WNOHANG)


# -- the relay's process ------------------------------------------------------------------------------------


def _run(source: int, terminal: int, file: int, over: int, drained: int) -> NoReturn:
    try:
        for number in _NOT_FOR_THE_RELAY:
            signal.signal(number, signal.SIG_IGN)
        # A job that was stopped or in the background was not told of a change.
        for number in (signal.SIGWINCH, signal.SIGCONT):
            signal.signal(number, lambda *_: _fit(source, terminal, tell=True))
        _close_all_but(source, terminal, file, over, drained)
        _relay(source, terminal, file, over, drained)
    finally:
        # Nothing of the launcher may run twice.
        os._exit(0)


def _relay(source: int, terminal: int, file: int, over: int, drained: int) -> None:
    """Until no process can write any more, or nothing can be shown."""
    watched = [source, over]
    while True:
        ended = over not in watched
        ready = select.select(watched, [], [], 0 if ended and drained >= 0 else None)[0]
        if source in ready:
            try:
                piece = os.read(source, _PIECE_BYTES)
            except OSError:  # how Linux says that it is the end
                return
            if not piece:
                return
            if file >= 0:
                try:
                    write_all(file, piece)
                except OSError:  # a full disk: what cannot be read is shown all the same
                    file = -1
            try:
                write_all(terminal, piece)
            except OSError:  # the terminal is gone
                return
        elif ended and drained >= 0:
            os.close(drained)
            drained = file = -1
        if over in ready:
            watched.remove(over)


def _close_all_but(*kept: int) -> None:
    """What else the launcher has open would be held open by us: pipes of the caller, the state."""
    after = 0
    for number in sorted(kept):
        os.closerange(after, number)
        after = number + 1
    os.closerange(after, max(after, os.sysconf("SC_OPEN_MAX")))


def _pass_unchanged(end: int, modes: list[object]) -> None:
    mine = list(modes)
    mine[_OUTPUT_MODES] = 0
    termios.tcsetattr(end, termios.TCSANOW, mine)  # type: ignore[arg-type]


def _fit(source: int, terminal: int, *, tell: bool = False) -> None:
    """Give the pseudo-terminal the terminal's size. The command may have heard of the change before that, and
    have asked too early: it is told again. So are we, and find nothing changed."""
    with contextlib.suppress(OSError, termios.error):
        size = termios.tcgetwinsize(terminal)
        if size != termios.tcgetwinsize(source):
            termios.tcsetwinsize(source, size)
            if tell:
                os.kill(0, signal.SIGWINCH)
