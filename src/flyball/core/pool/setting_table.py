"""The table of a pool's settings: what each means and may be, and how what people name becomes settings.

Apart from ``settings.py``, since a process that waits for a slot or holds one needs settings and not the
table: it is loaded where a person names a value, or where a plan reads what a person named.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass
from enum import Enum
from typing import Any, cast, get_args

from flyball.core.pool.rate_window import parse_rate
from flyball.core.pool.settings import (
    CONTROLLERS,
    PROFILES,
    Counting,
    PoolChanges,
    PoolSettings,
    ShareRule,
    check_entry_names,
    check_name,
    check_whole,
    entries_by_name,
)
from flyball.core.share_lease.timing import AllotRule, FoldRule
from flyball.errors import UsageError

_DEFAULTS = PoolSettings()


@dataclass(frozen=True, slots=True)
class Setting:
    """One setting of a pool: what it may be, what it means, and what it is called on the command line.

    Its default is that of its field in ``PoolSettings``.
    """

    name: str
    type: Any
    """As in ``PoolChanges``. A setting whose name ends in ``_s`` is in seconds."""
    flag: str | None
    """None: it is set from Python or over HTTP."""
    metavar: str | None
    help: str
    _: KW_ONLY
    negation: tuple[str, str] | None = None
    """Of a yes or no: the flag that says no, and its help."""
    choices: tuple[str, ...] = ()
    named_by: str | None = None
    """It has an entry for each of these, by name. 0 removes an entry."""
    above: float | None = None
    at_least: float | None = None
    at_most: float | None = None
    derived: str | None = None
    """What it follows from while it is not named."""
    at_zero: str = "off"
    """What 0 seconds mean."""
    adaptive_only: bool = False
    """It has no effect on a cap that stays where it is."""
    form: str = ""
    """Of a text: what it looks like, in the words that follow "must be"."""

    @property
    def value_type(self) -> Any:
        """Of the setting, or of each of its entries."""
        return get_args(self.type)[1] if self.named_by else self.type

    @property
    def expected(self) -> str:
        """What it may be, in the words that follow "must be"."""
        if self.choices:
            return f"{', '.join(self.choices[:-1])} or {self.choices[-1]}"
        if self.name.endswith("_s"):
            return "above 0 seconds" if self.above == 0 else f"{self.at_least:g} or more seconds"
        words = self.form or _TYPE_WORDS[self.value_type]
        if self.at_most is not None:
            words += f" from {self.at_least:g} to {self.at_most:g}"
        elif self.at_least is not None:
            words += f" of at least {self.at_least:g}"
        elif self.above is not None:
            words += f" above {self.above:g}"
        return words

    def check(self, value: object) -> None:
        """Refuse what the setting cannot be, whatever the others are."""
        if self.named_by is None:
            self._check_one(self.name, value)
        else:
            for name, entry in entries_by_name(self.name, self.named_by, value).items():
                self._check_one(f"{self.name} of {name!r}", entry)

    def _check_one(self, what: str, value: object) -> None:
        if self.value_type is int:
            check_whole(what, value, setting=self.name)
        if not self._fits(value):
            raise UsageError(f"{what} must be {self.expected}, not {value!r:.80}", settings=(self.name,))

    def _fits(self, value: Any) -> bool:
        if self.choices:
            return value in self.choices
        if self.value_type in (bool, str):
            return isinstance(value, self.value_type)
        return (
            isinstance(value, int | float)
            and not isinstance(value, bool)
            and math.isfinite(value)
            and (self.above is None or value > self.above)
            and (self.at_least is None or value >= self.at_least)
            and (self.at_most is None or value <= self.at_most)
        )


_TYPE_WORDS = {bool: "true or false", int: "a whole number", float: "a number", str: "text"}


def _enum_words(rule: type[Enum]) -> tuple[str, ...]:
    return tuple(str(word.value) for word in rule)


# fmt: off
SETTING_GROUPS: Mapping[str, tuple[Setting, ...]] = {
    "cap": (
        Setting(
            "cap", int, "--cap", "N",
            "slots usable at once; an adaptive cap starts here, and anew when named",
            at_least=1
        ),
        Setting(
            "adaptive", bool, "--adaptive", None, "let the cap follow what the provider serves",
            negation=("--static", "keep the cap where it is")
        ),
        Setting(
            "cap_floor", int, "--floor", "N", "an adaptive cap never goes below this (1)",
            at_least=1, adaptive_only=True
        ),
        Setting(
            "cap_ceiling", int, "--ceiling", "N", "an adaptive cap never goes above this (2 x cap)",
            derived="2 x cap", adaptive_only=True
        ),
        Setting(
            "profile", str, "--profile", None, "a set of constants for one kind of work",
            choices=tuple(PROFILES)
        ),
        Setting(
            "controller", str, "--controller", None, "the algorithm that moves the cap",
            choices=CONTROLLERS, adaptive_only=True
        ),
        Setting(
            "confirm_s", float, "--confirm", "30s",
            "how long a new level must stay without a throttle to be trusted; at most one hold",
            above=0, adaptive_only=True
        ),
        Setting(
            "settle_s", float, "--settle", "120s", "how long the cap stays after a change",
            at_least=0, adaptive_only=True
        ),
        Setting(
            "probe_s", float, "--probe", "5m", "quiet time before the cap grows", above=0, adaptive_only=True
        ),
        Setting(
            "step", float, None, None, "the cap grows by this per success (article) or quiet period (koryph)",
            at_least=0.01, adaptive_only=True
        ),
        Setting(
            "cut_factor", float, None, None, "a throttle divides the cap by this",
            at_least=1.1, adaptive_only=True
        ),
        Setting(
            "burst_factor", float, None, None, "a burst of throttles divides the cap by this",
            at_least=1.1, adaptive_only=True
        ),
        Setting(
            "burst_count", int, None, None, "so many tasks throttled within the burst's window are a burst",
            at_least=1, adaptive_only=True
        ),
        Setting(
            "burst_window_s", float, None, None, "the window of a burst", above=0, adaptive_only=True
        ),
    ),
    "breaker and pace": (
        Setting(
            "break_s", float, "--break", "300s", "how long the breaker opens", above=0, adaptive_only=True
        ),
        Setting(
            "break_max_s", float, "--break-max", "1h",
            "the longest break; each re-opening doubles it up to here",
            above=0, adaptive_only=True
        ),
        Setting(
            "trip_cuts", int, None, None, "so many cuts within the trip window open the breaker",
            at_least=1, adaptive_only=True
        ),
        Setting(
            "trip_window_s", float, None, None, "the window of those cuts", above=0, adaptive_only=True
        ),
        Setting(
            "trial_clean_s", float, "--trial-clean", "120s",
            "a trial that runs this long without a throttle closes the breaker (one settle)",
            at_least=0, derived="one settle", at_zero="0 s: at once", adaptive_only=True
        ),
        Setting(
            "trial_timeout_s", float, "--trial-timeout", "30m",
            "if the trial disappears, the breaker opens again after this time",
            at_least=0, at_zero="0 s: at once", adaptive_only=True
        ),
        Setting(
            "spacing_s", float, "--spacing", "3s", "time between two starts; 0 turns it off",
            at_least=0, adaptive_only=True
        ),
        Setting(
            "spacing_jitter", float, None, None,
            "how far the spacing is varied by chance, up and down, as a part of it",
            at_least=0, at_most=1
        ),
        Setting(
            "retry_after_max_s", float, "--retry-after-max", "15m",
            "believe a provider's Retry-After up to this; 0: not at all",
            at_least=0, at_zero="0 s: no Retry-After is heeded"
        ),
        Setting(
            "windows", dict[str, str], "--window", "NAME=RATE",
            "a budget over time, such as tokens=200k/min",
            named_by="window", form="a rate such as 60/min"
        ),
    ),
    "what is counted": (
        Setting(
            "counts", str, "--counts", None,
            "what holds a slot: each model call (calls), the agent's process (agents), or the call wherever "
            "it can be seen (auto)",
            choices=_enum_words(Counting)
        ),
        Setting(
            "families", dict[str, str], "--family", "NAME[=MODEL]",
            "calls of these models use a pool of their own, such as opus, or old=claude-opus-4-1*",
            named_by="family", form="a model's name, in which * stands for anything"
        ),
        Setting(
            "subagents", int, "--subagents", "N",
            "how many subagents at once an agent may have whose calls and subagents are not counted (claude)",
            at_least=1
        ),
    ),
    "sharing between projects": (
        Setting(
            "share", str, "--share", None,
            "how projects compete: idle shares are lent (lend) or kept (strict)",
            choices=_enum_words(ShareRule)
        ),
        Setting(
            "weights", dict[str, float], "--weight", "PROJECT=W", "a larger share for a project",
            named_by="project", above=0
        ),
        Setting(
            "maxima", dict[str, int], "--max", "PROJECT=N", "at most N slots for a project",
            named_by="project", at_least=1
        ),
        Setting("reserve", int, "--reserve", "N", "slots kept for priority above 0", at_least=0),
        Setting("ageing_s", float, "--ageing", "60s", "waiting this long raises priority by 1", above=0),
        Setting(
            "rotation_s", float, None, None,
            "how often the remainder moves on where shares are kept (strict)",
            above=0
        ),
    ),
    "usage windows of the account (5 hours, 7 days)": (
        Setting(
            "usage_warn", float, "--usage-warn", "80%", "say so from this part of a window on; 0: never",
            at_least=0, at_most=1, form="a part of a window"
        ),
        Setting(
            "usage_slow", float, "--usage-slow", "85%",
            "fewer at once from this part of a window on, down to 1 where nothing starts any more; 0: never",
            at_least=0, at_most=1, form="a part of a window"
        ),
        Setting(
            "usage_drain", float, "--usage-drain", "95%",
            "start nothing from this part of a window on, until it resets; what runs goes on; 0: never",
            at_least=0, at_most=1, form="a part of a window"
        ),
        Setting(
            "usage_keep", float, "--usage-keep", "20%",
            "keep the last part of each window for priority above 0; 0: none",
            at_least=0, at_most=0.99, form="a part of a window"
        ),
    ),
    "share leases (processes that hold many slots each)": (
        Setting(
            "heartbeat_s", float, "--heartbeat", "1s",
            "how often a holder renews; one that is silent for 4 of these has lost its slots",
            above=0
        ),
        Setting(
            "grace_s", float, "--grace", "0s",
            "count the slots of a silent holder this much longer: for work that nothing can interrupt",
            at_least=0
        ),
        Setting(
            "allotment", str, "--allotment", None,
            "which holder gets how much: as much as it can use (demand), or even parts",
            choices=_enum_words(AllotRule)
        ),
        Setting(
            "estimates", str, "--estimates", None,
            "how the limits that holders measure by themselves become one, where they do",
            choices=_enum_words(FoldRule)
        ),
    ),
}
# fmt: on
"""The table of the settings, in the order in which help, screens and the reference show them. The checks, the
flags, the body over HTTP and docs/reference/pool-settings.md are made from it."""
SETTINGS: Mapping[str, Setting] = {
    setting.name: setting for group in SETTING_GROUPS.values() for setting in group
}
USAGE_PARTS = frozenset({"usage_warn", "usage_slow", "usage_drain", "usage_keep"})
"""Settings that are parts of a usage window, from 0 to 1."""


def resolve_pool(changes: PoolChanges) -> PoolSettings:
    """The whole settings of a pool from the values a person named."""
    for name in sorted(changes.keys() - SETTINGS.keys()):
        raise UsageError(
            f"unknown pool setting {name!r}; known: {', '.join(sorted(SETTINGS))}", settings=(name,)
        )
    for name, value in changes.items():
        SETTINGS[name].check(value)
    profile = PROFILES[changes.get("profile", _DEFAULTS.profile)]
    values: dict[str, Any] = {**profile, **changes}
    if "cap_ceiling" not in changes and ("cap" in changes or "cap_ceiling" not in profile):
        # A cap named above the profile's own ceiling still needs room to probe.
        values["cap_ceiling"] = max(values.get("cap", _DEFAULTS.cap) * 2, profile.get("cap_ceiling", 0))
    if "trial_clean_s" not in changes:
        values["trial_clean_s"] = values.get("settle_s", _DEFAULTS.settle_s)
    for name in changes:
        default = getattr(_DEFAULTS, name)
        if isinstance(default, Enum):
            values[name] = type(default)(values[name])
    settings = PoolSettings(**values)
    _check_relations(settings)
    return settings


def merge_changes(old: PoolChanges, new: PoolChanges) -> PoolChanges:
    """``old`` with what ``new`` names. What has entries by name merges by name; 0 removes an entry."""
    merged: dict[str, Any] = {**old, **new}
    for key, given in new.items():
        named_by = SETTINGS[key].named_by if key in SETTINGS else None
        if named_by is not None:
            entries = {**cast(dict[str, Any], old.get(key, {})), **check_entry_names(key, named_by, given)}
            merged[key] = {name: value for name, value in entries.items() if value not in (0, "0")}
    settings = resolve_pool(cast(PoolChanges, merged))
    if new.keys() & {"break_s", "break_max_s", "profile"}:
        _check_break(settings)
    return cast(PoolChanges, merged)


def _check_break(s: PoolSettings) -> None:
    """Checked only when it is changed: a state that has such a pair from before stays readable."""
    if s.break_s > s.break_max_s:
        raise UsageError(
            f"break_s {s.break_s:g} is above break_max_s {s.break_max_s:g}, the longest break; "
            "raise the longest or lower the break",
            settings=("break_s", "break_max_s"),
        )


def _check_relations(s: PoolSettings) -> None:
    """Rules that concern two settings."""
    if s.cap_ceiling < s.cap:
        words = f"cap_ceiling {s.cap_ceiling} is below cap {s.cap}; raise the ceiling or lower the cap"
        raise UsageError(words, settings=("cap_ceiling", "cap"))
    if s.cap_floor > s.cap:
        words = f"cap_floor {s.cap_floor} is above cap {s.cap}; lower the floor or raise the cap"
        raise UsageError(words, settings=("cap_floor", "cap"))
    if s.reserve >= s.cap:
        words = f"reserve must be between 0 and cap - 1 ({s.cap - 1}), not {s.reserve}"
        raise UsageError(words, settings=("reserve", "cap"))
    if s.usage_drain and s.usage_slow >= s.usage_drain:
        words = f"usage_slow {s.usage_slow:g} must be below usage_drain {s.usage_drain:g}"
        raise UsageError(words, settings=("usage_slow", "usage_drain"))
    _check_windows(s.windows)


def _check_windows(windows: Mapping[str, str]) -> None:
    for name, text in windows.items():
        check_name("window", name)
        try:
            amount, per_s = parse_rate(text)
        except UsageError as error:
            raise UsageError(str(error), settings=("windows",)) from error
        if not 0 < amount < 1e15 or not 0 < per_s <= 366 * 86400:
            raise UsageError(f"window {name!r} of {text!r} is out of range", settings=("windows",))
