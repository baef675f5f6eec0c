"""Where this user's state is: its folder, and its address.

By itself, since what an agent's hook calls needs little more and has to be quick.
"""

from __future__ import annotations

import os
from pathlib import Path

from flyball.core.server_url import check_server, redacted
from flyball.errors import UsageError
from flyball.host.user_home import user_home

FILE_NAME = "governor.db"
POSTGRES = ("postgresql", "postgres")
SERVERS = (
    *("redis", "rediss", "valkey", "valkeys", "redis+cluster", "rediss+cluster", "redis+unix"),
    *POSTGRES,
)


def home() -> Path:
    """``FLYBALL_HOME``, default ``~/.flyball``.

    Refused where it is another user's, who could put anything into it: a lease, a token, a program.
    """
    named = os.environ.get("FLYBALL_HOME")
    if named is not None and not named.strip():
        raise UsageError("FLYBALL_HOME is set but empty; unset it or name a folder")
    if named:
        folder = Path(os.path.expanduser(named)).absolute()
        if named.startswith("~") and os.path.expanduser(named) == named:
            raise UsageError(
                f"FLYBALL_HOME is {named!r}, and there is no such home folder; name an absolute path"
            )
    else:
        users = user_home()
        if users is None:
            raise UsageError(
                f"there is no folder for flyball's state: HOME is not set, and user {os.getuid()} has no "
                "entry in the password file; set FLYBALL_HOME to a folder that this user may write"
            )
        if not users.is_absolute() or os.environ.get("HOME") == "":
            raise UsageError(
                f"HOME is {os.environ.get('HOME', '')!r}, which is not an absolute path; "
                "correct it, or set FLYBALL_HOME to a folder for flyball's state"
            )
        folder = users / ".flyball"
    try:
        owner = os.stat(folder).st_uid
    except OSError:
        return folder  # it is still to be made; what else is wrong is said where it is used
    if owner not in (os.geteuid(), 0):
        raise UsageError(
            f"{folder} belongs to user {owner}, and this is user {os.geteuid()}: state there "
            f"cannot be trusted. Set FLYBALL_HOME to a folder of your own, or chown {folder}"
        )
    return folder


def resolve(url: str | None = None) -> str:
    """The full address of the state: ``memory:``, ``sqlite:///path`` or ``redis://host``."""
    address = url if url is not None else os.environ.get("FLYBALL_URL") or f"sqlite://{home() / FILE_NAME}"
    if address == "memory:":
        return address
    scheme, _, rest = address.partition("://")
    if scheme == "sqlite" and rest.startswith("/") and not rest.endswith("/"):
        # A path of two slashes is the same file under another name.
        return f"sqlite:///{rest.lstrip('/')}"
    if scheme in SERVERS and rest.strip("/"):
        return check_server(address)
    raise UsageError(
        f"cannot use {redacted(address)!r} as the place for state (FLYBALL_URL); this version knows memory:, "
        "sqlite:///absolute/path.db, redis://host:6379/0 (rediss://, valkey://), redis+cluster://host:6379 "
        "and postgresql://host:5432/database"
    )
