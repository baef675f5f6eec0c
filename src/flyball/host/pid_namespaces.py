"""Processes of other pid namespaces of this machine, such as those of containers.

A pid means something in its own namespace only. From a namespace above, the processes below are visible under
pids of their own: /proc names the namespace of each, and its pid there. So a holder below can be found;
and one that is not found has ended, if nothing could have been hidden from us: the machine's first namespace
sees all, and a process that may not be looked at closely still says whether it is in a namespace below.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

from flyball.core.pool.holder import Holder

FIRST_NAMESPACE = 0xEFFFFFFC
"""The number that Linux gives the pid namespace in which it starts."""


@dataclass(frozen=True, slots=True)
class Sighting:
    """What can be seen of a process from here."""

    pid: int | None
    """The pid it has here; None where it was not found."""
    sure: bool
    """Not found, and that proves that it has ended."""


@lru_cache(maxsize=1)
def pid_namespace() -> int:
    """The pid namespace of this process; 0 where the system has none."""
    try:
        return os.stat("/proc/self/ns/pid").st_ino
    except OSError:
        return 0


def sight(holder: Holder, start_time: Callable[[int], int | None]) -> Sighting:
    """Look for a process of another namespace. ``start_time``: when the process of a pid here started."""
    above, hidden = pid_namespace() == FIRST_NAMESPACE, False
    try:
        pids = [int(name) for name in os.listdir("/proc") if name.isdigit()]
    except OSError:
        pids = []
    for pid in pids:
        try:
            namespace = _namespace(pid, "pid")
            if namespace is None:
                hidden = hidden or len(_pids(pid)) != 1
            elif namespace == holder.pidns:
                above = True
                if _pids(pid)[-1:] == [holder.pid]:
                    if start_time(pid) == holder.start:
                        return Sighting(pid, sure=True)
                    # Another one that has its pid now; or the same, on a clock that is not ours.
                    hidden = hidden or _namespace(pid, "time") != _namespace(os.getpid(), "time")
        except (FileNotFoundError, ProcessLookupError):
            # It ended while we looked.
            continue
        except OSError:
            hidden = True
    return Sighting(None, sure=above and not hidden and 1 in pids)


def _namespace(pid: int, kind: str) -> int | None:
    """None where we may not know."""
    try:
        return os.stat(f"/proc/{pid}/ns/{kind}").st_ino
    except PermissionError:
        return None


def _pids(pid: int) -> list[int]:
    """The pids of a process, from our namespace down to its own."""
    with open(f"/proc/{pid}/status", "rb") as file:
        for line in file:
            if line.startswith(b"NSpid:"):
                return [int(word) for word in line.split()[1:]]
    return []
