"""The usage windows of accounts as the state knows them, for those who tell and those who ask.

Each pool keeps the newest word on the windows of the accounts that are spent from in it
(core/pool/account_windows.py), and admission keeps to that. Here stands what is around it:

    WindowTeller      tells a pool, and every other pool that draws on the same account, what is news
    account_windows   the newest word of all pools, by account: what is shown, and what the factory goes by

What was said travels as durations and is kept on the store's clock, so machines need not agree on the time.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from flyball.core.budget.usage_windows import UsageReport
from flyball.core.pool.account_windows import UsageHold, current_windows, usage_hold
from flyball.core.pool.settings import RESERVED
from flyball.core.pool.verdict import span_words
from flyball.core.signals import Signal, SignalKind, UsageCertainty, WindowReading
from flyball.stores.port import Store
from flyball.stores.snapshot import PoolSnapshot, Snapshot

SAME_S = 60.0
"""The same figure is told again after this long, so that its age is right."""
SAME_RESET_S = 120.0
"""Resets are told in whole seconds or minutes, and counted from one answer to the next."""
KEPT = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class AccountWindowStatus:
    """One usage window of an account as it is known now."""

    account: str
    """Empty: the account that the pool stands for."""
    pool: str
    name: str
    used: float
    """The part of it that is used; it may be above 1."""
    certainty: str
    """How that is known: reported, measured or estimated."""
    measured_s_ago: float
    resets_in_s: float | None
    """None: it was not said."""
    over_in_s: float
    """Until then the figure counts: the reset, or the longest that such a window can last."""

    def words(self) -> str:
        """
        >>> AccountWindowStatus(
        ...     account="", pool="p", name="5h", used=0.72, certainty="reported", measured_s_ago=120.0,
        ...     resets_in_s=4200.0, over_in_s=4200.0,
        ... ).words()
        '72 % of 5h used, resets in 70 min (reported 2 min ago)'
        """
        resets = f"resets in {span_words(self.resets_in_s)}" if self.resets_in_s is not None else ""
        when = resets or f"reset not known, in {span_words(self.over_in_s)} at the latest"
        said = f"{self.certainty} {span_words(self.measured_s_ago)} ago"
        return f"{self.used * 100:.0f} % of {self.name} used, {when} ({said})"


def pool_windows(pool: PoolSnapshot, now: float) -> tuple[AccountWindowStatus, ...]:
    """What one pool knows."""
    return tuple(
        AccountWindowStatus(
            account=each.account,
            pool=pool.name,
            name=each.name,
            used=each.fraction,
            certainty=each.certainty.value,
            measured_s_ago=max(0.0, now - each.at),
            resets_in_s=each.resets_at - now if each.resets_at is not None else None,
            over_in_s=each.over_at - now,
        )
        for each in current_windows(pool.memory.windows, now)
    )


def account_windows(snapshot: Snapshot, account: str | None = None) -> tuple[AccountWindowStatus, ...]:
    """The newest word on each window of each account, over all pools; of one account where it is named."""
    found: dict[tuple[str, str], AccountWindowStatus] = {}
    for pool in snapshot.pools:
        if pool.name.startswith(RESERVED):
            continue
        for each in pool_windows(pool, snapshot.now):
            # Where no account was named the pool stands for one.
            key = (each.account or f"pool {each.pool}", each.name)
            known = found.get(key)
            if account in (None, each.account) and (
                known is None or each.measured_s_ago < known.measured_s_ago
            ):
                found[key] = each
    return tuple(found[key] for key in sorted(found))


def pool_hold(pool: PoolSnapshot, now: float) -> UsageHold | None:
    return usage_hold(pool.memory.windows, pool.settings, pool=pool.name, now=now)


class WindowTeller:
    """Tells pools what answers say about usage windows. Safe to share between threads."""

    def __init__(self, report: Callable[[str, Signal], None], store: Callable[[], Store]) -> None:
        self._report, self._store = report, store
        self._told: dict[tuple[str, str, str], tuple[WindowReading, float]] = {}
        self._lock = threading.Lock()

    def tell(self, pool: str, readings: Iterable[WindowReading]) -> None:
        """What is news, to this pool and to all that draw on the same account. Raises StoreError."""
        news = self._news(pool, readings)
        if not news:
            return
        for other in sorted({pool, *self._siblings(pool, news)}):
            self._report(other, Signal(SignalKind.OK, windows=news))

    def tell_reports(self, pool: str, account: str, reports: Iterable[UsageReport], *, wall_s: float) -> None:
        """The same for what an agent's output said, by the wall clock."""
        self.tell(pool, [reading_of(each, account=account, wall_s=wall_s) for each in reports])

    def _news(self, pool: str, readings: Iterable[WindowReading]) -> tuple[WindowReading, ...]:
        now, news = time.monotonic(), []
        with self._lock:
            for each in readings:
                key = (pool, each.account, each.name)
                known = self._told.get(key)
                if known is None or _is_news(each, known[0], now - known[1]):
                    if len(self._told) >= KEPT:
                        self._told.pop(next(iter(self._told)))
                    self._told[key] = (each, now)
                    news.append(each)
        return tuple(news)

    def _siblings(self, pool: str, news: Iterable[WindowReading]) -> Iterable[str]:
        """Pools of the same account: those that have heard of it, and the families of one pool."""
        accounts = {each.account for each in news} - {""}
        pools = {each.name: each for each in self._store().snapshot().pools}
        for name, each in pools.items():
            families = {name, *(f"{name}:{family}" for family in each.settings.families)} & pools.keys()
            if pool in families:
                yield from families
            if accounts & {window.account for window in each.memory.windows}:
                yield name


def reading_of(report: UsageReport, *, account: str, wall_s: float) -> WindowReading:
    """What was said by the wall clock, as durations."""
    age_s = max(0.0, wall_s - report.at)
    resets_in_s = report.resets_at - wall_s + age_s if report.resets_at is not None else None
    return WindowReading(report.name, report.fraction, resets_in_s, account, UsageCertainty.REPORTED, age_s)


def report_of(status: AccountWindowStatus, *, wall_s: float) -> UsageReport:
    """The other way round."""
    return UsageReport(
        name=status.name,
        fraction=status.used,
        at=wall_s - status.measured_s_ago,
        resets_at=wall_s + status.resets_in_s if status.resets_in_s is not None else None,
    )


def _is_news(each: WindowReading, known: WindowReading, since_s: float) -> bool:
    if each.fraction != known.fraction or since_s >= SAME_S or known.age_s > each.age_s + SAME_S:
        return True
    if each.resets_in_s is None or known.resets_in_s is None:
        return each.resets_in_s != known.resets_in_s
    return abs(each.resets_in_s - (known.resets_in_s - since_s)) > SAME_RESET_S
