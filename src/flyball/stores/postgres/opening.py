"""The store behind an address. The driver is imported when it is first needed."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from flyball.core.pool.holder import Holder
from flyball.errors import UsageError
from flyball.host.install_hints import extra_command
from flyball.stores.pool_session import Environment

if TYPE_CHECKING:
    from flyball.stores.postgres.store import PostgresStore


def open_postgres(
    url: str,
    *,
    chance: Callable[[], float],
    here: Callable[[], Holder],
    stands_still: Callable[[Holder], bool],
) -> PostgresStore:
    """Nothing is sent before the store is first used. ``?space=`` keeps several apart on one server."""
    try:
        import psycopg  # noqa: F401
    except ImportError as error:
        raise UsageError(
            "FLYBALL_URL names a PostgreSQL server, and its driver is not installed: "
            f"{extra_command('postgres')}"
        ) from error
    from flyball.stores.postgres.connection_pool import ConnectionPool
    from flyball.stores.postgres.store import PostgresStore

    server = ConnectionPool(url)
    return PostgresStore(
        server, Environment(server.now, chance, lambda: None, here, stands_still=stands_still)
    )
