"""What the ledgers of this machine's projects say was spent: every agent's own cost, at its end.

The last source, and the floor under all others: it knows of agents that flyball started and of nothing else,
so it is an estimate of what the account spent; but that much was spent for certain.

An entry belongs to the account that its launch was written down with.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from pathlib import Path

from flyball.core.budget.estimate import Estimate, ForecastOutcome, PastRun, Quantiles, RunHistory
from flyball.core.budget.usage_windows import Spend, UsageCertainty, UsageItem
from flyball.core.signals import End
from flyball.core.tasks.task_run import LedgerEntry, Step
from flyball.errors import FlyballError
from flyball.factory.budget.port import KEPT_S
from flyball.factory.project.registry import ProjectRegistry
from flyball.factory.state.ledger import Ledger
from flyball.factory.state.run_folders import STATE

_COUNTED_ENDS = frozenset({End.FINISHED.value, End.FAILED.value})
"""What a limit or a person cut short says nothing about what such work takes."""
API_KEY = "api-key"
"""How a launch is marked that drew on no window, because its calls were paid for one by one."""


@dataclass(slots=True)
class _Story:
    """One ledger, read so far."""

    after: int = 0
    who: dict[str, tuple[str, str]] = field(default_factory=dict)
    """By task, as many run at once: the account of its last launch, and how its last agent is billed."""
    pieces: list[tuple[str, UsageItem]] = field(default_factory=list)

    def read(self, ledger: Ledger, oldest: float) -> None:
        self.pieces = [each for each in self.pieces if each[1].end >= oldest]
        for entry in ledger.launches(after=self.after):
            self.after = entry.id
            account, billing = self.who.get(entry.task, ("", ""))
            if entry.step is Step.LAUNCH or "errand" in entry.fields:
                self.who[entry.task] = (entry.fields.get("account", account), entry.fields.get("billing", ""))
            elif entry.at >= oldest and billing != API_KEY and (cost := entry_cost_usd(entry)):
                self.pieces.append((account, UsageItem(entry.at, entry.at, cost)))


class LedgerUsage:
    """Remembers between looks. One look at a time."""

    name = "ledger"

    def __init__(self, home: Path, account: str, own: Path | None = None) -> None:
        self._registry, self._account = ProjectRegistry(home), account
        self._own = own
        self._stories: dict[Path, _Story] = {}

    def look(self, now: float) -> Spend:
        try:
            states = {entry.path / STATE for entry in self._registry.list().entries}
        except FlyballError:
            states = set()
        if self._own is not None:
            states.add(self._own)
        for state in states:
            story = self._stories.setdefault(state, _Story())
            try:
                ledger = Ledger(state, read_only=True)
            except (FlyballError, OSError):
                # A project that is gone, or has never run.
                continue
            try:
                story.read(ledger, now - KEPT_S)
            except FlyballError:
                continue
            finally:
                ledger.close()
        pieces = [
            piece
            for story in self._stories.values()
            for account, piece in story.pieces
            if account == self._account
        ]
        return Spend(self.name, pieces, UsageCertainty.ESTIMATED, whole=False)


def entry_cost_usd(entry: LedgerEntry) -> float:
    """What a ledger's entry says was paid; nothing where it says something that cannot be."""
    cost = entry.fields.get("cost_usd")
    sound = isinstance(cost, int | float) and math.isfinite(cost) and cost > 0
    return float(cost) if sound else 0.0  # type: ignore[arg-type]


# -- what it teaches --------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Launched:
    at: float
    kind: str
    model: str
    expected: Estimate | None


class Lessons:
    """Estimates from a project's own launches, and how good those were that were made for them."""

    def __init__(self) -> None:
        self.experience = RunHistory()
        self.costs: list[ForecastOutcome] = []
        self.durations: list[ForecastOutcome] = []
        self._open: dict[str, _Launched] = {}
        self._after = 0

    def learn(self, ledger: Ledger) -> None:
        for entry in ledger.launches(after=self._after):
            self._after = entry.id
            if entry.step is Step.LAUNCH:
                self._open[entry.task] = _parse_launch(entry)
            elif entry.step is Step.END and (launched := self._open.pop(entry.task, None)) is not None:
                self._add_run(launched, entry)

    def _add_run(self, launched: _Launched, entry: LedgerEntry) -> None:
        if entry.fields.get("end") not in _COUNTED_ENDS:
            return
        cost, duration_s = entry_cost_usd(entry) or None, max(0.0, entry.at - launched.at)
        self.experience.add(
            PastRun(kind=launched.kind, model=launched.model, cost_usd=cost, duration_s=duration_s)
        )
        if launched.expected is not None:
            self.durations.append(ForecastOutcome(launched.expected.duration_s, duration_s))
            if cost is not None:
                self.costs.append(ForecastOutcome(launched.expected.cost_usd, cost))


def expected_fields(estimate: Estimate) -> dict[str, object]:
    """An estimate as it goes into the ledger, beside its launch."""
    return {
        "expected_usd": [estimate.cost_usd.p50, estimate.cost_usd.p90],
        "expected_s": [estimate.duration_s.p50, estimate.duration_s.p90],
    }


def _parse_launch(entry: LedgerEntry) -> _Launched:
    fields = entry.fields
    given = [fields.get(name) for name in ("expected_usd", "expected_s")]
    pairs = [tuple(map(float, each)) if isinstance(each, list) and len(each) == 2 else () for each in given]
    expected = (
        Estimate(cost_usd=Quantiles(*pairs[0]), duration_s=Quantiles(*pairs[1])) if all(pairs) else None
    )
    return _Launched(entry.at, str(fields.get("kind", "")), str(fields.get("model", "")), expected)
