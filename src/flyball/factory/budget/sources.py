"""What an account spent: the sources are asked in their order, and one that contradicts itself is not
believed.

    ccusage -> transcripts -> the ledgers

What was spent until the last look lies in the past: a source that now tells half of it, or twice, is
broken, and so is one that tells more since then than could be spent. The next one is asked, and each that
could not be asked is named with the reason. The ledgers are the floor under every answer.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from flyball.core.budget.usage_windows import Spend
from flyball.errors import FlyballError
from flyball.factory.budget.ccusage import Ccusage
from flyball.factory.budget.ledger_usage import LedgerUsage
from flyball.factory.budget.port import KEPT_S, BillingAccount, UsageSource, UsageUnknown
from flyball.factory.budget.transcripts import Transcripts

_SLACK_USD = 50.0
_MOST_PER_MIN = 20.0
"""No run spends more than this, whatever its width."""


@dataclass(frozen=True, slots=True)
class UsageReading:
    """One look at what an account spent."""

    at: float
    spend: Spend | None
    """None: no source could say anything at all."""
    silent: Sequence[str] = ()
    """Sources that could not say, each with why."""

    @property
    def source(self) -> str:
        return self.spend.source if self.spend is not None else "none"


class Usage:
    """Of one account. One look at a time, in a thread."""

    def __init__(self, sources: Sequence[UsageSource], ledgers: UsageSource) -> None:
        self._sources, self._ledgers = sources, ledgers
        self._before: dict[str, tuple[float, Spend]] = {}

    def look(self, now: float) -> UsageReading:
        silent: list[str] = []
        floor = self._try_source(self._ledgers.look, now, silent)
        for source in self._sources:
            spend = self._try_source(partial(self._checked_spend, source), now, silent)
            if spend is not None:
                return UsageReading(now, replace(spend, floor=floor), silent)
        return UsageReading(now, floor, silent)

    @staticmethod
    def _try_source(look: Callable[[float], Spend], now: float, silent: list[str]) -> Spend | None:
        try:
            return look(now)
        except (FlyballError, OSError) as error:
            silent.append(str(error))
            return None

    def _checked_spend(self, source: UsageSource, now: float) -> Spend:
        spend = source.look(now)
        known = self._before.get(spend.source)
        if known is not None:
            then, before = known
            oldest = now - KEPT_S + 3600.0
            past, told = before.within(oldest, then).value, spend.within(oldest, then).value
            if told < past / 2 - _SLACK_USD / 100 or told > past * 2 + _SLACK_USD:
                raise UsageUnknown(f"{spend.source} contradicts itself: ${past:.2f} were ${told:.2f} later")
            since = spend.within(then, now + 1).value
            if since > _SLACK_USD + _MOST_PER_MIN * max(0.0, now - then) / 60:
                raise UsageUnknown(f"{spend.source} jumped by ${since:.2f}, which cannot be")
        self._before[spend.source] = (now, spend)
        return spend


class _Unpriced:
    """In the place of all sources, where the runtime reports no dollars."""

    name = "none"

    def __init__(self, why: str) -> None:
        self.why = why

    def look(self, now: float) -> Spend:  # noqa: ARG002 - part of the port
        raise UsageUnknown(self.why)


def open_usage(payer: BillingAccount, home: Path, *, own: Path | None = None) -> Usage:
    """``own`` is the state folder of the project that asks, registered or not."""
    folder = payer.folder
    sources: list[UsageSource] = [Ccusage(folder), Transcripts(folder)] if folder is not None else []
    if payer.unpriced:
        return Usage((), _Unpriced(payer.unpriced))
    return Usage(sources, LedgerUsage(home, payer.name, own))
