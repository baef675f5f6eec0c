"""What people write. Settings never learn; what the machine learns lives in ``Memory`` (plan.py).

A pool's settings are a *profile* (a named set of constants) with the few values a person named on
top. Only the named values are stored, so a better default reaches everyone who never chose, and a
``set`` changes exactly what it names.

    mixed    out of the box: the agents' timing, no spacing, so agents and calls can share a pool
    agents   holds of minutes: settle 120 s, one probe per 5 quiet minutes, 3 s between starts
    calls    holds of seconds: start 2, ceiling 12, +0.5 per success, cooldown 8 s; breaker times scaled alike

A *controller* is the algorithm that moves the cap (``core/control``); any controller runs under any profile.

What a caller may say, whatever it is for: names, amounts, times. It is refused before it is stored.

One machine's state is shared by every program on it: a name that cannot be shown or a number that is none,
once written, is everybody's trouble. So each rule stands here once, and every way in goes by it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import TypedDict, TypeVar, cast

from flyball.core.pool.rate_window import rate
from flyball.core.share_lease.timing import AllotRule, FoldRule, ShareTiming, terms_for
from flyball.errors import UsageError

NAME_LIMIT = 200
AMOUNT_LIMIT = 1e15
_UNSHOWN = frozenset(
    [
        *range(0x20),
        *range(0x7F, 0xA0),
        # What ends a line, and what turns the order of what follows.
        *(0x061C, 0x200E, 0x200F, 0x2028, 0x2029),
        *range(0x202A, 0x202F),
        *range(0x2066, 0x206A),
    ]
)
"""Characters that no name may hold: a screen obeys them instead of showing them. Others that merely have no
shape of their own, such as what joins two emoji into one, are fine."""


def check_name(what: str, value: str, *, empty: bool = False, limit: int = NAME_LIMIT) -> str:
    """A pool, project or task name: any printable text, bounded, so it can be shown and stored."""
    if not isinstance(value, str):
        raise UsageError(f"{what} must be text, not {type(value).__name__}")
    if 0 < len(value) <= limit and value.isprintable():
        return value
    if not value and not empty:
        raise UsageError(f"{what} must not be empty")
    if len(value) > limit:
        raise UsageError(f"{what} is {len(value)} characters long; at most {limit}")
    if any(ord(c) in _UNSHOWN or 0xD800 <= ord(c) <= 0xDFFF for c in value):
        raise UsageError(f"{what} {value!r} contains control characters")
    return value


def check_amounts(what: str, amounts: Mapping[str, float]) -> None:
    """What a call costs or used, by window: finite numbers of 0 or more."""
    for window, amount in amounts.items():
        check_name("window", window)
        # type() and not isinstance: True is no amount.
        if type(amount) not in (int, float) or not 0 <= amount < AMOUNT_LIMIT:
            raise UsageError(
                f"{what} in {window!r} must be a number from 0 to {AMOUNT_LIMIT:g}, not {amount!r:.80}"
            )


def check_timeout(timeout: float | None) -> None:
    """How long somebody is ready to wait."""
    if timeout is None:
        return
    said: object = timeout
    number = isinstance(said, int | float) and not isinstance(said, bool)
    # A float may be endless; a whole number too large for one fails in the middle of the wait.
    if not number or not (0 <= timeout < AMOUNT_LIMIT or timeout == math.inf):
        raise UsageError(
            f"timeout must be from 0 to {AMOUNT_LIMIT:g} seconds, or None for ever; not {timeout!r:.80}"
        )


V = TypeVar("V")
DEFAULT_POOL = "anthropic"
RESERVED = "flyball:"
"""Pools whose names begin like this are flyball's own; what is shown to people leaves them out."""
DEMAND_TTL_S = 600.0
LEASE_BACKSTOP_S = 24 * 3600.0
"""How long a lease counts whose holder cannot be checked from here (other host, other pid namespace)."""
CONFIRM_S = 60.0
"""How long a slot handed to such a holder stays reserved before it must show that it is alive."""
KEY_TTL_S = 24 * 3600.0
"""How long an ask under a key is remembered."""
KEY_LIMIT = 255


class ShareRule(Enum):
    """How projects compete inside one pool."""

    STRICT = "strict"
    LEND = "lend"


class Growth(Enum):
    """What makes the cap of one of the seeds' controllers rise."""

    QUIET = "quiet"
    SUCCESS = "success"


class PoolChanges(TypedDict, total=False):
    """The settings a person may name for a pool; also the keyword arguments of ``set_pool``."""

    profile: str
    controller: str
    adaptive: bool
    cap: int
    cap_floor: int
    cap_ceiling: int
    confirm_s: float
    step: float
    cut_factor: float
    burst_factor: float
    burst_count: int
    burst_window_s: float
    settle_s: float
    probe_s: float
    trip_cuts: int
    trip_window_s: float
    break_s: float
    break_max_s: float
    trial_clean_s: float
    trial_timeout_s: float
    spacing_s: float
    spacing_jitter: float
    retry_after_max_s: float
    share: str
    rotation_s: float
    weights: dict[str, float]
    maxima: dict[str, int]
    windows: dict[str, str]
    reserve: int
    ageing_s: float
    heartbeat_s: float
    grace_s: float
    allotment: str
    estimates: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolSettings:
    """Everything the plan needs to know that a person decided. Durations in seconds."""

    profile: str = "mixed"
    controller: str = "measured"
    adaptive: bool = True
    cap: int = 8
    cap_floor: int = 1
    cap_ceiling: int = 16
    confirm_s: float = 30.0
    """How long a new level has to stay without a throttle to be trusted, until it is known how long one
    takes."""
    step: float = 1.0
    cut_factor: float = 2.0
    burst_factor: float = 4.0
    burst_count: int = 3
    burst_window_s: float = 30.0
    settle_s: float = 120.0
    probe_s: float = 300.0
    trip_cuts: int = 3
    trip_window_s: float = 600.0
    break_s: float = 300.0
    break_max_s: float = 3600.0
    trial_clean_s: float = 120.0
    trial_timeout_s: float = 1800.0
    spacing_s: float = 0.0
    spacing_jitter: float = 0.5
    retry_after_max_s: float = 900.0
    share: ShareRule = ShareRule.LEND
    rotation_s: float = 60.0
    weights: Mapping[str, float] = field(default_factory=dict)
    maxima: Mapping[str, int] = field(default_factory=dict)
    windows: Mapping[str, str] = field(default_factory=dict)
    """Budgets over time by name, as people write them: ``60/min``."""
    reserve: int = 0
    ageing_s: float = 60.0
    heartbeat_s: float = 1.0
    """Of share leases: how often each holder renews. All their other times follow from it."""
    grace_s: float = 0.0
    """How much longer a share lease counts than its holder may use it, for work that nobody can interrupt."""
    allotment: AllotRule = AllotRule.DEMAND
    """Who of the holders of share leases should get how much."""
    estimates: FoldRule = FoldRule.MEDIAN
    """How what the holders believe about the pool becomes one figure, where they report it."""

    @property
    def share_terms(self) -> ShareTiming:
        return terms_for(self.heartbeat_s, grace_s=self.grace_s)

    @property
    def adapts(self) -> bool:
        """Does anything move the cap, and may the breaker act?"""
        return self.adaptive and self.controller != "fixed"

    @property
    def growth(self) -> Growth:
        return Growth.SUCCESS if self.controller == "article" else Growth.QUIET


CONTROLLERS = ("measured", "article", "koryph", "gradient2", "fixed")
"""In the order in which help shows them; the first is the default."""

_DEFAULTS = PoolSettings()

PROFILES: Mapping[str, Mapping[str, object]] = {
    "mixed": {},
    "agents": {"spacing_s": 3.0, "confirm_s": 60.0},
    # The windows, the break and the trial keep the ratio to settle that the agents' have.
    "calls": {
        "cap": 2,
        "cap_ceiling": 12,
        "confirm_s": 0.75,
        "step": 0.5,
        "settle_s": 8.0,
        "probe_s": 20.0,
        "burst_window_s": 2.0,
        "trip_window_s": 40.0,
        "break_s": 20.0,
        "break_max_s": 240.0,
        "trial_timeout_s": 120.0,
    },
}

_CHOICES: Mapping[str, type[Enum]] = {"share": ShareRule, "allotment": AllotRule, "estimates": FoldRule}
_NEVER_NEGATIVE = (
    "grace_s",
    "settle_s",
    "trial_clean_s",
    "trial_timeout_s",
    "spacing_s",
    "retry_after_max_s",
)
_POSITIVE = (
    "confirm_s",
    "ageing_s",
    "heartbeat_s",
    "break_s",
    "break_max_s",
    "probe_s",
    "burst_window_s",
    "trip_window_s",
    "rotation_s",
)
_AT_LEAST = {
    "step": 0.01,
    "cut_factor": 1.1,
    "burst_factor": 1.1,
    "burst_count": 1,
    "trip_cuts": 1,
    "spacing_jitter": 0,
}


def resolve_pool(changes: PoolChanges) -> PoolSettings:
    """The whole settings of a pool from the values a person named."""
    profile = changes.get("profile", "mixed")
    if profile not in PROFILES:
        raise UsageError(
            f"unknown profile {profile!r}; choose one of {', '.join(PROFILES)}", settings=("profile",)
        )
    values: dict[str, object] = {**PROFILES[profile], **changes, "profile": profile}
    cap = values.get("cap", _DEFAULTS.cap)
    _whole("cap", cap)
    if "cap_ceiling" not in changes and ("cap" in changes or "cap_ceiling" not in PROFILES[profile]):
        # A cap named above the profile's own ceiling still needs room to probe.
        values["cap_ceiling"] = max(cast(int, cap) * 2, cast(int, PROFILES[profile].get("cap_ceiling", 0)))
    if "trial_clean_s" not in changes:
        values["trial_clean_s"] = values.get("settle_s", _DEFAULTS.settle_s)
    for name, words in _CHOICES.items():
        if name in changes:
            values[name] = _choice(name, cast(str, values[name]), words)
    if values.get("controller", _DEFAULTS.controller) not in CONTROLLERS:
        raise UsageError(
            f"unknown controller {values['controller']!r}; choose one of {', '.join(CONTROLLERS)}",
            settings=("controller",),
        )
    unknown = sorted(set(changes) - set(PoolChanges.__annotations__))
    if unknown:
        known = ", ".join(sorted(PoolChanges.__annotations__))
        raise UsageError(f"unknown pool setting {unknown[0]!r}; known: {known}", settings=(unknown[0],))
    settings = PoolSettings(**values)  # type: ignore[arg-type]
    _check(settings)
    return settings


def merge_changes(old: PoolChanges, new: PoolChanges) -> PoolChanges:
    """``old`` with what ``new`` names. Weights, maxima and windows merge by name; 0 removes an entry."""
    merged: PoolChanges = {**old, **new}
    for key in ("weights", "maxima", "windows"):
        if key in new:
            entries = {**old.get(key, {}), **_by_name(key, new[key])}
            merged[key] = {  # type: ignore[typeddict-item]
                name: value for name, value in entries.items() if value not in (0, "0")
            }
    settings = resolve_pool(merged)
    if new.keys() & {"break_s", "break_max_s", "profile"}:
        _check_break(settings)
    return merged


def _check_break(s: PoolSettings) -> None:
    """Only who changes it is told: a state that has such a pair from before stays readable."""
    if s.break_s > s.break_max_s:
        raise UsageError(
            f"break_s {s.break_s:g} is above break_max_s {s.break_max_s:g}, the longest break; "
            "raise the longest or lower the break",
            settings=("break_s", "break_max_s"),
        )


_NAMED_BY = {"weights": "project", "maxima": "project", "windows": "window", "resources": "resource"}


def _by_name(what: str, given: Mapping[str, V]) -> Mapping[str, V]:
    """What a person says by name. Looked at when it is said: what is stored already is never in the way."""
    if not isinstance(given, Mapping):
        raise UsageError(
            f"{what} must say a value for each {_NAMED_BY[what]}, not {given!r:.80}", settings=(what,)
        )
    for name, value in given.items():
        if value not in (0, "0"):
            check_name(_NAMED_BY[what], name)
    return given


def _choice(name: str, word: str, words: type[Enum]) -> Enum:
    try:
        return words(word)
    except ValueError:
        known = " or ".join(str(choice.value) for choice in words)
        raise UsageError(f"{name} must be {known}, not {word!r}", settings=(name,)) from None


def _check(s: PoolSettings) -> None:
    for name in ("cap", "cap_floor", "cap_ceiling", "reserve", "burst_count", "trip_cuts"):
        _whole(name, getattr(s, name))
    for name, least in _AT_LEAST.items():
        if not _is_number(getattr(s, name)) or getattr(s, name) < least:
            words = f"{name} must be a number of at least {least:g}, not {getattr(s, name)!r}"
            raise UsageError(words, settings=(name,))
    if s.spacing_jitter > 1:
        words = f"spacing_jitter must be between 0 and 1, not {s.spacing_jitter!r}"
        raise UsageError(words, settings=("spacing_jitter",))
    if not isinstance(s.adaptive, bool):
        raise UsageError(f"adaptive must be true or false, not {s.adaptive!r}", settings=("adaptive",))
    if s.cap < 1:
        raise UsageError(f"cap must be at least 1, not {s.cap}", settings=("cap",))
    if s.cap_floor < 1:
        raise UsageError(f"cap_floor must be at least 1, not {s.cap_floor}", settings=("cap_floor",))
    if s.cap_ceiling < s.cap:
        words = f"cap_ceiling {s.cap_ceiling} is below cap {s.cap}; raise the ceiling or lower the cap"
        raise UsageError(words, settings=("cap_ceiling", "cap"))
    if s.cap_floor > s.cap:
        words = f"cap_floor {s.cap_floor} is above cap {s.cap}; lower the floor or raise the cap"
        raise UsageError(words, settings=("cap_floor", "cap"))
    if not 0 <= s.reserve < s.cap:
        words = f"reserve must be between 0 and cap - 1 ({s.cap - 1}), not {s.reserve}"
        raise UsageError(words, settings=("reserve", "cap"))
    for name in (*_NEVER_NEGATIVE, *_POSITIVE):
        _duration(name, getattr(s, name), positive=name in _POSITIVE)
    _check_windows(s.windows)
    for project, weight in s.weights.items():
        if not _is_number(weight) or not weight > 0:
            words = f"weight of {project!r} must be a positive number, not {weight!r}"
            raise UsageError(words, settings=("weights",))
    for project, maximum in s.maxima.items():
        _whole(f"maximum of {project!r}", maximum, setting="maxima")
        if maximum < 1:
            words = f"maximum of {project!r} must be at least 1, not {maximum}"
            raise UsageError(words, settings=("maxima",))


def _check_windows(windows: Mapping[str, str]) -> None:
    for name, text in windows.items():
        check_name("window", name)
        try:
            amount, per_s = rate(text)
        except UsageError as error:
            raise UsageError(str(error), settings=("windows",)) from error
        if not 0 < amount < 1e15 or not 0 < per_s <= 366 * 86400:
            raise UsageError(f"window {name!r} of {text!r} is out of range", settings=("windows",))


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)


def _whole(name: str, value: object, *, setting: str = "") -> None:
    if not isinstance(value, int) or isinstance(value, bool):
        raise UsageError(f"{name} must be a whole number, not {value!r}", settings=(setting or name,))
    if value > 1_000_000_000:
        raise UsageError(f"{name} is absurdly large: {value}", settings=(setting or name,))


def _duration(name: str, value: object, *, positive: bool) -> None:
    if not _is_number(value) or cast(float, value) < 0 or (positive and value == 0):
        words = f"{name} must be {'above 0' if positive else '0 or more'} seconds, not {value!r}"
        raise UsageError(words, settings=(name,))


class MachineChanges(TypedDict, total=False):
    """The limits over all pools that a person may name. None turns one off."""

    ceiling: int | None
    memory_floor_bytes: int | None
    resources: dict[str, int]


@dataclass(frozen=True, slots=True)
class MachineSettings:
    """Limits over all pools of one machine. All off by default."""

    ceiling: int | None = None
    memory_floor_bytes: int | None = None
    resources: Mapping[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name, value in (("ceiling", self.ceiling), ("memory_floor_bytes", self.memory_floor_bytes)):
            if value is not None:
                _whole_or_bytes(name, value)
        for kind, capacity in self.resources.items():
            _whole(f"capacity of resource {kind!r}", capacity)
            if capacity < 1:
                raise UsageError(f"capacity of resource {kind!r} must be at least 1, not {capacity}")


def merge_machine(old: MachineSettings, new: MachineChanges) -> MachineSettings:
    """``old`` with what ``new`` names. Resources merge by kind; 0 removes one."""
    unknown = sorted(set(new) - set(MachineChanges.__annotations__))
    if unknown:
        known = ", ".join(sorted(MachineChanges.__annotations__))
        raise UsageError(f"unknown machine limit {unknown[0]!r}; known: {known}")
    resources = {**old.resources, **_by_name("resources", new.get("resources", {}))}
    return MachineSettings(
        ceiling=new.get("ceiling", old.ceiling),
        memory_floor_bytes=new.get("memory_floor_bytes", old.memory_floor_bytes),
        resources={kind: count for kind, count in resources.items() if count != 0},
    )


def _whole_or_bytes(name: str, value: object) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise UsageError(f"{name} must be a whole number above 0, not {value!r}")


def check_machine(machine: MachineSettings) -> None:
    """Refuse what does not say which limits are meant."""
    if not isinstance(machine, MachineSettings):
        raise UsageError(f"the machine's limits are a MachineSettings, not {machine!r:.80}")
    _by_name("resources", machine.resources)
