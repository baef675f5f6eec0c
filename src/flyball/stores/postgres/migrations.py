"""Our tables on the server, brought forward one numbered script at a time, each whole or not at all."""

from __future__ import annotations

import hashlib
from functools import cache
from importlib.resources import files

from psycopg import sql

from flyball.errors import StoreUnreadableError
from flyball.stores.postgres.address import Address
from flyball.stores.postgres.connection import Connection, look_again


@cache
def scripts() -> list[tuple[int, str]]:
    """The numbered scripts beside this file, oldest first."""
    found = sorted((f for f in files(__package__).iterdir() if f.name.endswith(".sql")), key=lambda f: f.name)
    return [(int(script.name[:3]), script.read_text(encoding="utf-8")) for script in found]


LAYOUT = 7


def check(link: Connection, address: Address) -> None:
    """Refuse what a newer flyball has written: it may mean other things by it."""
    if link.layout > LAYOUT:
        raise StoreUnreadableError(
            f"the state on {address.words} is of a newer flyball (layout {link.layout}, this one knows "
            f"{LAYOUT}); upgrade flyball here, or name another ?space= in FLYBALL_URL"
        )


def bring_forward(link: Connection, address: Address) -> None:
    """Make the tables, or change them into ours. Of several who come at once one does it."""
    if link.layout == LAYOUT:
        return
    space = sql.Identifier(address.space)
    with link.transaction():
        link.execute("SELECT pg_advisory_xact_lock(%s)", (_lock(address.space),))
        look_again(link, address.space)
        check(link, address)
        if not link.layout and not _exists(link, address.space):
            link.execute(sql.SQL("CREATE SCHEMA {}").format(space))
        for number, script in scripts()[link.layout :]:
            link.execute(script.encode())
            link.execute("UPDATE layout SET version = %s", (number,))
            link.layout = number


def _exists(link: Connection, space: str) -> bool:
    """Asked first: who may not make schemas may still have been given one."""
    found = link.execute("SELECT 1 FROM pg_namespace WHERE nspname = %s", (space,)).fetchone()
    return found is not None


def _lock(space: str) -> int:
    """A number for the advisory lock of a space that has no tables yet."""
    return int.from_bytes(hashlib.sha256(f"flyball {space}".encode()).digest()[:8], "big", signed=True)
