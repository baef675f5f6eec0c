"""The home folder of the user who runs this process, which a container's user may not have."""

from __future__ import annotations

from pathlib import Path


def user_home() -> Path | None:
    """``HOME``, or what the password file says; None where neither names a folder."""
    try:
        return Path.home()
    except RuntimeError:
        return None
