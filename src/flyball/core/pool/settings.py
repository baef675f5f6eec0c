"""What people write. Settings never learn; what the machine learns is ``LearnedState`` (plan.py).

A pool's settings are a *profile* (a named set of constants) with the few values a person named on
top. Only the named values are stored, so a better default reaches everyone who never chose, and a
``set`` changes exactly what it names.

    mixed    out of the box: the agents' timing, no spacing, so agents and calls can share a pool
    agents   holds of minutes: settle 120 s, one probe per 5 quiet minutes, 3 s between starts
    calls    holds of seconds: start 2, ceiling 12, +0.5 per success, cooldown 8 s; breaker times scaled alike

A *controller* is the algorithm that moves the cap (``control/``); any controller runs under any profile.

The checks of names, amounts and times stand here too. One machine's state is shared by every program on it,
so a name that cannot be shown or a value that is not a number would trouble all of them once it is stored.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Any, TypedDict, cast, get_args

from flyball.core.pool.rate_window import parse_rate
from flyball.core.share_lease.timing import AllotRule, FoldRule, ShareTiming, timing_for
from flyball.errors import UsageError

if TYPE_CHECKING:
    from flyball.core.pool.model import Ask

NAME_LIMIT = 200
AMOUNT_LIMIT = 1e15
PRIORITY_LIMIT = 1000
SLOTS_LIMIT = 1_000_000_000
TTL_LIMIT_S = 7 * 86400.0
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
        # type() and not isinstance: True is not an amount.
        if type(amount) not in (int, float) or not 0 <= amount < AMOUNT_LIMIT:
            raise UsageError(
                f"{what} in {window!r} must be a number from 0 to {AMOUNT_LIMIT:g}, not {amount!r:.80}"
            )


def check_timeout(timeout: float | None) -> None:
    """How long a caller is ready to wait."""
    if timeout is None:
        return
    said: object = timeout
    number = isinstance(said, int | float) and not isinstance(said, bool)
    # A float may be endless; a whole number too large for one fails in the middle of the wait.
    if not number or not (0 <= timeout < AMOUNT_LIMIT or timeout == math.inf):
        raise UsageError(
            f"timeout must be from 0 to {AMOUNT_LIMIT:g} seconds, or None for ever; not {timeout!r:.80}"
        )


def check_ask(ask: Ask) -> None:
    """Refuse nonsense before it reaches the state."""
    check_name("pool", ask.pool)
    check_name("project", ask.project)
    check_name("name", ask.name)
    if ask.model != "":
        check_name("model", ask.model, empty=True)
    # type() and not isinstance: True is not a number of slots.
    if type(ask.slots) is not int or type(ask.priority) is not int:
        raise UsageError(f"slots and priority must be whole numbers, not {ask.slots!r} and {ask.priority!r}")
    if ask.cost:
        check_amounts("the cost", ask.cost)
    if ask.ttl_s is not None:
        check_ttl(ask.ttl_s)
    if ask.key:
        check_name("key", ask.key, limit=KEY_LIMIT)
    if not 1 <= ask.slots <= SLOTS_LIMIT:
        raise UsageError(f"slots must be from 1 to {SLOTS_LIMIT}, not {ask.slots!r:.80}")
    if abs(ask.priority) > PRIORITY_LIMIT:
        raise UsageError(
            f"priority must be between -{PRIORITY_LIMIT} and {PRIORITY_LIMIT}, not {ask.priority}"
        )
    for kind, units in ask.resources.items():
        check_name("resource", kind)
        if type(units) is not int:
            raise UsageError(f"units of resource {kind!r} must be a whole number, not {units!r:.80}")


def check_demand(project: str, ttl_s: float) -> None:
    """Refuse what announces nothing; a time that is over takes an announcement back."""
    check_name("project", project)
    if type(ttl_s) not in (int, float) or not ttl_s <= TTL_LIMIT_S:
        raise UsageError(f"a demand lasts at most {TTL_LIMIT_S:g} s, not {ttl_s!r:.80}")


def check_ttl(ttl_s: float) -> None:
    if type(ttl_s) not in (int, float) or not 0 < ttl_s <= TTL_LIMIT_S:
        raise UsageError(f"a time to live must be from above 0 to {TTL_LIMIT_S:g} s, not {ttl_s!r}")


DEFAULT_POOL = "anthropic"
AGENTS_POOL = "agents"
"""Where agents hold a slot whose calls are counted one by one in their providers' pools."""
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
    """What makes the cap of an AIMD controller rise."""

    QUIET = "quiet"
    SUCCESS = "success"


class Counting(Enum):
    """What holds a slot of a pool: one model call, or an agent's process as long as it lives."""

    AUTO = "auto"
    """The call where it can be seen, else the process."""
    CALLS = "calls"
    AGENTS = "agents"


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
    counts: str
    families: dict[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolSettings:
    """Everything the plan needs to know that a person decided. Durations in seconds. ``SETTINGS`` says what
    each field means and may be."""

    profile: str = "mixed"
    controller: str = "measured"
    adaptive: bool = True
    cap: int = 8
    cap_floor: int = 1
    cap_ceiling: int = 16
    confirm_s: float = 30.0
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
    reserve: int = 0
    ageing_s: float = 60.0
    heartbeat_s: float = 1.0
    grace_s: float = 0.0
    allotment: AllotRule = AllotRule.DEMAND
    estimates: FoldRule = FoldRule.MEDIAN
    counts: Counting = Counting.AUTO
    families: Mapping[str, str] = field(default_factory=dict)

    @property
    def share_terms(self) -> ShareTiming:
        return timing_for(self.heartbeat_s, grace_s=self.grace_s)

    @property
    def adapts(self) -> bool:
        """Whether a controller moves the cap and the breaker may act."""
        return self.adaptive and self.controller != "fixed"

    @property
    def growth(self) -> Growth:
        return Growth.SUCCESS if self.controller == "article" else Growth.QUIET


CONTROLLERS = ("measured", "article", "koryph", "gradient2", "fixed")
"""In the order in which help shows them; the first is the default."""

_DEFAULTS = PoolSettings()

PROFILES: Mapping[str, Mapping[str, Any]] = {
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
            for name, entry in _entries(self.name, self.named_by, value).items():
                self._check_one(f"{self.name} of {name!r}", entry)

    def _check_one(self, what: str, value: object) -> None:
        if self.value_type is int:
            _check_whole(what, value, setting=self.name)
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
            "families", dict[str, str], "--family", "NAME=MODEL",
            "calls of these models use a pool of their own, such as opus=claude-opus-*",
            named_by="family", form="a model's name, in which * stands for anything"
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
            entries = {**cast(dict[str, Any], old.get(key, {})), **_check_entry_names(key, named_by, given)}
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


def _entries(what: str, named_by: str, given: object) -> Mapping[str, Any]:
    if not isinstance(given, Mapping):
        raise UsageError(f"{what} must say a value for each {named_by}, not {given!r:.80}", settings=(what,))
    return given


def _check_entry_names(what: str, named_by: str, given: object) -> Mapping[str, Any]:
    """Entries by name, as a person gave them. What is stored already is not checked again."""
    entries = _entries(what, named_by, given)
    for name, value in entries.items():
        if value not in (0, "0"):
            check_name(named_by, name)
    return entries


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


def _check_whole(name: str, value: object, *, setting: str = "") -> None:
    if not isinstance(value, int) or isinstance(value, bool):
        raise UsageError(f"{name} must be a whole number, not {value!r}", settings=(setting or name,))
    if value > 1_000_000_000:
        raise UsageError(f"{name} is absurdly large: {value}", settings=(setting or name,))


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
        limits: dict[str, object] = {
            "ceiling": self.ceiling,
            "memory_floor_bytes": self.memory_floor_bytes,
        }
        for name, value in limits.items():
            if value is None:
                continue
            if not isinstance(value, int) or isinstance(value, bool) or value < 1:
                raise UsageError(f"{name} must be a whole number above 0, not {value!r}")
        for kind, capacity in self.resources.items():
            _check_whole(f"capacity of resource {kind!r}", capacity)
            if capacity < 1:
                raise UsageError(f"capacity of resource {kind!r} must be at least 1, not {capacity}")


def merge_machine(old: MachineSettings, new: MachineChanges) -> MachineSettings:
    """``old`` with what ``new`` names. Resources merge by kind; 0 removes one."""
    unknown = sorted(set(new) - set(MachineChanges.__annotations__))
    if unknown:
        known = ", ".join(sorted(MachineChanges.__annotations__))
        raise UsageError(f"unknown machine limit {unknown[0]!r}; known: {known}")
    resources = {**old.resources, **_check_entry_names("resources", "resource", new.get("resources", {}))}
    return MachineSettings(
        ceiling=new.get("ceiling", old.ceiling),
        memory_floor_bytes=new.get("memory_floor_bytes", old.memory_floor_bytes),
        resources={kind: count for kind, count in resources.items() if count != 0},
    )


def check_machine(machine: MachineSettings) -> None:
    """Refuse what does not say which limits are meant."""
    if not isinstance(machine, MachineSettings):
        raise UsageError(f"the machine's limits are a MachineSettings, not {machine!r:.80}")
    _check_entry_names("resources", "resource", machine.resources)
