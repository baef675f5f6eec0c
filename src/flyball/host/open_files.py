"""How many files a process may have open. Each connection is one, and the usual limit is 1024 or 256."""

from __future__ import annotations

import contextlib
import resource


def allow_open_files(wanted: int) -> None:
    """Raise the limit of this process to ``wanted``, or as far as it may raise it itself."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY:
        wanted = min(hard, wanted)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        with contextlib.suppress(OSError, ValueError):  # macOS has a lower one that it does not tell
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
