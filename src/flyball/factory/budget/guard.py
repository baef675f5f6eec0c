"""What a run asks about money: may this start, how many at once, must it pause, what was spent.

The guard answers; the run acts. How full the account's windows are comes from the monitor, what agents cost
from the ledger and from the agents themselves; what follows is decided in ``core/budget/limits.py``.

    enforce    what it says is done
    advisory   it is only said
    off        nothing is measured

Three ceilings, three ways to meet them:

    a window at drain   nothing is started until it resets; at stop the agents are ended and the run pauses
    budget.run_usd      the same, and no reset helps: it pauses
    budget.task_usd     an agent gets what is left of it as its own ceiling; then the task is blocked

The probable cost of an agent that may start is reserved until it is over, so that three that fit one by one
do not start together where only two fit.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace

from flyball.core.budget.estimate import Estimate
from flyball.core.budget.limits import (
    RUN,
    TASK,
    Asked,
    BudgetAction,
    Level,
    Refusal,
    SlowStart,
    Thresholds,
    allowed_width,
    budget_action,
    preflight,
    worst,
    worst_level,
)
from flyball.core.budget.usage_windows import UsageReport, WindowUsage
from flyball.core.pool.verdict import span_words
from flyball.core.tasks.statistics import SpendTotals, agent_spend
from flyball.factory.budget.api_key import ApiKey
from flyball.factory.budget.ledger_usage import Lessons
from flyball.factory.budget.monitor import UsageMonitor
from flyball.factory.budget.port import BillingAccount
from flyball.factory.project.config import BudgetPart
from flyball.factory.state.ledger import Ledger

_LONGEST_WAIT_S = 30.0
_WIDEST = 64
"""A slow start that allows so many more holds nothing back."""


def budget_thresholds(budget: BudgetPart) -> Thresholds:
    return Thresholds(warn=budget.warn, drain=budget.drain, stop=budget.stop)


@dataclass(frozen=True, slots=True)
class _Running:
    """What an agent under way was expected to cost, and what it has cost as far as it says."""

    expected_usd: float = 0.0
    cost_usd: float = 0.0

    @property
    def due_usd(self) -> float:
        """What it will probably cost yet."""
        return max(0.0, self.expected_usd - self.cost_usd)

    @property
    def whole_usd(self) -> float:
        """What it will probably have cost in the end. No window has any of it in it yet."""
        return max(self.expected_usd, self.cost_usd)


@dataclass(frozen=True, slots=True)
class Left:
    """What is left of a ceiling, and the key that set it."""

    usd: float
    key: str


class BudgetGuard:
    """Of one run. For one loop."""

    def __init__(
        self,
        *,
        payer: BillingAccount,
        budget: BudgetPart,
        ledger: Ledger,
        monitor: UsageMonitor | None,
        guard: str | None = None,
        api_key: ApiKey | None = None,
        wall: Callable[[], float] = time.time,
    ) -> None:
        """``monitor`` None: the windows are not measured."""
        self.payer, self._budget, self._ledger, self._wall = payer, budget, ledger, wall
        self.guard = budget_action(guard, budget.guard)
        self.thresholds = budget_thresholds(budget)
        self.api_key = api_key or ApiKey()
        self.lessons = Lessons()
        self._monitor = monitor if self.guard is not BudgetAction.OFF else None
        self._running: dict[str, _Running] = {}
        self._run_spend, self._after = SpendTotals(), 0
        self._slow: SlowStart | None = None
        self._news = asyncio.Event()
        self.standings: tuple[WindowUsage, ...] = ()
        self.told: Callable[[], None] = lambda: None
        """Called when something has become known."""
        if self._monitor is not None:
            self._monitor.changed = self._on_refresh

    # -- looking ----------------------------------------------------------------------------------------

    async def refresh(self) -> None:
        """How the windows stand. Nothing may start before the first look."""
        if self._monitor is not None:
            await self._monitor.refresh(busy=bool(self._running))
            self._recount()

    def record_progress(self, task: str, cost_usd: float | None, reports: Iterable[UsageReport]) -> None:
        """What an agent under way says of itself and of the account."""
        before = self._running.get(task)
        if before is not None and cost_usd is not None and cost_usd > before.cost_usd:
            self._running[task] = replace(before, cost_usd=cost_usd)
        if self.record_reports(reports) or self.pause:
            self.told()

    def record_reports(self, reports: Iterable[UsageReport]) -> bool:
        new = self._monitor is not None and self._monitor.record_reports(reports)
        if new:
            self._recount()
            self._tell_waiters()
        return new

    def _on_refresh(self) -> None:
        self._recount()
        self._tell_waiters()
        self.told()

    def _recount(self) -> None:
        if self._monitor is not None:
            self.standings = self._monitor.standings
            self._watch_resets(self._monitor)

    def _watch_resets(self, monitor: UsageMonitor) -> None:
        """After a reset that was waited for, all who waited must not start at once."""
        held, now = self.hold, self._wall()
        if held is not None:
            if (held.until or 0.0) > monitor.told.held_until:
                monitor.told.held_until = held.until or 0.0
                monitor.save()
        elif monitor.told.held_until and now >= monitor.told.held_until:
            self._slow = SlowStart(now)
            monitor.told.held_until = 0.0
            monitor.save()

    def _tell_waiters(self) -> None:
        waited_for, self._news = self._news, asyncio.Event()
        waited_for.set()

    async def wait_for_change(self, refused: Refusal) -> None:
        """Until it is worth asking again."""
        left_s = refused.until - self._wall() if refused.until is not None else _LONGEST_WAIT_S
        with suppress(TimeoutError):
            await asyncio.wait_for(self._news.wait(), min(max(0.05, left_s), _LONGEST_WAIT_S))

    @property
    def refresh_in_s(self) -> float | None:
        """When a run should look again though nothing has happened; None: never."""
        if self._monitor is None:
            return None
        due = [self._monitor.due_in_s] if self._monitor.due_in_s is not None else []
        if self._slow is not None:
            due.append(self._slow.wait_s(self._wall()))
        return max(0.2, min(due)) if due else None

    # -- the answers --------------------------------------------------------------------------------------

    @property
    def enforces(self) -> bool:
        return self.guard is BudgetAction.ENFORCE

    @property
    def level(self) -> Level:
        return worst_level(self.standings, self.thresholds)

    def width(self, width: int) -> int:
        """How many agents at once the money allows."""
        if not self.enforces or self.api_key.allowed:
            return width
        return allowed_width(width, self.standings, self.thresholds)

    @property
    def pause(self) -> str:
        """Why the run cannot go on at all; empty while it can."""
        limit, fullest = self._budget.run_usd, worst(self.standings)
        if self.enforces and limit is not None and self.run_usd >= limit:
            return f"budget: this run has cost ${self.run_usd:.2f}; budget.run_usd allows ${limit:g}"
        stopped = self.enforces and self.level is Level.STOP and not self.api_key.allowed
        return f"budget: {self._standing_words(fullest)}" if stopped and fullest is not None else ""

    @property
    def hold(self) -> Refusal | None:
        """Why nothing may be started now, whatever it is."""
        if not self.enforces or self.api_key.allowed:
            return None
        common = [each for each in self.standings if not each.model]
        return _budget(preflight(common, Asked(), self.thresholds, self._wall()))

    def refusal(
        self, task: str, kind: str, model: str, *, finishing: bool = False, beside_usd: float = 0.0
    ) -> Refusal | None:
        """Why an agent for this task may not start now; None: it may.

        ``finishing``: a stage or a review of work that is done. It is part of what runs, so no window holds
        it up before stop. ``beside_usd``: what others are expected to cost that are about to start.
        """
        if not self.enforces:
            return None
        found = self._over_a_ceiling(task)
        if found is None and not self.api_key.allowed and not finishing:
            found = self._unfit(kind, model, beside_usd) or self._too_soon()
        return _budget(found)

    def _over_a_ceiling(self, task: str) -> Refusal | None:
        limit, run_limit = self._budget.task_usd, self._budget.run_usd
        if limit is not None and self.task_usd(task) >= limit:
            spent = f"{task} has cost ${self.task_usd(task):.2f}"
            return Refusal(words=f"{spent}; budget.task_usd allows ${limit:g}", window=TASK)
        if run_limit is not None and self._run_left(run_limit) <= 0:
            return Refusal(words=f"budget.run_usd (${run_limit:g}) is reserved by what runs", window=RUN)
        return None

    def _unfit(self, kind: str, model: str, beside_usd: float = 0.0) -> Refusal | None:
        expected = self.estimate(kind, model)
        asked = Asked(
            model=model,
            cost_usd=expected.cost_usd.p90,
            duration_s=expected.duration_s.p50,
            reserved_usd=beside_usd + sum(each.whole_usd for each in self._running.values()),
        )
        return preflight(self.standings, asked, self.thresholds, self._wall())

    def _too_soon(self) -> Refusal | None:
        wait_s = self._slow.wait_s(self._wall()) if self._slow is not None else 0.0
        if wait_s <= 0:
            return None
        words = f"after the reset starts come slowly, the next in {span_words(wait_s)}"
        return Refusal(words=words, window="reset", until=self._wall() + wait_s)

    def api_key_variables(self, kind: str, model: str) -> Mapping[str, str]:
        """The variables of the API key, where this launch is to be paid for with it."""
        if self.api_key.allowed and self.enforces and self._unfit(kind, model) is not None:
            return self.api_key.variables
        return {}

    # -- what is under way ----------------------------------------------------------------------------------

    def estimate(self, kind: str, model: str) -> Estimate:
        self.lessons.learn(self._ledger)
        return self.lessons.experience.estimate(kind, model)

    def admit(self, task: str, kind: str, model: str, *, finishing: bool = False) -> Refusal | None:
        """None: it may start, and its probable cost is reserved until ``release``."""
        expected, refused = self.estimate(kind, model), self.refusal(task, kind, model, finishing=finishing)
        if refused is None:
            self.reserve(task, expected)
        return refused

    def reserve(self, task: str, expected: Estimate) -> None:
        self._running[task] = _Running(expected.cost_usd.p50)
        if self._slow is not None:
            slow = replace(self._slow, started=self._slow.started + 1)
            self._slow = None if slow.is_over(self._wall(), _WIDEST) else slow

    def release(self, task: str, cost_usd: float | None = None) -> None:
        """It is over, and its cost is in the ledger or will be in a moment."""
        self._running.pop(task, None)
        if self._monitor is not None and cost_usd:
            self._monitor.add_cost(cost_usd)
        self._recount()
        self._tell_waiters()

    def ceiling_for(self, task: str) -> Left | None:
        """What one agent may cost at most; None: as much as it likes."""
        budget, left = self._budget, []
        if budget.task_usd is not None:
            left.append(Left(budget.task_usd - self.task_usd(task), "budget.task_usd"))
        if budget.run_usd is not None:
            # What was reserved for it is its own.
            own = self._running.get(task, _Running()).due_usd
            left.append(Left(self._run_left(budget.run_usd) + own, "budget.run_usd"))
        tightest = min(left, key=lambda each: each.usd, default=None)
        return replace(tightest, usd=max(0.01, tightest.usd)) if tightest and self.enforces else None

    def task_usd(self, task: str) -> float:
        """What a task has cost so far."""
        record, running = self._ledger.records.get(task), self._running.get(task, _Running())
        return ((record.spent.cost_usd if record else None) or 0.0) + running.cost_usd

    @property
    def run_usd(self) -> float:
        """What this run has cost so far, as far as its agents say."""
        return (self.run_spend.usd or 0.0) + sum(each.cost_usd for each in self._running.values())

    @property
    def run_spend(self) -> SpendTotals:
        """What those agents of this run used that are over."""
        for entry in self._ledger.launches(after=self._after):
            self._after = entry.id
            spent = agent_spend(entry) if entry.run == self._ledger.run else None
            self._run_spend += spent if spent is not None else SpendTotals()
        return self._run_spend

    def _run_left(self, limit: float) -> float:
        """What the run may still cost, beside what its agents are expected to."""
        return limit - self.run_usd - sum(each.due_usd for each in self._running.values())

    # -- words ----------------------------------------------------------------------------------------------

    def notes(self, width: int) -> list[str]:
        """What a person should know about the money now."""
        fullest = worst(self.standings)
        said = [self.api_key.words] if self.api_key.words else []
        if fullest is not None and self.level >= Level.WARN:
            said.append(f"budget: {self._standing_words(fullest)}; {self._so(width)}")
        return said

    def _so(self, width: int) -> str:
        if not self.enforces:
            return "nothing is done about it (advisory)"
        if self.api_key.allowed:
            return "goes on with the API key"
        allowed = self.width(width)
        return "nothing is started" if allowed == 0 else f"{allowed} at once instead of {width}"

    def _standing_words(self, standing: WindowUsage) -> str:
        return f"{self.payer.name}: {standing.words()}, {standing.end_words(self._wall())}"


def _budget(refused: Refusal | None) -> Refusal | None:
    return replace(refused, words=f"budget: {refused.words}") if refused is not None else None
