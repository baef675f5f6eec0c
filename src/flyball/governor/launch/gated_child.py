"""A governed child never runs without its lease and never depends on the process that started it.

    1  the launcher holds the lease
    2  it forks a child that waits at a gate: a pipe only the launcher can open
    3  it binds the lease to the child (pid and start time, which survive the child's exec)
    4  it opens the gate; the child becomes the command

Killed before 4, the launcher takes the pipe with it and the child ends without having run anything. Killed
after 4, it takes nothing with it: the command runs on, and its lease lives exactly as long as it does.

Its output may go to files instead of the launcher's own (``output_files.py``): no pipe of ours is between the
command and what it writes, so a launcher that dies breaks none.

While the command runs the launcher is transparent: the terminal's signals reach the command by themselves,
TERM and HUP are passed on, a stop is followed, and the launcher ends the way the command ended.

The launcher stops when its command has stopped, and never before: Ctrl-Z is the command's to answer. So a
shell, which sees the launcher alone, continues both only when both stand. The launcher continues the command
only where it is still in the stop that was followed: it was then continued alone. A command that the shell
has continued, and that a second Ctrl-Z has stopped again, is in another stop, and is left in it.
"""

from __future__ import annotations

import contextlib
import errno
import os
import signal
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import FrameType
from typing import NoReturn

from flyball.errors import AgentError
from flyball.governor.launch.supervisor import NOT_STARTED, exec_behind_gate, restore_signals
from flyball.host.process import is_stopped

NOT_RUNNABLE, NOT_FOUND = 126, 127
_FORWARDED = (signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)
_FROM_TERMINAL = (signal.SIGINT, signal.SIGQUIT)

Handler = Callable[[int, FrameType | None], object] | signal.Handlers


class GatedChild:
    """A forked child that becomes ``argv`` once the gate is opened.

    ``redirect`` says what its own descriptors become: ``{1: fd}`` makes ``fd`` its stdout.
    """

    def __init__(
        self, argv: Sequence[str], env: Mapping[str, str], *, redirect: Mapping[int, int] | None = None
    ) -> None:
        self._program = argv[0]
        self._stopping = False
        gate, self._gate = os.pipe()
        failure, self._failure = os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            os.close(self._gate)
            os.close(failure)
            _become_behind_gate(gate, self._failure, argv, env, redirect or {})
        os.close(gate)
        os.close(self._failure)
        self._failure = failure

    def open_gate(self) -> None:
        """Let the child become its command. Raises AgentError if the system refuses to run it."""
        # A child that a signal ended at the gate reads nothing any more; ``wait`` tells how it ended.
        with contextlib.suppress(BrokenPipeError):
            os.write(self._gate, b"g")
        os.close(self._gate)
        # The pipe closes with the child's exec; anything in it is the reason why exec failed.
        with open(self._failure, "rb") as failure:
            why = failure.read().decode(errors="replace")
        if why:
            os.waitpid(self.pid, 0)
            raise cannot_run(self._program, int(why)) if why.isdigit() else AgentError(why)

    def cancel(self) -> None:
        """End the child without having run anything."""
        os.close(self._gate)
        os.close(self._failure)
        os.waitpid(self.pid, 0)

    def wait(self) -> int:
        """Wait for the command, stopping and continuing with it; its wait status."""
        with self.followed():
            while True:
                status = self._wait_once(0)
                if status is not None:
                    return status

    def poll(self) -> int | None:
        """The wait status of a command that has ended, without waiting for it.

        Within ``followed`` it stops and continues with the command too.
        """
        return self._wait_once(os.WNOHANG)

    @contextlib.contextmanager
    def followed(self) -> Iterator[None]:
        """While in the block, a stop of the command is ours, and Ctrl-Z is the command's alone.

        Not before the gate is open: a command that was stopped behind its gate needs us to stop too.
        """
        with _handling(
            {signal.SIGTSTP: _leave_to_command, signal.SIGCONT: self._continue_what_stopped_with_us}
        ):
            yield

    def _wait_once(self, options: int) -> int | None:
        pid, status = os.waitpid(self.pid, os.WUNTRACED | options)
        while pid and os.WIFSTOPPED(status):
            number, self._stopping = os.WSTOPSIG(status), True
            pid, status = self._change()
            if not pid:
                if self._stopping:
                    _stop_by(number)
                pid, status = self._change()
                if not pid:
                    os.kill(self.pid, signal.SIGCONT)
        self._stopping = False
        return status if pid and not os.WIFCONTINUED(status) else None

    def _change(self) -> tuple[int, int]:
        """What became of a stopped command since it was last looked at; no pid: it is in the same stop."""
        return os.waitpid(self.pid, os.WUNTRACED | os.WCONTINUED | os.WNOHANG)

    def _continue_what_stopped_with_us(self, _number: int, _frame: FrameType | None) -> None:
        """One signal may stop both, and another continue us alone: before we follow a stop, or meanwhile."""
        if self._stopping:
            self._stopping = False
        elif is_stopped(self.pid):
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGCONT)


def _stop_by(number: int) -> None:
    """By the signal that stopped the command: shells have different words for them.

    Of two that come at the same time, one from the terminal and this one, one stop is made, and CONT ends it.
    """
    from threading import get_ident

    if number not in (signal.SIGTSTP, signal.SIGTTIN, signal.SIGTTOU):
        signal.pthread_kill(get_ident(), number)
        return
    signal.pthread_sigmask(signal.SIG_BLOCK, {number})
    with _handling({number: signal.SIG_DFL}):
        signal.pthread_kill(get_ident(), number)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {number})


def _leave_to_command(_number: int, _frame: FrameType | None) -> None:
    """A handler, not SIG_IGN, which every process that we start would inherit."""


def become(argv: Sequence[str], env: Mapping[str, str]) -> NoReturn:
    """Replace this process by the command; the lease stays, pid and start time do not change."""
    restore_signals()
    try:
        os.execvpe(argv[0], list(argv), dict(env))
    except OSError as error:
        raise cannot_run(argv[0], error.errno or errno.EIO) from error


def cannot_run(program: str, number: int) -> AgentError:
    """What it means that the system refuses to run a program that is there and executable."""
    code = NOT_FOUND if number == errno.ENOENT else NOT_RUNNABLE
    why = os.strerror(number)
    if number == errno.ENOEXEC:
        why = "it is not a program; a script begins with a line such as #!/bin/sh"
    elif number == errno.ENOENT and (interpreter := _interpreter(program)):
        why = f"its first line names {interpreter!r}, which does not exist"
    return AgentError(f"cannot run {program}: {why}", exit_code=code)


def _interpreter(program: str) -> str:
    """What a script's first line names; empty where there is none."""
    import shutil  # it loads compressors, and only a failure needs it

    try:
        with open(shutil.which(program) or program, "rb") as file:
            line = file.readline(256)
    except OSError:
        return ""
    # A carriage return belongs to the name: the line was written on Windows, and that is what is wrong.
    words = line.removeprefix(b"#!").removesuffix(b"\n").replace(b"\t", b" ").split(b" ")
    return os.fsdecode(next(filter(None, words), b"")) if line.startswith(b"#!") else ""


def die_like(status: int) -> int:
    """End the way a child ended: its exit code, or death by its signal."""
    if os.WIFSIGNALED(status):
        number = os.WTERMSIG(status)
        _disable_core_dump()
        sys.stdout.flush()
        sys.stderr.flush()
        with contextlib.suppress(OSError, ValueError):
            signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)
        return 128 + number
    return os.waitstatus_to_exitcode(status)


def _become_behind_gate(
    gate: int, failure: int, argv: Sequence[str], env: Mapping[str, str], redirect: Mapping[int, int]
) -> NoReturn:
    """The child's side. Leaves only through exec or ``_exit``: nothing of the launcher may run twice."""
    try:
        exec_behind_gate(
            gate, argv, env, lambda: [os.dup2(file, descriptor) for descriptor, file in redirect.items()]
        )
    except OSError as error:
        os.write(failure, str(error.errno or errno.EIO).encode())
    except BaseException as error:
        os.write(failure, repr(error).encode(errors="replace"))
    finally:
        os._exit(NOT_STARTED)


@contextlib.contextmanager
def passing_on(pid: int) -> Iterator[None]:
    """While in the block: forward signals such as TERM to a child, leave the terminal's to the terminal.

    Enter it before the gate opens: from its first moment on the command gets what is meant for it.
    """

    def forward(number: int, _frame: FrameType | None) -> None:
        if number in _FROM_TERMINAL and _terminal_signals_us():
            return
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)

    with _handling(dict.fromkeys((*_FORWARDED, *_FROM_TERMINAL), forward)):
        yield


@contextlib.contextmanager
def stopped_by_signals() -> Iterator[None]:
    """While in the block, TERM and HUP end what we do ourselves, with the status a shell gives for them.

    What ``nohup`` ignores stays ignored: a line of agents is to outlive the terminal it was left in.
    """
    with _handling(dict.fromkeys((signal.SIGTERM, signal.SIGHUP), _stop)):
        yield


@contextlib.contextmanager
def _handling(handlers: Mapping[int, Handler]) -> Iterator[None]:
    """While in the block, these handle the signals that are not ignored."""
    before = {number: signal.getsignal(number) for number in handlers}
    before = {number: handler for number, handler in before.items() if handler is not signal.SIG_IGN}
    for number in before:
        signal.signal(number, handlers[number])
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _stop(number: int, _frame: FrameType | None) -> NoReturn:
    raise SystemExit(128 + number)


def _terminal_signals_us() -> bool:
    """Are we in the foreground of a terminal? Then Ctrl-C reached the command without our help."""
    try:
        terminal = os.open("/dev/tty", os.O_RDONLY | os.O_NOCTTY)
    except OSError:
        return False
    try:
        return os.tcgetpgrp(terminal) == os.getpgrp()
    except OSError:
        return False
    finally:
        os.close(terminal)


def _disable_core_dump() -> None:
    import resource

    with contextlib.suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))
