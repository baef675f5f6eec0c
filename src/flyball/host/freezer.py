"""Processes that stand still because their control group is frozen, as ``docker pause`` does it.

/proc shows them as asleep, so their group is asked. A group that is frozen with one above it says so too.
Each hand-off asks, while the store is locked: so files are read in one piece, without a buffer.
"""

from __future__ import annotations

import os
from contextlib import suppress

_MOUNTS = ("/sys/fs/cgroup", "/sys/fs/cgroup/unified")
"""Where version 2 is: alone, or beside version 1."""
_MOUNT_OF_VERSION_1 = "/sys/fs/cgroup/freezer"
_READ_MOST = 1 << 16


def is_frozen(pid: int) -> bool:
    """False where that cannot be seen."""
    for line in _read(f"/proc/{pid}/cgroup").splitlines():
        number, controllers, path = line.split(b":", 2)
        if path == b"/":  # the first group cannot be frozen
            continue
        group = os.fsdecode(path)
        if number == b"0":
            if any(b"frozen 1" in _read(f"{mount}{group}/cgroup.events") for mount in _MOUNTS):
                return True
        elif b"freezer" in controllers.split(b",") and b"FROZEN" in _read(
            f"{_MOUNT_OF_VERSION_1}{group}/freezer.state"
        ):
            return True
    return False


def _read(path: str) -> bytes:
    with suppress(OSError), open(path, "rb", buffering=0) as file:
        return file.read(_READ_MOST)
    return b""
