"""How much memory there is, and how much of it could be used without swapping."""

from __future__ import annotations

import os


def free_bytes() -> int | None:
    """Available memory, or None where the system does not say."""
    return _bytes(b"MemAvailable:", "available")


def total_bytes() -> int | None:
    """All memory of the machine, or None where the system does not say."""
    return _bytes(b"MemTotal:", "total")


def _bytes(line_start: bytes, attribute: str) -> int | None:
    try:
        with open("/proc/meminfo", "rb") as file:
            for line in file:
                if line.startswith(line_start):
                    return int(line.split()[1]) * 1024
    except OSError:
        pass
    try:
        import psutil
    except ImportError:
        return None
    return int(getattr(psutil.virtual_memory(), attribute)) if os.name == "posix" else None
