"""A connection, what only the plan reads of a pool, and the rows of share leases."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from flyball.core.control.named import controller_of
from flyball.core.model import Claim, ProjectUse
from flyball.core.renewal import Pot, ShareLease
from flyball.errors import StoreUnreadableError
from flyball.stores import codec, share_columns
from flyball.stores.postgres import statements as sql
from flyball.stores.postgres.link import Link, Values
from flyball.stores.rows import Life, PoolRow


@dataclass(slots=True)
class Mind:
    """Settings, learned state and pot of one pool: read together, once in a step, which has its lock."""

    settings: str
    memory: str
    pot: Pot | None


class ShareRows:
    """The part of ``Rows`` that only plans and share leases need, and how all parts ask."""

    def __init__(self, link: Link) -> None:
        self._link = link
        self._minds: dict[str, Mind] = {}
        self._pools: dict[str, PoolRow] = {}
        self._uses: dict[tuple[str, str], ProjectUse | None] = {}
        self._found: dict[int, Claim | None] = {}

    def _run(self, query: str, values: Values = ()) -> None:
        """Write something; it goes out with the next question, and what was read may no longer be true."""
        self._pools.clear()
        self._uses.clear()
        self._found.clear()
        self._link.execute(query, values)

    def _all(self, query: str, values: Values = ()) -> list[tuple[Any, ...]]:
        return self._link.ask(query, values)

    def _one(self, query: str, values: Values = ()) -> tuple[Any, ...] | None:
        found = self._link.ask(query, values)
        return found[0] if found else None

    def _mind(self, pool: str) -> Mind:
        if pool not in self._minds:
            row = self._one(sql.MIND, (pool,))
            if row is None:
                raise StoreUnreadableError(f"pool {pool!r} has lost its settings")
            pot = share_columns.pot_of(row[2:]) if row[2] is not None else None
            self._minds[pool] = Mind(row[0], row[1], pot)
        return self._minds[pool]

    def settings(self, pool: str) -> str:
        return self._mind(pool).settings

    def memory(self, pool: str) -> str:
        return self._mind(pool).memory

    def put_settings(self, pool: str, settings: str) -> None:
        traits = traits_of(settings)
        self._mind(pool).settings = settings
        self._run(sql.PUT_SETTINGS, (settings, pool))
        self._run(sql.PUT_TRAITS, (*traits, pool))

    def put_memory(self, pool: str, memory: str) -> None:
        self._mind(pool).memory = memory
        self._run(sql.PUT_MEMORY, (memory, pool))

    def life(self) -> Life | None:
        row = self._one(sql.LIFE)
        return Life(*row) if row is not None else None

    def put_life(self, life: Life) -> None:
        self._run(sql.PUT_LIFE, (life.epoch, life.since))

    def pot(self, pool: str) -> Pot | None:
        return self._mind(pool).pot

    def put_pot(self, pool: str, pot: Pot) -> None:
        self._mind(pool).pot = pot
        self._run(sql.PUT_POT, (pool, *share_columns.of_pot(pot)))

    def share(self, pool: str, name: str) -> ShareLease | None:
        row = self._one(sql.SHARE, (pool, name))
        return share_columns.share_of(row) if row is not None else None

    def shares(self, pool: str) -> list[ShareLease]:
        return [share_columns.share_of(row) for row in self._all(sql.SHARES, (pool,))]

    def put_share(self, pool: str, lease: ShareLease) -> None:
        self._run(sql.PUT_SHARE, (pool, lease.name, pool, lease.name, *share_columns.of_share(lease)))

    def drop_share(self, pool: str, name: str) -> None:
        self._run(sql.DROP_SHARE, (pool, name))


def traits_of(settings: str) -> tuple[bool, bool]:
    """What the short way has to know of a pool's settings: do maxima exist, does success grow the cap?"""
    resolved = codec.load_settings(settings)
    return bool(resolved.maxima), controller_of(resolved).by_success
