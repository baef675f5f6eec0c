"""A waiter that is woken asks the store, once, with its smallest question."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from flyball import Governor
from flyball.core.pool.verdict import Verdict
from flyball.governor.internals import internals
from flyball.stores.port import AfterCommit
from tests.governor.people import Person, nothing_left, wait_for_line
from tests.waiting import LONGEST_S


@pytest.fixture
def url(home: Path) -> str:
    """Of processes of one machine: they have sockets."""
    return f"sqlite://{home / 'governor.db'}"


@pytest.fixture
def found(gov: Governor, monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """The looks that found a claim granted: did they also hand out what time had freed?"""
    found: list[bool] = []
    look = internals(gov).store.poll

    def looks(
        claim_id: int, *, advance: bool, asked_at: float | None = None
    ) -> tuple[Verdict | None, AfterCommit]:
        verdict, after = look(claim_id, advance=advance, asked_at=asked_at)
        if verdict is not None and verdict.granted:
            found.append(advance)
        return verdict, after

    monkeypatch.setattr(internals(gov).store, "poll", looks)
    return found


def hand_over(gov: Governor, *, by_loop: bool) -> None:
    """A slot, from one that has it to one that waits."""

    async def wait() -> None:
        async with gov.slot("p", timeout=LONGEST_S) as lease:
            assert lease.verdict.granted

    def wait_here() -> None:
        with gov.slot("p", timeout=LONGEST_S) as lease:
            assert lease.verdict.granted

    first = gov.acquire("p")
    waits = Person(lambda: asyncio.run(wait()) if by_loop else wait_here())
    wait_for_line(gov, 1)
    first.release()
    waits.outcome()
    assert nothing_left(gov)


@pytest.mark.parametrize("by_loop", [False, True])
def test_a_waiter_that_is_handed_a_slot_looks_once(gov: Governor, found: list[bool], by_loop: bool) -> None:
    hand_over(gov, by_loop=by_loop)
    # A loop asks on the spot, and takes the thread's way only where the store is busy.
    assert found in ([[], [False]] if by_loop else [[False]])
