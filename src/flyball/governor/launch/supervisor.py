"""A small program between an agent and the process that started it. A script: it imports nothing of ours.

    python -I -S supervisor.py GATE SAY FOLDER -- COMMAND ...

It forks the command's process, which waits at the gate in a session of its own, and says that process's
pid. The gate is a pipe: a byte opens it, its end means that nothing may run. From then on the supervisor only
waits. When the command has ended, what it left running behind is ended too: its process group, and on
Linux whatever became the keeper's child when its own parent ended, or still carries its ``FLYBALL_RUN``,
so that a daemon in a session of its own is found. Only then the way it ended goes into ``FOLDER/status``
by an atomic rename: where the file is, all is over.

A command that the system would not run at all leaves the reason in ``FOLDER/refused``.

So no agent hangs on the engine's pipes or life, and an engine that comes back finds out how an agent
ended that is not its child. The keeper itself ends the way its command did, for a parent that is still
there.
"""

from __future__ import annotations

import os
import signal
import sys
import time

TYPE_CHECKING = False  # importing typing would slow every start
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

STDOUT, STDERR, STATUS, STARTED, REFUSED = "stdout", "stderr", "status", "started", "refused"
"""The files of one run: what its command writes, how it ended, that it was let run, why it could not run."""
RUN_VARIABLE = "FLYBALL_RUN"
NOT_STARTED = 125
_LEFTOVER_S = 1.0
_FULL_DISK_TRIES = 60
_SET_CHILD_SUBREAPER = 36


def main(argv: list[str]) -> int:
    gate, say, folder, command = int(argv[0]), int(argv[1]), argv[2], argv[4:]
    _adopt_orphans()
    child = os.fork()
    if child == 0:
        _become(gate, say, folder, command)
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT, signal.SIGPIPE):
        # What is meant for the agent goes to the agent: the keeper has to outlive it to say how it ended.
        signal.signal(number, signal.SIG_IGN)
    os.write(say, b"%d\n" % child)
    os.close(gate)
    os.close(say)
    _let_go_of_output()
    code = os.waitstatus_to_exitcode(_wait_for(child))
    if code == NOT_STARTED and not os.path.exists(os.path.join(folder, STARTED)):
        return NOT_STARTED
    _end_leftovers(child)
    _let_the_dead_go()
    _write(folder, f"{code}\n")
    return code if code >= 0 else 128 - code


def _adopt_orphans() -> None:
    """On Linux, children of the command that outlive it become ours, so that we find them."""
    if sys.platform == "linux":
        import ctypes

        ctypes.CDLL(None).prctl(_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def _wait_for(child: int) -> int:
    """The command's wait status. Orphans that end before it are let go on the way."""
    while True:
        pid, status = os.waitpid(-1, 0)
        if pid == child:
            return status


def _become(gate: int, say: int, folder: str, command: list[str]) -> None:
    """The command's side of the fork. Leaves only through exec or ``_exit``."""
    try:
        os.setsid()
        os.set_inheritable(gate, False)
        os.set_inheritable(say, False)
        # A supervisor is started with it blocked; its command has a session of its own, and may want it.
        exec_behind_gate(
            gate, command, os.environ, lambda: signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
        )
    except OSError as error:
        why = f"cannot run {command[0]}: {error.strerror}".encode(errors="replace")
        os.write(2, b"flyball: " + why + b"\n")
        file = os.open(os.path.join(folder, REFUSED), os.O_WRONLY | os.O_CREAT, 0o600)
        os.write(file, why)
        os._exit(127 if isinstance(error, FileNotFoundError) else 126)
    finally:
        os._exit(NOT_STARTED)


def exec_behind_gate(
    gate: int, command: Sequence[str], env: Mapping[str, str], prepare: Callable[[], object]
) -> None:
    """Wait at the gate, then become the command. Returns if the gate is closed: then nothing may run."""
    if os.read(gate, 1):
        prepare()
        restore_signals()
        os.execvpe(command[0], list(command), env)


def restore_signals() -> None:
    """Python ignores these at start; a command expects the system's behaviour."""
    for name in ("SIGPIPE", "SIGXFSZ"):
        if hasattr(signal, name):
            signal.signal(getattr(signal, name), signal.SIG_DFL)


def _let_go_of_output() -> None:
    """The files belong to the command; a keeper that holds them open would hide that they are finished."""
    nowhere = os.open(os.devnull, os.O_RDWR)
    for number in (0, 1, 2):
        os.dup2(nowhere, number)


def _end_leftovers(child: int) -> None:
    """End what the command started and left behind: politely, then not."""
    if sys.platform == "linux" and not _let_the_dead_go():
        return  # whatever it left would be our child by now
    for number, patience_s in ((signal.SIGTERM, _LEFTOVER_S), (signal.SIGKILL, _LEFTOVER_S)):
        if not _signal_leftovers(child, number):
            return
        end = time.monotonic() + patience_s
        while time.monotonic() < end and _signal_leftovers(child, 0):
            time.sleep(0.02)


def _let_the_dead_go() -> bool:
    """Children by adoption, which would stay as zombies unless they are waited for. False if none is left."""
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        return False
    return True


def _signal_leftovers(child: int, number: int) -> bool:
    """Signal all that is left; False if nothing is."""
    found = False
    try:
        os.killpg(child, number)
        found = _group_lives(child)
    except ProcessLookupError:
        pass
    except PermissionError:  # macOS says so of a group of zombies
        pass
    for pid in {*_strays(), *_orphans()}:
        try:
            os.kill(pid, number)
            found = True
        except OSError:
            continue
    return found


def _group_lives(group: int) -> bool:
    """A group of nothing but zombies is over."""
    if not os.path.isdir("/proc/self"):
        return True
    for pid in _pids():
        fields = _stat(pid)
        if fields and int(fields[2]) == group and fields[0] not in (b"Z", b"X"):
            return True
    return False


def _orphans() -> list[int]:
    """Everything beneath us, once the command itself has ended: on Linux."""
    parents: dict[int, int] = {}
    if os.path.isdir("/proc/self"):
        for pid in _pids():
            fields = _stat(pid)
            if fields and fields[0] not in (b"Z", b"X"):
                parents[pid] = int(fields[1])
    found, beneath = [], {os.getpid()}
    while beneath:
        beneath = {pid for pid, parent in parents.items() if parent in beneath}
        found += sorted(beneath)
    return found


def _strays() -> list[int]:
    """Processes that carry the run's name in their environment, in whatever session: on Linux."""
    name = os.environ.get(RUN_VARIABLE)
    if not name or not os.path.isdir("/proc/self"):
        return []
    wanted, me = f"{RUN_VARIABLE}={name}".encode(), os.getpid()
    since = int(_stat(me)[19])
    return [pid for pid in _pids() if pid != me and _is_stray(pid, wanted, since)]


def _is_stray(pid: int, wanted: bytes, since: int) -> bool:
    fields = _stat(pid)
    if not fields or fields[0] in (b"Z", b"X") or int(fields[19]) < since:
        return False
    try:
        with open(f"/proc/{pid}/environ", "rb") as file:
            return wanted in file.read().split(b"\0")
    except OSError:
        return False


def _pids() -> list[int]:
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]


def _stat(pid: int) -> list[bytes]:
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            text = file.read()
    except OSError:
        return []
    return text[text.rfind(b")") + 2 :].split()


def _write(folder: str, text: str) -> None:
    """A full disk may have room again in a moment; a folder that is gone is wanted by no process.

    Not ``host/atomic_file.py``: this script imports nothing of flyball.
    """
    path = os.path.join(folder, STATUS)
    for _ in range(_FULL_DISK_TRIES):
        try:
            with open(f"{path}.new", "w") as file:
                file.write(text)
            os.rename(f"{path}.new", path)
        except FileNotFoundError:
            return
        except OSError:
            time.sleep(1.0)
        else:
            return


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
