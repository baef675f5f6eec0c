"""Asks that were sent and never answered: each may have become a claim that no process knows of.

A claim carries the tag of the step that made it. Once the server process that was asked is gone, nothing can
come of the ask any more; what came of it until then is found by its tag and given back. A process of the
server that is still busy with it is told to end.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from itertools import count

from flyball.stores.postgres import queries as sql
from flyball.stores.postgres.connection import Connection


@dataclass(frozen=True, slots=True)
class LostReply:
    """An ask whose answer did not come."""

    pool: str
    tag: int
    backend: tuple[int, str]
    """The process of the server that was asked (``Connection.backend``)."""


@dataclass(frozen=True, slots=True)
class LostReplyCheck:
    """What became of some of them."""

    claims: tuple[int, ...]
    """To be given back."""
    over: frozenset[LostReply]
    """Nothing more will become of these."""


def find_lost_claims(link: Connection, lost: list[LostReply]) -> LostReplyCheck:
    """The processes first: what one of them did before it ended is seen by the question that follows."""
    pids = list({ask.backend[0] for ask in lost})
    busy = {(int(pid), str(began)) for pid, began in link.ask(sql.BACKENDS, (pids,))}
    over, claims = {ask for ask in lost if ask.backend not in busy}, []
    for pool in {ask.pool for ask in lost}:
        asks = {ask.tag: ask for ask in lost if ask.pool == pool}
        for claim_id, tag in link.ask(sql.TAGGED, (pool, list(asks))):
            claims.append(int(claim_id))
            over.add(asks[int(tag)])
    for pid, _ in {ask.backend for ask in lost if ask not in over}:
        link.execute(sql.END_BACKEND, (pid,))
    return LostReplyCheck(tuple(sorted(claims)), frozenset(over))


class RequestTags:
    """Numbers for asks that no other process will ever use."""

    def __init__(self) -> None:
        # Never 0, which means no tag; room for a process that asks for years.
        self._numbers = count(int.from_bytes(os.urandom(5), "big") * 2**22 + 1)

    def __call__(self) -> int:
        return next(self._numbers)
