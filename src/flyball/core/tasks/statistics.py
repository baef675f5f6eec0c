"""What a factory's work came to, as a fold over its ledger: pace, cost, waste, and where time went.

Every figure is about *task runs*: from one claim of a task to its end. What an agent spent counts for the run
it was launched in, stages and reviews included; a run that ended merged carries its spend to the merged side,
every other to the side of work that never merged. A run that is still under way is on neither side.

The time of a run is divided among what it stood for: between two entries it waited for what the second
one needed, or worked. ``_STRETCHES`` says which stretch is which; what is not in it is flyball's own time.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from statistics import median
from typing import Final

from flyball.core.tasks.task_run import LedgerEntry, RunPhase, State, Step

_B, _D = RunPhase.BEGUN, RunPhase.DONE
_STRETCHES: Final[Mapping[tuple[Step, RunPhase], str]] = {
    # What an entry ends: the time since the one before.
    (Step.WORKTREE, _B): "a place in the run's width",
    (Step.WORKTREE, _D): "its workspace",
    (Step.LAUNCH, _B): "a slot of the pool",
    (Step.LAUNCH, _D): "the start of its agent",
    (Step.SESSION, _D): "its agent",
    (Step.END, _D): "its agent",
    (Step.STAGE, _D): "its stages",
    (Step.REVIEW, _D): "its review",
    (Step.REBASE, _B): "another landing",
    (Step.GATE, _B): "the gate",
    (Step.GATE, _D): "the gate",
    (Step.ADVANCE, _B): "the gate",
}
_OWN = "flyball itself"
_PAUSE = "a pause after it was {cause}"
_TOLD_AT_ITS_END = frozenset({"ended", "tokens", "cost_usd"})
_ENDS: Final[Mapping[Step, str]] = {Step.MERGED: "merged", Step.BLOCK: "blocked", Step.PARK: "parked"}
UNKNOWN_MODEL = "unknown"


@dataclass(frozen=True, slots=True, kw_only=True)
class SpendTotals:
    tokens: int = 0
    usd: float | None = 0.0
    """As far as it was reported; None: agents worked, and none of them said what it cost."""
    unpriced: int = 0
    """Launches that did not say what they cost."""

    def __add__(self, other: SpendTotals) -> SpendTotals:
        usd, unpriced = (self.usd or 0.0) + (other.usd or 0.0), self.unpriced + other.unpriced
        return SpendTotals(
            tokens=self.tokens + other.tokens, usd=None if unpriced and not usd else usd, unpriced=unpriced
        )

    def divided_by(self, count: int) -> SpendTotals:
        usd = self.usd / count if self.usd is not None else None
        return replace(self, tokens=round(self.tokens / count), usd=usd)


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskRunTotals:
    """One run as the ledger tells it."""

    task: str
    began: float
    ended: float | None = None
    end: str = ""
    """merged, blocked, parked; empty while it is under way or was begun anew."""
    model: str = ""
    launches: int = 0
    spend: SpendTotals = SpendTotals()
    by_model: Mapping[str, SpendTotals] = field(default_factory=dict)
    waits: Mapping[str, float] = field(default_factory=dict)
    """Seconds by what they went to."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ByModel:
    """A run's launches and its merge count for the model that it ended with."""

    merged: int = 0
    launches: int = 0
    spend: SpendTotals = SpendTotals()
    wasted: SpendTotals = SpendTotals()


@dataclass(frozen=True, slots=True, kw_only=True)
class Measures:
    since: float | None
    until: float
    merged: int
    blocked: int
    parked: int
    under_way: int
    over_s: float
    """How long these figures go back."""
    merged_per_hour: float
    median_to_merge_s: float | None
    spend: SpendTotals
    spend_per_merged: SpendTotals | None
    wasted: SpendTotals
    """On runs that are over and did not end merged."""
    waits: Mapping[str, float]
    """Seconds of all runs by what they went to, the longest first."""
    models: Mapping[str, ByModel]


def agent_spend(entry: LedgerEntry) -> SpendTotals | None:
    """What an agent used that ends with this entry; None: no agent ends with it."""
    told = not entry.fields.keys().isdisjoint(_TOLD_AT_ITS_END)
    # The agent of a stage or a review is over before it is known what comes of it.
    ended = entry.mark is RunPhase.DONE if entry.step is Step.END else told
    if entry.step not in (Step.END, Step.STAGE, Step.REVIEW) or not ended:
        return None
    cost = entry.fields.get("cost_usd")
    usd = float(cost) if isinstance(cost, int | float) and math.isfinite(cost) and cost >= 0 else None
    return SpendTotals(tokens=int(entry.fields.get("tokens") or 0), usd=usd, unpriced=int(usd is None))


def build_run_totals(entries: Iterable[LedgerEntry]) -> list[TaskRunTotals]:
    """Every run, in the order of its beginning. Entries come in the order of the ledger."""
    books: dict[str, _TripBuilder] = {}
    found: list[_TripBuilder] = []
    for entry in entries:
        if entry.step is Step.CLAIM or entry.task not in books:
            books[entry.task] = book = _TripBuilder(entry)
            found.append(book)
        else:
            books[entry.task].add(entry)
    return [book.build() for book in found]


def measure(runs: Iterable[TaskRunTotals], *, now: float, since: float | None = None) -> Measures:
    """The figures of all runs that ended since then, and of those that have not."""
    inside = [run for run in runs if since is None or run.ended is None or run.ended >= since]
    over = [run for run in inside if run.ended is not None]
    merged = [run for run in over if run.end == State.MERGED]
    first = since if since is not None else min((run.began for run in inside), default=now)
    waits: dict[str, float] = defaultdict(float)
    for run in inside:
        for what, seconds in run.waits.items():
            waits[what] += seconds
    lengths = [run.ended - run.began for run in merged if run.ended is not None]
    return Measures(
        since=since,
        until=now,
        merged=len(merged),
        blocked=sum(run.end == State.BLOCKED for run in over),
        parked=sum(run.end == State.PARKED for run in over),
        under_way=len(inside) - len(over),
        over_s=now - first,
        merged_per_hour=len(merged) / max((now - first) / 3600.0, 1 / 3600.0) if merged else 0.0,
        median_to_merge_s=median(lengths) if lengths else None,
        spend=_total_spend(inside),
        spend_per_merged=_total_spend(merged).divided_by(len(merged)) if merged else None,
        wasted=_total_spend(run for run in over if run.end != State.MERGED),
        waits=dict(sorted(waits.items(), key=lambda item: -item[1])),
        models=_models(inside),
    )


def _total_spend(runs: Iterable[TaskRunTotals]) -> SpendTotals:
    return sum((run.spend for run in runs), SpendTotals())


def _models(runs: Iterable[TaskRunTotals]) -> dict[str, ByModel]:
    found: dict[str, ByModel] = defaultdict(ByModel)
    for run in runs:
        wasted = run.ended is not None and run.end != State.MERGED
        for model, spend in run.by_model.items():
            found[model] = replace(
                found[model],
                spend=found[model].spend + spend,
                wasted=found[model].wasted + (spend if wasted else SpendTotals()),
            )
        if run.model:
            last = found[run.model]
            merged = last.merged + (run.end == State.MERGED)
            found[run.model] = replace(last, merged=merged, launches=last.launches + run.launches)
    return dict(sorted(found.items(), key=lambda item: (-(item[1].spend.usd or 0.0), item[0])))


class _TripBuilder:
    """A run while its entries are read."""

    def __init__(self, first: LedgerEntry) -> None:
        self.task, self.began, self.last = first.task, first.at, first.at
        self.ended: float | None = None
        self.end, self.model, self.launches = "", "", 0
        self.by_model: dict[str, SpendTotals] = defaultdict(SpendTotals)
        self.waits: dict[str, float] = defaultdict(float)
        self.cause = ""

    def add(self, entry: LedgerEntry) -> None:
        self._spend_time(entry)
        if entry.step is Step.LAUNCH and entry.mark is RunPhase.DONE:
            self.launches += 1
            self.model = entry.fields.get("model") or UNKNOWN_MODEL
        if (spent := agent_spend(entry)) is not None:
            # What the runtime says it used is surer than what it was asked for.
            model = entry.fields.get("model") or self.model or UNKNOWN_MODEL
            self.by_model[model] += spent
            if entry.step is Step.END:
                self.model = model
        if entry.step is Step.BACK:
            self.cause = str(entry.fields.get("cause", "sent back"))
        if entry.step is not Step.TELL:  # which may come after the end
            self.end = _ENDS.get(entry.step, "")
            self.ended = entry.at if self.end else None

    def _spend_time(self, entry: LedgerEntry) -> None:
        if self.ended is not None:
            # A person let it wait; that counts for no stretch.
            self.last = entry.at
            return
        # A clock that was set back takes nothing away.
        seconds, self.last = max(0.0, entry.at - self.last), entry.at
        what = _STRETCHES.get((entry.step, entry.mark), _OWN)
        if self.cause and (entry.step, entry.mark) == (Step.WORKTREE, RunPhase.BEGUN):
            what, self.cause = _PAUSE.format(cause=self.cause), ""
        if seconds:
            self.waits[what] += seconds

    def build(self) -> TaskRunTotals:
        return TaskRunTotals(
            task=self.task,
            began=self.began,
            ended=self.ended,
            end=self.end,
            model=self.model,
            launches=self.launches,
            spend=sum(self.by_model.values(), SpendTotals()),
            by_model=dict(self.by_model),
            waits=dict(self.waits),
        )
