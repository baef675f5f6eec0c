"""Facts as the server tells them: each once, in order, under a number of its own.

A store keeps its newest facts and numbers none of them. What is new is what the last look did not show; of
equal facts as many as there are more. The numbers begin anew with every server, so they carry its mark: a
client that comes back with the number it saw last is told what it missed, and after a restart all that is
known since.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Sequence
from datetime import UTC, datetime
from secrets import token_hex

import msgspec

from flyball.core.model import Fact
from flyball.service.looking import FACTS_SEEN, Look

KEPT = 500


class FactView(msgspec.Struct, frozen=True, kw_only=True):
    """Something that happened."""

    id: str
    """Grows by one with each fact; empty for one that was there before the server."""
    s_ago: float
    time: str
    """By the server's clock."""
    pool: str
    kind: str
    words: str
    project: str
    name: str
    pid: int


class Timeline:
    def __init__(self, mark: str | None = None) -> None:
        self._mark = mark if mark is not None else token_hex(4)
        self._last: tuple[Fact, ...] | None = None
        self._kept: deque[tuple[int, Fact]] = deque(maxlen=KEPT)
        self._number = 0

    def hear(self, look: Look) -> list[tuple[str, Fact]]:
        """What is new in a look, oldest first, each with its id. Nothing is new in the first."""
        before, self._last = self._last, look.facts
        if before is None:
            return []
        told = []
        for fact in new_facts(before, look.facts):
            self._number += 1
            self._kept.append((self._number, fact))
            told.append((self._id(self._number), fact))
        return told

    def since(self, last_id: str) -> list[tuple[str, Fact]]:
        """What came after the fact with this id, as far as it is still known."""
        mark, _, number = last_id.rpartition("-")
        if not last_id:
            return []
        after = int(number) if mark == self._mark and number.isdecimal() else 0
        return [(self._id(known), fact) for known, fact in self._kept if known > after]

    def newest(self, look: Look, *, limit: int) -> list[FactView]:
        """Newest first, those from before the server included."""
        ids: dict[Fact, list[str]] = {}
        for number, fact in self._kept:
            ids.setdefault(fact, []).append(self._id(number))
        views = []
        for fact in look.facts[:limit]:
            known = ids.get(fact)
            views.append(view(look, known.pop() if known else "", fact))
        return views

    def _id(self, number: int) -> str:
        return f"{self._mark}-{number}"


def new_facts(before: Sequence[Fact], after: Sequence[Fact]) -> list[Fact]:
    """Those of ``after`` that ``before`` did not show, oldest first; both are newest first."""
    # A full window may show older facts again when newer ones were forgotten; they are not new.
    since = before[-1].at if len(before) >= FACTS_SEEN else float("-inf")
    known = Counter(before)
    fresh = []
    for fact in reversed(after):
        if known[fact] > 0:
            known[fact] -= 1
        elif fact.at >= since:
            fresh.append(fact)
    return fresh


def view(look: Look, fact_id: str, fact: Fact) -> FactView:
    s_ago = max(0.0, look.store_now - fact.at)
    return FactView(
        id=fact_id,
        s_ago=s_ago,
        time=datetime.fromtimestamp(look.time - s_ago, UTC).isoformat(timespec="milliseconds"),
        pool=fact.pool,
        kind=fact.kind,
        words=fact.words,
        project=fact.project,
        name=fact.name,
        pid=fact.pid,
    )
