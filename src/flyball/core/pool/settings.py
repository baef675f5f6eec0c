"""What people write. Settings never learn; what the machine learns is ``LearnedState`` (plan.py).

A pool's settings are a *profile* (a named set of constants) with the few values a person named on
top. Only the named values are stored, so a better default reaches every user who never chose, and a
``set`` changes exactly what it names.

    mixed    out of the box: the agents' timing, no spacing, so agents and calls can share a pool
    agents   holds of minutes: settle 120 s, one probe per 5 quiet minutes, 3 s between starts
    calls    holds of seconds: start 2, ceiling 12, +0.5 per success, cooldown 8 s; breaker times scaled alike

A *controller* is the algorithm that moves the cap (``control/``); any controller runs under any profile.

What each setting means and may be is in ``setting_table.py``: an admission needs none of it.

The checks of names, amounts and times stand at the end. One machine's state is shared by every program on it,
so a name that cannot be shown or a value that is not a number would trouble all of them once it is stored.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Any, TypedDict

from flyball.core.share_lease.timing import AllotRule, FoldRule, ShareTiming, timing_for
from flyball.errors import UsageError

if TYPE_CHECKING:
    from flyball.core.pool.model import Ask

NAME_LIMIT = 200
AMOUNT_LIMIT = 1e15
PRIORITY_LIMIT = 1000
SLOTS_LIMIT = 1_000_000_000
TTL_LIMIT_S = 7 * 86400.0
DEFAULT_POOL = "anthropic"
AGENTS_POOL = "agents"
"""Where agents hold a slot whose calls are counted one by one in their providers' pools."""


def is_agents_pool(name: str) -> bool:
    """On a state that many machines share, each has its own: ``agents:HOST``."""
    return name == AGENTS_POOL or name.startswith(f"{AGENTS_POOL}:")


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
    usage_warn: float
    usage_slow: float
    usage_drain: float
    usage_keep: float
    subagents: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolSettings:
    """Everything the plan needs to know that a person decided. Durations in seconds. ``SETTINGS``
    (setting_table.py) says what each field means and may be."""

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
    usage_warn: float = 0.8
    usage_slow: float = 0.0
    usage_drain: float = 0.0
    usage_keep: float = 0.0
    subagents: int = 2

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


class MachineChanges(TypedDict, total=False):
    """The limits over all pools that a person may name. None turns one off."""

    ceiling: int | None
    memory_floor_bytes: int | None
    cpu_pressure: int | None
    resources: dict[str, int]


@dataclass(frozen=True, slots=True)
class MachineSettings:
    """Limits over all pools of one machine. All off by default."""

    ceiling: int | None = None
    memory_floor_bytes: int | None = None
    resources: Mapping[str, int] = field(default_factory=dict)
    cpu_pressure: int | None = None
    """Nothing starts while work waits for a CPU for more than this part of the time, per cent."""

    def __post_init__(self) -> None:
        limits: dict[str, object] = {
            "ceiling": self.ceiling,
            "memory_floor_bytes": self.memory_floor_bytes,
            "cpu_pressure": self.cpu_pressure,
        }
        for name, value in limits.items():
            if value is None:
                continue
            if not isinstance(value, int) or isinstance(value, bool) or value < 1:
                raise UsageError(f"{name} must be a whole number above 0, not {value!r}")
        if self.cpu_pressure is not None and self.cpu_pressure > 100:
            raise UsageError(f"cpu_pressure is a percentage from 1 to 100, not {self.cpu_pressure}")
        for kind, capacity in self.resources.items():
            check_whole(f"capacity of resource {kind!r}", capacity)
            if capacity < 1:
                raise UsageError(f"capacity of resource {kind!r} must be at least 1, not {capacity}")


def merge_machine(old: MachineSettings, new: MachineChanges) -> MachineSettings:
    """``old`` with what ``new`` names. Resources merge by kind; 0 removes one."""
    unknown = sorted(set(new) - set(MachineChanges.__annotations__))
    if unknown:
        known = ", ".join(sorted(MachineChanges.__annotations__))
        raise UsageError(f"unknown machine limit {unknown[0]!r}; known: {known}")
    resources = {**old.resources, **check_entry_names("resources", "resource", new.get("resources", {}))}
    return MachineSettings(
        ceiling=new.get("ceiling", old.ceiling),
        memory_floor_bytes=new.get("memory_floor_bytes", old.memory_floor_bytes),
        cpu_pressure=new.get("cpu_pressure", old.cpu_pressure),
        resources={kind: count for kind, count in resources.items() if count != 0},
    )


def check_machine(machine: MachineSettings) -> None:
    """Refuse what does not say which limits are meant."""
    if not isinstance(machine, MachineSettings):
        raise UsageError(f"the machine's limits are a MachineSettings, not {machine!r:.80}")
    check_entry_names("resources", "resource", machine.resources)


# -- checks -------------------------------------------------------------------------------------------------


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


def entries_by_name(what: str, named_by: str, given: object) -> Mapping[str, Any]:
    if not isinstance(given, Mapping):
        raise UsageError(f"{what} must say a value for each {named_by}, not {given!r:.80}", settings=(what,))
    return given


def check_entry_names(what: str, named_by: str, given: object) -> Mapping[str, Any]:
    """Entries by name, as a person gave them. What is stored already is not checked again."""
    entries = entries_by_name(what, named_by, given)
    for name, value in entries.items():
        if value not in (0, "0"):
            check_name(named_by, name)
    return entries


def check_whole(name: str, value: object, *, setting: str = "") -> None:
    if not isinstance(value, int) or isinstance(value, bool):
        raise UsageError(f"{name} must be a whole number, not {value!r}", settings=(setting or name,))
    if value > 1_000_000_000:
        raise UsageError(f"{name} is absurdly large: {value}", settings=(setting or name,))
