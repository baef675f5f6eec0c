"""The purse on a clock that only the test moves: resets, slow starts, ceilings, what is spoken for."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path

import pytest

from flyball.core.budget.limits import Level
from flyball.core.budget.usage_windows import UsageReport
from flyball.core.tasks.task_run import Step
from flyball.factory.budget.api_key import ApiKey
from flyball.factory.budget.guard import BudgetGuard
from flyball.factory.budget.monitor import UsageMonitor
from flyball.factory.budget.port import BillingAccount
from flyball.factory.budget.quotas import QuotaBook
from flyball.factory.project.config import BudgetPart
from flyball.factory.state.ledger import Ledger

WORK = BillingAccount(name="work", runtime="opencode")
START = 1_000_000 * 18_000.0
"""A five-hour window begins."""
TASK = ("task", "sonnet")


def on_loop(test: Callable[..., Coroutine[None, None, None]]) -> Callable[..., None]:
    @functools.wraps(test)
    def run(desk: Desk) -> None:
        asyncio.run(test(desk))

    return run


class Desk:
    """A home, a ledger, a clock, and purses on them."""

    def __init__(self, place: Path) -> None:
        self.home, self.now = place / "home", START + 60
        self.ledger = Ledger(place / ".flyball", run="r-1")

    def purse(
        self, *, api_key: ApiKey | None = None, guard: str | None = None, **budget: float
    ) -> BudgetGuard:
        monitor = UsageMonitor(WORK, self.home, wall=lambda: self.now)
        return BudgetGuard(
            payer=WORK,
            budget=BudgetPart(**budget),  # type: ignore[arg-type]
            ledger=self.ledger,
            monitor=monitor,
            guard=guard,
            api_key=api_key,
            wall=lambda: self.now,
        )

    def declare(self, usd: float, name: str = "5h") -> None:
        QuotaBook(self.home, "work").declare(name, usd=usd)

    def spend(self, task: str, usd: float) -> None:
        for step in (Step.CLAIM, Step.WORKTREE, Step.LAUNCH):
            self.ledger.note(task, step)
        self.ledger.note(task, Step.END, end="finished", cost_usd=usd)


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Desk]:
    desk = Desk(tmp_path)
    yield desk
    desk.ledger.close()


async def looked(purse: BudgetGuard) -> BudgetGuard:
    await purse.refresh()
    return purse


def begun(purse: BudgetGuard, *tasks: str) -> list[str]:
    """Those of the tasks that may start now, one after the other."""
    return [task for task in tasks if purse.admit(task, *TASK) is None]


@on_loop
async def test_three_that_fit_one_by_one_do_not_start_together_where_two_fit(desk: Desk) -> None:
    # Nothing is known: each is expected to cost half a dollar, two at worst.
    desk.declare(3.5)
    purse = await looked(desk.purse())
    assert begun(purse, "a", "b", "c", "d") == ["a", "b", "c"]
    purse.release("a", 0.1)
    assert begun(purse, "d") == ["d"]


@on_loop
async def test_after_a_reset_that_held_it_up_a_run_starts_slowly_and_in_order(desk: Desk) -> None:
    desk.declare(100.0)
    purse = await looked(desk.purse())
    assert begun(purse, "a") == ["a"]
    purse.release("a", 92.0)
    desk.now += 1
    assert purse.level is Level.DRAIN
    assert begun(purse, "b", "c", "d", "e") == []
    desk.now = START + 18_000 + 1
    await purse.refresh()
    assert begun(purse, "b", "c", "d", "e") == ["b"]
    refused = purse.refusal("c", *TASK)
    assert refused is not None
    assert "after the reset starts come slowly" in refused.words
    desk.now += 20
    assert begun(purse, "c", "d", "e") == ["c", "d"]
    desk.now += 20
    assert begun(purse, "e") == ["e"]


@on_loop
async def test_a_run_that_comes_after_the_reset_starts_slowly_too(desk: Desk) -> None:
    first = desk.purse()
    first.record_reports([UsageReport(name="5h", fraction=0.97, at=desk.now, resets_at=desk.now + 600)])
    assert "5h window at 97% (reported)" in first.pause
    desk.now += 601
    later = await looked(desk.purse())
    assert later.pause == ""
    assert begun(later, "a", "b") == ["a"]


@on_loop
async def test_a_task_that_was_not_held_up_starts_at_once_after_a_reset(desk: Desk) -> None:
    desk.declare(100.0)
    purse = await looked(desk.purse())
    desk.now = START + 18_000 + 1
    await purse.refresh()
    assert begun(purse, "a", "b", "c") == ["a", "b", "c"]


@on_loop
async def test_a_waiter_is_told_when_an_agent_ends(desk: Desk) -> None:
    desk.declare(2.6)
    purse = await looked(desk.purse())
    assert begun(purse, "a", "b") == ["a"]
    refused = purse.refusal("b", *TASK)
    assert refused is not None
    waiting = asyncio.create_task(purse.wait_for_change(refused))
    await asyncio.sleep(0)
    purse.release("a", 0.01)
    await asyncio.wait_for(waiting, 5)
    assert begun(purse, "b") == ["b"]


@on_loop
async def test_stages_and_reviews_of_finished_work_are_not_held_up_by_a_drain(desk: Desk) -> None:
    desk.declare(100.0)
    purse = await looked(desk.purse(task_usd=95.0))
    purse.release("a", 92.0)
    desk.now += 1
    assert purse.refusal("a", *TASK) is not None
    assert purse.refusal("a", *TASK, finishing=True) is None
    desk.spend("a", 96.0)
    refused = purse.refusal("a", *TASK, finishing=True)
    assert refused is not None
    assert "budget.task_usd allows $95" in refused.words


@on_loop
async def test_an_agent_gets_what_is_left_as_its_ceiling(desk: Desk) -> None:
    purse = desk.purse(task_usd=5.0, run_usd=6.0)
    desk.spend("a", 2.0)
    left = purse.ceiling_for("a")
    assert left is not None
    assert (left.usd, left.key) == (3.0, "budget.task_usd")
    desk.spend("b", 2.5)
    left = purse.ceiling_for("a")
    assert left is not None
    assert (left.usd, left.key) == (1.5, "budget.run_usd")
    assert desk.purse(task_usd=5.0, guard="advisory").ceiling_for("a") is None


@on_loop
async def test_a_run_pauses_at_its_ceiling_while_its_agents_still_run(desk: Desk) -> None:
    woken: list[bool] = []
    purse = await looked(desk.purse(run_usd=1.0))
    purse.told = lambda: woken.append(True)
    assert begun(purse, "a") == ["a"]
    purse.record_progress("a", 0.4, [])
    assert (purse.pause, woken) == ("", [])
    purse.record_progress("a", 1.2, [])
    assert "budget.run_usd allows $1" in purse.pause
    assert woken


@on_loop
async def test_what_a_run_before_it_spent_is_not_this_run_s(desk: Desk) -> None:
    desk.spend("a", 4.0)
    desk.ledger.run = "r-2"
    purse = desk.purse(run_usd=1.0)
    assert (purse.run_usd, purse.pause) == (0.0, "")


@on_loop
async def test_off_looks_at_nothing_and_allows_everything(desk: Desk) -> None:
    desk.declare(0.01)
    purse = await looked(desk.purse(guard="off", run_usd=0.01))
    desk.spend("a", 4.0)
    assert (purse.standings, purse.pause, purse.width(3), purse.refresh_in_s) == ((), "", 3, None)
    assert begun(purse, "a") == ["a"]


@on_loop
async def test_an_api_key_is_charged_only_from_where_the_windows_end(desk: Desk) -> None:
    key = ApiKey(allowed=True, variable="OPENAI_API_KEY", value="sk-1", words="loud")
    desk.declare(100.0)
    purse = await looked(desk.purse(api_key=key))
    assert purse.api_key_variables(*TASK) == {}
    purse.release("a", 99.0)
    desk.now += 1
    assert purse.api_key_variables(*TASK) == {"OPENAI_API_KEY": "sk-1"}
    assert (purse.pause, purse.width(3), begun(purse, "b")) == ("", 3, ["b"])
    assert purse.notes(3)[0] == "loud"


@on_loop
async def test_a_damaged_or_slow_source_holds_starts_and_never_the_loop(desk: Desk) -> None:
    QuotaBook(desk.home, "work").calibrate("5h", used=0.5, spent_usd=5.0, source="ccusage")
    purse = await looked(desk.purse())
    assert "cannot be measured and counts as full" in purse.pause, "only the ledger can be asked here"
