"""What follows from how full an account's windows are: how many agents, whether this one, whether at all.

    below warn    the run's own width
    from warn     the width shrinks linearly, never below 1
    from drain    nothing is started, what runs is finished
    from stop     the run pauses

The worst enforced window decides (``usage_windows.py`` says which are). What is about to start must fit
*every* window that it draws on, below drain, with what already runs taken into account.

There is no rush at the end of a window nor at the beginning of the next. Nothing here reads a clock or a
file.

Near the end. What is started now spends until it is done, and what it spends after the reset is the next
window's. So of its cost only the part that falls before the reset has to fit into what is left:

    it ends before the reset      all of its cost
    it goes on beyond it          the part of its time that lies before

After it. All that were held back could start at once, and would be throttled together. They start in their
order instead, twice as many in every step:

    after 0 steps 1, after 1 step 3, after 2 steps 7 ...
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum, IntEnum

from flyball.core.budget.usage_windows import WindowUsage
from flyball.core.pool.account_windows import narrow_width

STEP_S = 20.0
"""About as long as an agent takes to meet a limit that is still there."""
_STEPS = 30


def share_before(duration_s: float, left_s: float) -> float:
    """The part of a stretch of work that lies before the reset.

    >>> share_before(600, 1200), share_before(600, 150), share_before(600, -1), share_before(0, 10)
    (1.0, 0.25, 0.0, 1.0)
    """
    if left_s <= 0:
        return 0.0
    return 1.0 if duration_s <= left_s else left_s / duration_s


@dataclass(frozen=True, slots=True)
class SlowStart:
    """Starts after a reset that agents waited for."""

    began: float
    started: int = 0
    step_s: float = STEP_S

    def allowed_by(self, now: float) -> int:
        """How many may have started by now.

        >>> [SlowStart(0.0, step_s=10.0).allowed_by(now) for now in (0.0, 9.0, 10.0, 25.0, 30.0)]
        [1, 1, 3, 7, 15]
        """
        return int(2 ** (min(_STEPS, self._steps(now)) + 1)) - 1

    def _steps(self, now: float) -> int:
        return max(0, math.floor((now - self.began) / self.step_s))

    def wait_s(self, now: float) -> float:
        """How long until one more may start; 0: now.

        >>> SlowStart(0.0, started=1, step_s=10.0).wait_s(4.0)
        6.0
        """
        if self.started < self.allowed_by(now):
            return 0.0
        step = self._steps(now)
        while int(2 ** (step + 1)) - 1 <= self.started:
            step += 1
        return self.began + step * self.step_s - now

    def is_over(self, now: float, width: int) -> bool:
        """Whether it no longer holds anything back."""
        return self.allowed_by(now) - self.started >= width or self._steps(now) >= _STEPS


class Level(IntEnum):
    OK, WARN, DRAIN, STOP = range(4)

    @property
    def word(self) -> str:
        return self.name.lower()


class BudgetAction(Enum):
    ENFORCE = "enforce"
    ADVISORY = "advisory"
    OFF = "off"


BASELINE = BudgetAction.ENFORCE


def budget_action(flag: str | None, project: str | None) -> BudgetAction:
    """The run's own word, else the project's, else to enforce.

    >>> budget_action("off", "enforce"), budget_action(None, "advisory"), budget_action(None, None)
    (<BudgetAction.OFF: 'off'>, <BudgetAction.ADVISORY: 'advisory'>, <BudgetAction.ENFORCE: 'enforce'>)
    """
    return BudgetAction(flag or project or BASELINE.value)


@dataclass(frozen=True, slots=True, kw_only=True)
class Thresholds:
    warn: float = 0.80
    drain: float = 0.90
    stop: float = 0.95

    def level(self, fraction: float) -> Level:
        """
        >>> [Thresholds().level(part).word for part in (0.5, 0.8, 0.9, 0.95)]
        ['ok', 'warn', 'drain', 'stop']
        """
        steps = ((self.stop, Level.STOP), (self.drain, Level.DRAIN), (self.warn, Level.WARN))
        return next((level for part, level in steps if fraction >= part), Level.OK)

    def width(self, width: int, fraction: float) -> int:
        """
        >>> [Thresholds().width(10, part) for part in (0.79, 0.8, 0.85, 0.899, 0.9)]
        [10, 10, 5, 1, 0]
        """
        if self.level(fraction) >= Level.DRAIN:
            return 0
        return narrow_width(width, fraction, begin=self.warn, end=self.drain)


# -- what follows ---------------------------------------------------------------------------------------


def worst(standings: Iterable[WindowUsage], model: str | None = None) -> WindowUsage | None:
    """The fullest enforced window: of those for all models, or of those that concern a model."""
    asked = [each for each in standings if each.enforced]
    concerned = [each for each in asked if (each.concerns(model) if model is not None else not each.model)]
    return max(concerned, key=lambda each: each.full, default=None)


def worst_level(standings: Iterable[WindowUsage], thresholds: Thresholds) -> Level:
    found = worst(standings)
    return thresholds.level(found.full) if found is not None else Level.OK


def allowed_width(width: int, standings: Iterable[WindowUsage], thresholds: Thresholds) -> int:
    found = worst(standings)
    return thresholds.width(width, found.full) if found is not None else width


TASK, RUN = "task", "run"
"""In the place of a window: what one task or one run may cost."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """Why something may not start now."""

    words: str
    window: str = ""
    until: float | None = None
    """When time alone changes that; None: it does not."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What is about to be started, and is expected to take."""

    model: str = ""
    cost_usd: float = 0.0
    duration_s: float = 0.0
    reserved_usd: float = 0.0
    """What those that run already are expected to spend yet."""


def preflight(
    standings: Iterable[WindowUsage], asked: Asked, thresholds: Thresholds, now: float
) -> Refusal | None:
    """None where it fits every window below drain; else the window that frees up last."""
    concerned = (each for each in standings if each.enforced and each.concerns(asked.model))
    refused = [
        why for each in concerned if (why := _window_refusal(each, asked, thresholds, now)) is not None
    ]
    return max(refused, key=lambda each: each.until or 0.0, default=None)


def _window_refusal(each: WindowUsage, asked: Asked, thresholds: Thresholds, now: float) -> Refusal | None:
    resets = each.end_words(now) if each.end is None else f"it {each.end_words(now)}"
    if thresholds.level(each.full) >= Level.DRAIN:
        return Refusal(words=f"{each.words()}; {resets}", window=each.name, until=each.end)
    if each.ceiling is None or each.ceiling.value <= 0:
        return None
    # What does not fit even an empty window starts in an empty one: it would wait for ever otherwise.
    most = 0.99 * thresholds.drain * each.ceiling.value
    share = share_before(asked.duration_s, each.end - now) if each.end is not None else 1.0
    cost = min(asked.cost_usd * share, most)
    after = each.full + (asked.reserved_usd + cost) / each.ceiling.value
    if thresholds.level(after) < Level.DRAIN:
        return None
    expected = f"expected to cost up to ${asked.cost_usd:.2f}, which does not fit"
    return Refusal(words=f"{expected}: {each.words()}; {resets}", window=each.name, until=each.end)


# -- paying for calls -------------------------------------------------------------------------------------


def api_spend_refusal(*, flag: bool, setting: str, key_env: str, key_there: bool) -> str:
    """Why an API key may not be charged; empty where all three switches say that it may.

    >>> api_spend_refusal(flag=True, setting="explicit", key_env="WORK_KEY", key_there=True)
    ''
    """
    missing = []
    if not flag:
        missing.append("flyball run --allow-api-spend was not given")
    if setting != "explicit":
        missing.append('account.api_spend is not "explicit"')
    if not key_env:
        missing.append("the profile names no api_key_env")
    elif not key_there:
        missing.append(f"{key_env} is not set")
    return "; ".join(missing)
