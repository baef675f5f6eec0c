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
TERM, HUP and CONT are passed on, a stop is followed, and the launcher ends the way the command ended.
"""

from __future__ import annotations

import contextlib
import errno
import os
import signal
import sys
from collections.abc import Iterator, Mapping, Sequence
from types import FrameType
from typing import NoReturn

from flyball.errors import AgentError
from flyball.governor.launch.supervisor import NOT_STARTED, exec_behind_gate, restore_signals
from flyball.host.process import is_stopped

NOT_RUNNABLE, NOT_FOUND = 126, 127
_FORWARDED = (signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2, signal.SIGCONT)
_FROM_TERMINAL = (signal.SIGINT, signal.SIGQUIT)


class GatedChild:
    """A forked child that becomes ``argv`` once the gate is opened.

    ``redirect`` says what its own descriptors become: ``{1: fd}`` makes ``fd`` its stdout.
    """

    def __init__(
        self, argv: Sequence[str], env: Mapping[str, str], *, redirect: Mapping[int, int] | None = None
    ) -> None:
        self._program = argv[0]
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
        while True:
            status = self._wait_once(os.WUNTRACED)
            if status is not None:
                return status

    def poll(self) -> int | None:
        """The wait status of a command that has ended, without waiting for it; stops and continues too."""
        return self._wait_once(os.WUNTRACED | os.WNOHANG)

    def _wait_once(self, options: int) -> int | None:
        pid, status = os.waitpid(self.pid, options)
        if pid == 0:
            return None
        if not os.WIFSTOPPED(status):
            return status
        # The command was stopped: stop with it, and when continued, continue it. Ctrl-Z stops us both: then
        # we may get to this report only after the shell has continued us, and it is out of date.
        if not is_stopped(self.pid):
            return None
        os.kill(os.getpid(), signal.SIGSTOP)
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGCONT)
        return None


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


class passing_on:  # noqa: N801 - used as a statement
    """While in the block: forward signals such as TERM to a child, leave the terminal's to the terminal.

    CONT too: the shell that continues us wants the command to go on, and may have reached us first.

    Enter it before the gate opens: from its first moment on the command gets what is meant for it.
    """

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._before: dict[int, object] = {}

    def __enter__(self) -> None:
        for number in (*_FORWARDED, *_FROM_TERMINAL):
            before = signal.getsignal(number)
            if before is not signal.SIG_IGN:
                self._before[number] = before
                signal.signal(number, self._forward)

    def __exit__(self, *_: object) -> None:
        for number, before in self._before.items():
            signal.signal(number, before)  # type: ignore[arg-type]

    def _forward(self, number: int, _frame: FrameType | None) -> None:
        if number in _FROM_TERMINAL and _terminal_signals_us():
            return
        with contextlib.suppress(ProcessLookupError):
            os.kill(self._pid, number)


@contextlib.contextmanager
def stopped_by_signals() -> Iterator[None]:
    """While in the block, TERM and HUP end what we do ourselves, with the status a shell gives for them.

    What ``nohup`` ignores stays ignored: a line of agents is to outlive the terminal it was left in.
    """
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGHUP)}
    before = {number: handler for number, handler in before.items() if handler is not signal.SIG_IGN}
    for number in before:
        signal.signal(number, _stop)
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
