"""Tenants take turns: a tenant that sends much waits behind its own requests."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from flyball.service import fair_scheduling as module
from flyball.service.fair_scheduling import TenantScheduler, Turn, end_turn


def on_a_loop(main: Callable[[], Awaitable[None]]) -> None:
    async def run() -> None:
        await main()

    asyncio.run(run())


class Asking:
    """Requests that take a turn each and are over when told."""

    def __init__(self, turns: TenantScheduler) -> None:
        self.turns = turns
        self.order: list[str] = []
        self.got: list[Turn] = []

    def ask(self, tenant: str) -> asyncio.Task[None]:
        return asyncio.create_task(self._ask(tenant))

    async def _ask(self, tenant: str) -> None:
        turn = await self.turns.take(tenant.encode())
        self.order.append(tenant)
        self.got.append(turn)

    async def end_one(self) -> None:
        self.got.pop(0).over()
        await settle()


async def settle() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


def test_a_light_tenant_goes_before_what_a_flooder_sent_earlier() -> None:
    async def main() -> None:
        asking = Asking(TenantScheduler(at_once=1))
        for tenant in ("flood", "flood", "flood", "flood", "light"):
            asking.ask(tenant)
        await settle()
        while asking.got:
            await asking.end_one()
        assert asking.order == ["flood", "flood", "light", "flood", "flood"]

    on_a_loop(main)


def test_no_more_than_a_few_are_worked_on_at_once() -> None:
    async def main() -> None:
        asking = Asking(TenantScheduler(at_once=2))
        for _ in range(5):
            asking.ask("one")
        await settle()
        assert len(asking.got) == 2
        await asking.end_one()
        assert len(asking.order) == 3

    on_a_loop(main)


def test_a_turn_that_ends_twice_lets_one_other_in() -> None:
    async def main() -> None:
        asking = Asking(TenantScheduler(at_once=1))
        for _ in range(3):
            asking.ask("one")
        await settle()
        first = asking.got[0]
        first.over()
        first.over()
        await settle()
        assert len(asking.order) == 2

    on_a_loop(main)


def test_a_request_that_leaves_the_line_holds_up_no_other() -> None:
    async def main() -> None:
        asking = Asking(TenantScheduler(at_once=1))
        asking.ask("one")
        await settle()
        left = asking.ask("two")
        asking.ask("three")
        await settle()
        left.cancel()
        await asking.end_one()
        assert asking.order == ["one", "three"]

    on_a_loop(main)


def test_a_turn_that_comes_to_a_request_that_just_left_goes_on() -> None:
    async def main() -> None:
        asking = Asking(TenantScheduler(at_once=1))
        asking.ask("one")
        await settle()
        left = asking.ask("two")
        await settle()
        asking.got.pop().over()
        left.cancel()
        await settle()
        asking.ask("three")
        await settle()
        assert asking.order == ["one", "three"]

    on_a_loop(main)


def test_a_request_that_takes_too_long_has_had_its_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "LONGEST_S", 0.001)

    async def main() -> None:
        asking = Asking(TenantScheduler(at_once=1))
        asking.ask("stuck")
        await asyncio.wait_for(asking.ask("next"), 20)
        assert asking.order == ["stuck", "next"]

    on_a_loop(main)


def test_stepping_aside_ends_the_turn_of_the_request_that_waits_and_of_no_other() -> None:
    async def main() -> None:
        asking = Asking(TenantScheduler(at_once=2))

        async def waits() -> None:
            await asking._ask("one")
            end_turn()

        asking.ask("two")
        await asyncio.gather(asyncio.create_task(waits()))
        asking.ask("three")
        asking.ask("four")
        await settle()
        assert asking.order == ["two", "one", "three"]
        end_turn()
        await settle()
        assert len(asking.order) == 3

    on_a_loop(main)
