"""How full one usage window of an account is.

A *window* is a stretch of time with a ceiling in dollars: 5 hours, 7 days, whatever was declared. Its ceiling
comes from a person (``declare``), or from one look at the provider's own page (``calibrate``):

    ceiling = spent so far / the part that the provider says is used        fraction = spent / ceiling

A provider that reports the part itself is believed before any of that, until the window that it spoke of is
over; what was spent since is added to it where a ceiling is known.

What is enforced, and what is only said:

    reported, or with a ceiling      enforced
    with a ceiling and no figure     enforced, and counts as full: it is not known what is left
    neither                          advisory: it has no fraction, no level, and no say in anything

Every window stands for itself. Nothing here computes one window's fraction from another's figures, so
calibrating one can never change what another one says.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from flyball.core.durations import LONGEST_WAIT_S
from flyball.core.pool.verdict import span_words
from flyball.core.signals import UsageCertainty as UsageCertainty

HOUR_S, DAY_S = 3600.0, 86400.0
LEARNED_FROM = 0.05
"""A reported part below this says too little about the ceiling: its rounding would be most of it."""


_SURENESS = (UsageCertainty.REPORTED, UsageCertainty.MEASURED, UsageCertainty.ESTIMATED)


def least_sure(*tags: UsageCertainty) -> UsageCertainty:
    return max(tags, key=_SURENESS.index)


@dataclass(frozen=True, slots=True)
class Figure:
    value: float
    tag: UsageCertainty


@dataclass(frozen=True, slots=True, kw_only=True)
class WindowTerms:
    """A window as people set it."""

    name: str
    length_s: float
    ceiling_usd: float | None = None
    """None: uncalibrated."""
    model: str = ""
    """Only what asks for such a model draws on it."""
    whole: bool = False
    """Its ceiling was measured with all clients' spending in it; only such spending says how full it is."""
    seen_usd: float = 0.0
    seen_at: float | None = None
    """A person saw so much spent by then, measured or not: it counts while that window lasts."""
    anchor: float | None = None
    """A moment at which one such window begins or ends; None: not known."""


BUILT_IN = (WindowTerms(name="5h", length_s=5 * HOUR_S), WindowTerms(name="7d", length_s=7 * DAY_S))


@dataclass(frozen=True, slots=True, kw_only=True)
class UsageReport:
    """What the provider said about one window."""

    name: str
    fraction: float
    at: float
    resets_at: float | None = None

    def holds(self, now: float) -> bool:
        """Whether it still speaks of the window that is going on."""
        return self.resets_at is None or now < self.resets_at


@dataclass(frozen=True, slots=True)
class UsageItem:
    """So much was spent between two moments, which may be one."""

    start: float
    end: float
    usd: float


@dataclass(frozen=True, slots=True)
class Spend:
    """All that one source knows of an account's spending."""

    source: str
    pieces: Sequence[UsageItem] = ()
    tag: UsageCertainty = UsageCertainty.MEASURED
    whole: bool = True
    """False: it knows of our own agents only."""
    floor: Spend | None = None
    """What was spent at least, whatever this source says."""

    def within(self, start: float, end: float) -> Figure:
        """What was spent from ``start`` until before ``end``. A piece that reaches over an edge counts in
        part, and then it is an estimate."""
        total, whole = 0.0, True
        for piece in self.pieces:
            if piece.end <= piece.start:
                share = 1.0 if start <= piece.start < end else 0.0
            else:
                overlap_s = min(piece.end, end) - max(piece.start, start)
                share = min(1.0, max(0.0, overlap_s / (piece.end - piece.start)))
            total += piece.usd * share
            whole = whole and share in (0.0, 1.0)
        found = Figure(total, self.tag if whole else UsageCertainty.ESTIMATED)
        least = self.floor.within(start, end) if self.floor is not None else found
        return found if found.value >= least.value else least


def window_span(terms: WindowTerms, report: UsageReport | None, now: float) -> tuple[float, float | None]:
    """When the window that is going on began, and when it ends.

    On the grid of whole lengths through the reset that the provider told, else through the anchor. Where
    neither is known it may have begun at any moment: what counts is the last whole length, and it has no end.

    >>> window_span(BUILT_IN[0], UsageReport(name="5h", fraction=0.5, at=1.0, resets_at=20_000.0), 18_001.0)
    (2000.0, 20000.0)
    >>> window_span(BUILT_IN[0], None, 18_001.0)
    (1.0, None)
    """
    told = report.resets_at if report is not None else None
    through = told if told is not None else terms.anchor
    if through is None:
        return now - terms.length_s, None
    turns = math.floor((now - through) / terms.length_s)
    start = through + turns * terms.length_s
    return start, start + terms.length_s


@dataclass(frozen=True, slots=True, kw_only=True)
class WindowUsage:
    """One window now."""

    name: str
    start: float
    end: float | None
    """None: when it began is not known."""
    model: str = ""
    spent: Figure | None = None
    ceiling: Figure | None = None
    fraction: Figure | None = None
    """None: uncalibrated, so only said."""
    unmeasured: bool = False
    """It has a ceiling, and it cannot be said what was spent: counts as full."""

    @property
    def enforced(self) -> bool:
        return self.fraction is not None

    @property
    def full(self) -> float:
        return self.fraction.value if self.fraction is not None else 0.0

    def concerns(self, model: str) -> bool:
        return not self.model or self.model in model

    def end_words(self, now: float) -> str:
        """When it ends, in the words that follow what it is at."""
        if self.end is None:
            return "when it ends is not known"
        return f"ends in {span_words(max(0.0, self.end - now))}"

    def words(self) -> str:
        """``5h window at 83 % (measured)``"""
        if self.unmeasured:
            return f"{self.name} window cannot be measured and counts as full"
        if self.fraction is None:
            return f"{self.name} window is not calibrated"
        return f"{self.name} window at {self.full:.0%} ({self.fraction.tag.value})"


def measure_window(
    terms: WindowTerms, report: UsageReport | None, spend: Spend | None, now: float
) -> WindowUsage:
    """How one window stands, from its own terms, its own report, and what was spent."""
    start, end = window_span(terms, report, now)
    # What was spent this very moment is spent.
    now = math.nextafter(now, math.inf)
    told = report if report is not None and report.holds(now) and start <= report.at <= now else None
    if end is not None and told is None and terms.anchor is None and terms.ceiling_usd is None:
        # The window that the provider spoke of is over, and when the next one begins is not known.
        end = None
    spend = spend if spend is not None and (spend.whole or not terms.whole) else None
    spent = _spent_so_far(terms, spend, start, now) if spend is not None else None
    ceiling = _ceiling(terms, told, spend, start)
    fraction, unmeasured = _fraction(told, spend, spent, ceiling, now)
    return WindowUsage(
        name=terms.name,
        start=start,
        end=end,
        model=terms.model,
        spent=spent,
        ceiling=ceiling,
        fraction=fraction,
        unmeasured=unmeasured,
    )


def _spent_so_far(terms: WindowTerms, spend: Spend, start: float, now: float) -> Figure:
    spent = spend.within(start, now)
    if terms.seen_at is None or not start <= terms.seen_at <= now:
        return spent
    least = terms.seen_usd + spend.within(terms.seen_at, now).value
    return spent if spent.value >= least else Figure(least, UsageCertainty.ESTIMATED)


def _ceiling(
    terms: WindowTerms, told: UsageReport | None, spend: Spend | None, start: float
) -> Figure | None:
    if terms.ceiling_usd is not None:
        return Figure(terms.ceiling_usd, UsageCertainty.MEASURED)
    if told is None or spend is None or told.fraction < LEARNED_FROM:
        return None
    before = spend.within(start, told.at).value
    return Figure(before / told.fraction, UsageCertainty.ESTIMATED) if before > 0 else None


def _fraction(
    told: UsageReport | None, spend: Spend | None, spent: Figure | None, ceiling: Figure | None, now: float
) -> tuple[Figure | None, bool]:
    if told is not None:
        since = spend.within(told.at, now).value if spend is not None else 0.0
        if ceiling is None or since <= 0:
            return Figure(told.fraction, UsageCertainty.REPORTED), False
        return Figure(told.fraction + since / ceiling.value, UsageCertainty.ESTIMATED), False
    if ceiling is None:
        return None, False
    if spent is None:
        return Figure(1.0, UsageCertainty.ESTIMATED), True
    return Figure(spent.value / ceiling.value, least_sure(spent.tag, ceiling.tag)), False


def ceiling_from(spent_usd: float, fraction: float) -> float:
    """The ceiling of a window of which this part is used.

    >>> ceiling_from(6.2, 0.62)
    10.0
    """
    return spent_usd / fraction


def is_believable(fraction: float | None, resets_at: float | None, now: float) -> bool:
    """Whether a provider would say this about a window of its own."""
    if fraction is None or not 0 <= fraction <= 10:
        return False
    return resets_at is None or -DAY_S <= resets_at - now <= LONGEST_WAIT_S
