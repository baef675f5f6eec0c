"""Which process is which, and is it still alive?

A pid alone proves nothing: pids are recycled, and mean different things in different pid namespaces
and after a reboot. A ``Holder`` names all of it. A zombie is dead: it runs nothing any more, once its last
thread has ended.
"""

from __future__ import annotations

import errno
import os
import select
import sys
from collections.abc import Iterable
from functools import lru_cache
from pathlib import Path
from typing import Any

from flyball.core.pool.holder import Holder
from flyball.errors import StoreError, UsageError
from flyball.host.pid_namespaces import pid_namespace, sight

_PROC = Path("/proc/self/stat").exists()
HOST_VARIABLE = "FLYBALL_HOST_ID"
_STAT_MOST = 4096
_WATCH_LIMIT = 256
"""Enough for any pool of agents; beyond it the once-a-second check covers the rest."""


@lru_cache(maxsize=1)
def boot_id() -> str:
    """Changes with every boot of this machine."""
    linux = Path("/proc/sys/kernel/random/boot_id")
    if linux.exists():
        return linux.read_text().strip()
    import subprocess

    found = subprocess.run(
        ["sysctl", "-n", "kern.bootsessionuuid"], capture_output=True, text=True, check=False
    )
    return found.stdout.strip() or "unknown"


@lru_cache(maxsize=1)
def host_name() -> str:
    """``FLYBALL_HOST_ID``, or the machine's own name. It must be the same for all processes of a machine."""
    named = os.environ.get(HOST_VARIABLE)
    if named is None:
        return os.uname().nodename
    from flyball.core.pool.settings import check_name

    return check_name(HOST_VARIABLE, named)


def identify(pid: int) -> Holder:
    """The process that has this pid now. Raises UsageError if there is none."""
    try:
        start = _start_time(pid)
    except OSError as error:
        raise StoreError(f"cannot look at process {pid}: {error.strerror}") from error
    if start is None:
        raise UsageError(f"there is no running process with pid {pid}")
    return Holder(host_name(), boot_id(), pid_namespace(), pid, start)


@lru_cache(maxsize=4)
def _identify_cached(pid: int) -> Holder:
    return identify(pid)


def me() -> Holder:
    """This process. Right after a fork too: the cache is keyed by pid."""
    return _identify_cached(os.getpid())


def here(holder: Holder) -> bool:
    """Is it of this host, this boot and this pid namespace?"""
    return (holder.host, holder.boot, holder.pidns) == (host_name(), boot_id(), pid_namespace())


def beside_us(holder: Holder) -> bool:
    """Is it of another pid namespace under the same kernel? A container often has a host name of its own."""
    return holder.boot == boot_id() and holder.pidns != pid_namespace()


def alive(holder: Holder) -> bool | None:
    """Does the holder still run? None where that cannot be known from here."""
    if beside_us(holder):
        seen = sight(holder, _start_time)
        return True if seen.pid is not None else False if seen.sure else None
    if holder.host != host_name():
        return None
    if holder.boot != boot_id():
        return False
    try:
        return _start_time(holder.pid) == holder.start
    except OSError:
        # No descriptor may be left: a process is not taken for dead because we cannot look.
        return _answers(holder.pid)


def exists(pid: int) -> bool:
    """Is there a process of this number now, here, that is not a zombie? Whether it is the same is not
    asked."""
    try:
        return _start_time(pid) is not None
    except OSError:
        return _answers(pid)


def command_line(pid: int) -> list[str]:
    """The words a process was started with; none where they cannot be seen."""
    if not _PROC:
        return _command_line_by_psutil(pid)
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as file:
            return [os.fsdecode(word) for word in file.read().split(b"\0")[:-1]]
    except OSError:
        return []


def _command_line_by_psutil(pid: int) -> list[str]:
    import psutil

    try:
        return list(psutil.Process(pid).cmdline())
    except psutil.Error:
        return []


def is_stopped(pid: int) -> bool:
    """Does the process stand still, by Ctrl-Z, SIGSTOP, a debugger, or in a container that is paused? False
    where that cannot be seen."""
    if not _PROC:
        return _is_stopped_by_psutil(pid)
    try:
        state = _stat_fields(pid)[0]
    except OSError:
        return False
    if state in (b"T", b"t"):
        return True
    from flyball.host.freezer import is_frozen  # an ``exec`` that meets no line never asks

    return is_frozen(pid)


def stands_still(holder: Holder) -> bool:
    """Is it a process of ours that is stopped? False where that cannot be seen from here."""
    return holder.pid != os.getpid() and here(holder) and is_stopped(holder.pid)


def ancestors(pid: int) -> list[int]:
    """The pids of the process itself and of those that it descends from, as far as they can be seen."""
    found: list[int] = []
    while pid > 0 and pid not in found:
        found.append(pid)
        pid = _parent(pid)
    return found


def _parent(pid: int) -> int:
    try:
        if _PROC:
            return int(_stat_fields(pid)[1])
        import psutil

        return int(psutil.Process(pid).ppid())
    except Exception:  # psutil's errors share no class with the system's
        return 0


def _is_stopped_by_psutil(pid: int) -> bool:
    import psutil

    try:
        stopped = psutil.Process(pid).status() in (psutil.STATUS_STOPPED, psutil.STATUS_TRACING_STOP)
    except psutil.Error:
        return False
    return bool(stopped)


def _answers(pid: int) -> bool:
    """Is there any process of this number?"""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    return True


def _start_time(pid: int) -> int | None:
    """When the process started, in its system's unit; None if it is gone or a zombie.

    Raises OSError where that cannot be found out now.
    """
    if pid <= 0:
        return None
    return _start_from_proc(pid) if _PROC else _start_from_psutil(pid)


def _stat_fields(pid: int) -> list[bytes]:
    """What /proc says of a process, from its state on."""
    # Read in one piece, without a buffer: each hand-off looks at a waiter while the store is locked.
    with open(f"/proc/{pid}/stat", "rb", buffering=0) as file:
        text = file.read(_STAT_MOST)
    # The command name may contain anything, spaces and brackets included: count from its end.
    return text[text.rfind(b")") + 2 :].split()


def _start_from_proc(pid: int) -> int | None:
    try:
        fields = _stat_fields(pid)
    except (FileNotFoundError, ProcessLookupError):
        return None
    state, threads, start = fields[0], int(fields[17]), int(fields[19])
    # A first thread that ended shows as a zombie while the others still run, and still hold their locks.
    return None if state in (b"Z", b"X") and threads <= 1 else start


def _start_from_psutil(pid: int) -> int | None:
    import psutil

    try:
        process = psutil.Process(pid)
        if process.status() == psutil.STATUS_ZOMBIE:
            return None
        return int(process.create_time() * 1000)
    except psutil.NoSuchProcess:
        return None
    except psutil.Error as error:
        raise PermissionError(errno.EPERM, str(error)) from error


def _pid_here(holder: Holder) -> int | None:
    """The pid that a holder has for us; None where it cannot be known."""
    if beside_us(holder):
        return sight(holder, _start_time).pid
    return holder.pid if here(holder) else None


class DeathWatch:
    """File descriptors that become readable when one of some processes dies.

    ``partial`` is true where some of them could not be watched and must be checked now and then.
    """

    def __init__(self, holders: Iterable[Holder]) -> None:
        self.fds: list[int] = []
        self.partial = False
        self._kqueue: Any = None
        watchable = {pid: h for h in holders if (pid := _pid_here(h)) is not None}
        for pid, holder in list(watchable.items())[:_WATCH_LIMIT]:
            if not self._watch(pid) or not alive(holder):
                self.partial = True
        self.partial = self.partial or len(watchable) > _WATCH_LIMIT

    def _watch(self, pid: int) -> bool:
        if hasattr(os, "pidfd_open"):
            try:
                self.fds.append(os.pidfd_open(pid))
            except OSError:
                return False
            return True
        return sys.platform != "linux" and self._watch_kqueue(pid)

    def _watch_kqueue(self, pid: int) -> bool:
        kqueue: Any = select  # its names exist on BSD and macOS only
        if not hasattr(kqueue, "kqueue"):
            return False
        if self._kqueue is None:
            self._kqueue = kqueue.kqueue()
            self.fds.append(self._kqueue.fileno())
        event = kqueue.kevent(pid, kqueue.KQ_FILTER_PROC, kqueue.KQ_EV_ADD, kqueue.KQ_NOTE_EXIT)
        try:
            self._kqueue.control([event], 0)
        except OSError:
            return False
        return True

    def close(self) -> None:
        if self._kqueue is not None:
            self._kqueue.close()
        else:
            for fd in self.fds:
                os.close(fd)
        self.fds, self._kqueue = [], None
