"""Processes that stand still because their control group is frozen, as ``docker pause`` does it.

/proc shows them as asleep, so their group is asked. A group that is frozen with one above it says so too.
"""

from __future__ import annotations

from contextlib import suppress

_MOUNTS = ("/sys/fs/cgroup", "/sys/fs/cgroup/unified")
"""Where version 2 is: alone, or beside version 1."""
_MOUNT_OF_VERSION_1 = "/sys/fs/cgroup/freezer"


def is_frozen(pid: int) -> bool:
    """False where that cannot be seen."""
    for number, controllers, path in _groups(pid):
        if path == "/":  # the first group cannot be frozen
            continue
        if number == "0":
            if any("frozen 1" in _read(f"{mount}{path}/cgroup.events") for mount in _MOUNTS):
                return True
        elif "freezer" in controllers.split(",") and "FROZEN" in _read(
            f"{_MOUNT_OF_VERSION_1}{path}/freezer.state"
        ):
            return True
    return False


def _groups(pid: int) -> list[list[str]]:
    """Number, controllers and path of each group that the process is in."""
    return [line.split(":", 2) for line in _read(f"/proc/{pid}/cgroup").splitlines()]


def _read(path: str) -> str:
    with suppress(OSError), open(path, encoding="utf-8", errors="surrogateescape") as file:
        return file.read()
    return ""
