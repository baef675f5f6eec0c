"""How an account's windows stand now, kept up to date without holding a run up.

Usage is looked at in a thread, and no more often than it has to be: where no window has a ceiling and no
provider reported one, there is nothing to look for. What agents report while they run counts at once, and
goes into the state that all processes share; what others measured of the account comes from there.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from flyball.core.budget.usage_windows import Spend, UsageItem, UsageReport, WindowUsage
from flyball.errors import StoreError
from flyball.factory.budget.port import BillingAccount, measure_windows
from flyball.factory.budget.provider_reports import ProviderReport, ProviderReports
from flyball.factory.budget.quotas import QuotaBook
from flyball.factory.budget.shared_windows import SharedWindows
from flyball.factory.budget.sources import Usage, UsageReading, open_usage
from flyball.factory.state.blocking_calls import run_in_thread

FRESH_S = 30.0
"""How long a look is good for; less once an agent has ended."""
IDLE_FRESH_S = 300.0
"""The same while no agent of ours runs: a run that waits for a reset need not look twice a minute."""
_AGAIN_S = 5.0


class UsageMonitor:
    def __init__(
        self,
        payer: BillingAccount,
        home: Path,
        *,
        own: Path | None = None,
        usage: Usage | None = None,
        shared: SharedWindows | None = None,
        wall: Callable[[], float] = time.time,
    ) -> None:
        """``shared``: where the windows of the account are known to all processes; None: only in our file."""
        self._wall, self._shared = wall, shared
        self.book = QuotaBook(home, payer.name)
        self.terms = self.book.terms()
        self._file = ProviderReports(home, payer.name)
        self.told = self._file.read(wall())
        self._kept = tuple(self.told.reports.values()) if shared is not None else ()
        """What an older flyball kept in our file, until the others have been told."""
        self.read_shared()
        self._usage = usage or open_usage(payer, home, own=own)
        self.seen: UsageReading | None = None
        self._stale_at = 0.0
        self._rest_s = FRESH_S
        self._since: list[UsageItem] = []
        """What our own agents cost since the last look."""
        self._looking: asyncio.Task[None] | None = None
        self._telling: set[asyncio.Task[None]] = set()
        self.changed: Callable[[], None] = lambda: None
        """Called when a look has come in."""

    @property
    def has_limits(self) -> bool:
        """Is there a window that usage could say anything about?"""
        return any(each.ceiling_usd is not None for each in self.terms) or bool(self.told.reports)

    @property
    def standings(self) -> tuple[WindowUsage, ...]:
        """Before the first look no window is said to be beyond measure."""
        terms = self.terms if self.seen is not None or not self.has_limits else ()
        return measure_windows(terms, self.told.reports, self._spend(), self._wall())

    def _spend(self) -> Spend | None:
        """What was seen, and what our own agents have cost since."""
        if self.seen is None or self.seen.spend is None:
            return None
        spend = _with(self.seen.spend, self._since)
        return spend if spend.floor is None else replace(spend, floor=_with(spend.floor, self._since))

    def record_reports(self, reports: Iterable[UsageReport]) -> bool:
        """Take note of what a provider reported; True if it is new."""
        heard = tuple(reports)
        new = self.told.record(heard)
        if new and self._shared is None:
            self.save()
        elif new:
            self._tell_others(heard)
        return new

    def read_shared(self) -> bool:
        """Take note of what others measured; True if any of it is new."""
        return self._shared is not None and self.told.record(self._shared.read(self._wall()))

    def _tell_others(self, reports: tuple[UsageReport, ...]) -> None:
        """Beside the run: a state that cannot be written now holds nothing up."""
        shared, wall_s = self._shared, self._wall()

        def tell() -> None:
            with suppress(StoreError):
                if shared is not None:
                    shared.tell(reports, wall_s)

        try:
            telling = asyncio.get_running_loop().create_task(run_in_thread(tell))
        except RuntimeError:
            tell()
        else:
            self._telling.add(telling)
            telling.add_done_callback(self._telling.discard)

    def save(self) -> None:
        """Keep what held a run up, and the windows where they are not shared."""
        told = self.told if self._shared is None else ProviderReport(held_until=self.told.held_until)
        self._file.write(told, self._wall())

    # -- looking ----------------------------------------------------------------------------------------

    def refresh_now(self) -> UsageReading:
        """Ask the sources, and block until they have answered."""
        now = self._wall()
        self._stale_at = now + self._rest_s
        seen = self._usage.look(now)
        self._since = [each for each in self._since if each.end >= now]
        self.seen = seen
        return seen

    async def refresh(self, *, busy: bool = True) -> None:
        """A fresh look where one is due. The first is waited for; later ones come in when they are done.
        ``busy``: something is being spent now."""
        idle = self._looking is None or self._looking.done()
        self._rest_s = FRESH_S if busy else IDLE_FRESH_S
        looks = self.has_limits or self._shared is not None
        if looks and idle and self._wall() >= self._stale_at:
            self._looking = asyncio.create_task(self._refresh())
        if self._looking is not None and self.seen is None:
            await asyncio.shield(self._looking)

    async def _refresh(self) -> None:
        await run_in_thread(self._look)
        self.changed()

    def _look(self) -> None:
        self._stale_at = self._wall() + self._rest_s
        if self._shared is not None and self._kept:
            with suppress(StoreError):
                self._shared.tell(self._kept, self._wall())
            self._kept = ()
        self.read_shared()
        if self.has_limits:
            self.refresh_now()

    def add_cost(self, usd: float) -> None:
        """An agent of ours is over and cost this: known before any source says so."""
        now = self._wall()
        self._since.append(UsageItem(now, now, usd))
        self._stale_at = min(self._stale_at, now + _AGAIN_S)

    @property
    def due_in_s(self) -> float | None:
        """When the next look is due, or a window ends; None: never."""
        if not self.has_limits:
            return None
        ends = (each.end for each in self.standings if each.enforced and each.end is not None)
        return min([self._stale_at, *ends]) - self._wall()


def _with(spend: Spend, pieces: Sequence[UsageItem]) -> Spend:
    return replace(spend, pieces=[*spend.pieces, *pieces]) if pieces else spend
