"""How much memory could be used without swapping."""

from __future__ import annotations

import os


def free_bytes() -> int | None:
    """Available memory, or None where the system does not say."""
    try:
        with open("/proc/meminfo", "rb") as file:
            for line in file:
                if line.startswith(b"MemAvailable:"):
                    return int(line.split()[1]) * 1024
    except OSError:
        pass
    try:
        import psutil
    except ImportError:
        return None
    return int(psutil.virtual_memory().available) if os.name == "posix" else None
