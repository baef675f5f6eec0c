"""The records of a pool: holders, asks and claims, the limits, the meters and counts, and the facts.

Times are seconds on the store's own clock (never a wall clock); durations end in ``_s``.

    Ask -> Claim      an ask waits and becomes a lease under one id; a claim is either
    Limits            what the plan decided; admission reads it and never changes it
    Meters, counts    what every grant and release changes; the plan reads it at a bounded rate
    Fact              what happened, for people who ask later
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum, StrEnum

from flyball.core.pool.holder import Holder
from flyball.core.pool.rate_window import Window
from flyball.core.pool.settings import ShareRule


class Outcome(Enum):
    """What a lease's release tells the pool."""

    FINISHED = "finished"
    THROTTLED = "throttled"
    FAILED = "failed"
    ABANDONED = "abandoned"


class Phase(Enum):
    """What the breaker lets through. The transitions are drawn in breaker.py."""

    CLOSED = "closed"
    OPEN = "open"
    TRIAL = "trial"


@dataclass(frozen=True, slots=True, kw_only=True)
class Ask:
    """One request for slots, before it has waited or been granted."""

    pool: str
    project: str
    name: str
    holder: Holder
    slots: int = 1
    priority: int = 0
    resources: Mapping[str, int] = field(default_factory=dict)
    model: str = ""
    mailbox: str = ""
    """The address that wakes the waiter; empty for one that only polls."""
    cost: Mapping[str, float] = field(default_factory=dict)
    """What it expects to use of the pool's windows, by name."""
    ttl_s: float | None = None
    """Ask and lease end unless they are extended in time; None: with their holder's process."""
    key: str = ""
    """Asked again under this key, in this pool, it is answered as the first time; empty: every ask is new."""
    fingerprint: str = ""
    """What was asked for: a key may not be used for anything else."""
    unread: bool = False
    """The provider's answers are not seen as they come: silence is not evidence for a higher cap."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """The part of an ask that matters for admission."""

    id: int
    project: str
    priority: int = 0
    slots: int = 1
    resources: Mapping[str, int] = field(default_factory=dict)
    asked_at: float = 0.0
    cost: Mapping[str, float] = field(default_factory=dict)
    name: str = ""


@dataclass(frozen=True, slots=True)
class IdempotencyRecord:
    """What an ask under a key was answered, for the next ask under the same key."""

    fingerprint: str
    claim_id: int
    granted: bool
    in_use: int
    cap: int
    until: float
    asked_at: float


@dataclass(frozen=True, slots=True)
class Claim:
    """An ask that waits (``granted_at`` is None) or the lease it became, under one id."""

    id: int
    pool: str
    project: str
    name: str
    holder: Holder
    slots: int
    priority: int
    resources: Mapping[str, int]
    model: str
    mailbox: str
    launcher_pid: int
    asked_at: float
    granted_at: float | None
    expires_at: float | None
    why: str = ""
    """The reason it was given when it had to wait."""
    level: int = 0
    """Slots of the pool in use right after it was granted, its own included."""
    cost: Mapping[str, float] = field(default_factory=dict)
    marks: Mapping[str, float] = field(default_factory=dict)
    """How much of each window had been spent when it was granted (rate_window.py)."""
    unread: bool = False
    confirmed_at: float | None = None
    """When its host last said that it looks after its leases; None where no host has to."""

    @property
    def held(self) -> bool:
        return self.granted_at is not None

    @property
    def rests(self) -> bool:
        """A lease of no slots: its run waits out a limit until ``expires_at``, and is kept for display."""
        return self.slots == 0


@dataclass(frozen=True, slots=True)
class Limits:
    """What the plan decided and admission compares against. Valid until ``valid_until``."""

    version: int
    valid_until: float
    cap: int
    ceiling: int
    reserve: int
    phase: Phase
    closed_until: float | None
    """No ask is admitted before this: the breaker's break, a Retry-After, or a usage window that is nearly
    used up."""
    spacing_s: float
    spacing_jitter: float
    share: ShareRule
    ageing_s: float
    open_above: int | None = None
    """Closed for the sake of a usage window: asks of a priority above this are admitted all the same."""


HOLD_SMOOTHING = 0.2


@dataclass(slots=True)
class Meters:
    """What every grant and release changes; the plan folds it at a bounded rate."""

    next_grant_at: float = 0.0
    """Spacing: no grant before this."""
    bound_at: float = float("-inf")
    """The last time the cap was what limited work."""
    capped: bool = False
    """An ask waits for more slots than the cap leaves."""
    bound_oks: int = 0
    """Successes since the last plan that ended while the cap was full: they are evidence for more."""
    trial_id: int | None = None
    """The claim that is the breaker's trial, once one has been admitted."""
    trial_at: float = 0.0
    trial_project: str = ""
    trial_name: str = ""
    hold_mean_s: float = 0.0
    """Smoothed time a lease was held; 0 until one has ended."""
    high: int = 0
    """The most calls in flight together with one that was sent after the last refusal and has succeeded."""
    turn: float = 0.0
    """Where the hand-out stands: the turn of the project that was last handed a slot."""
    work: float = 0.0
    """Grants counted since refusals began, to find out a quota; 0 while they are not counted."""
    work_tokens: float = 0.0
    windows: tuple[Window, ...] = ()

    def note_hold(self, held_s: float) -> None:
        """One more lease has ended: move the smoothed time a little towards its own."""
        weight = HOLD_SMOOTHING if self.hold_mean_s else 1.0
        self.hold_mean_s += (held_s - self.hold_mean_s) * weight


@dataclass(slots=True)
class PoolCounts:
    """Kept by the store in the same step that changes a claim."""

    in_use: int = 0
    low_in_use: int = 0
    """Slots held by asks of priority 0 or below: the ones the reserve is kept from."""
    waiting: int = 0

    def fill(self, cap: int, *, reserve: int) -> bool:
        """Do these take every slot that an ordinary ask may have? A reserve never takes the last one."""
        kept = min(reserve, cap - 1)
        return self.in_use >= cap or (kept > 0 and self.low_in_use >= cap - kept)


@dataclass(slots=True)
class ProjectUse:
    """One project inside one pool."""

    name: str
    in_use: int = 0
    waiting: int = 0
    weight: float = 1.0
    maximum: int | None = None
    share: int | None = None
    """Strict sharing only: how many slots the plan allots; None before the first plan saw it."""
    turn: float = 0.0
    """When it is this project's turn again, on a clock that moves only with hand-outs (see admission.py)."""


@dataclass(frozen=True, slots=True)
class MachineUse:
    """What admission needs to know about the whole machine; everything off is the default."""

    ceiling: int | None = None
    in_use: int = 0
    memory_floor_bytes: int | None = None
    memory_free_bytes: int | None = None
    resource_free: Mapping[str, int] = field(default_factory=dict)
    """Free units of each kind of resource that a person declared."""
    agents: frozenset[tuple[str, str]] = frozenset()
    """Agents whose calls are counted one by one, by project and name. The machine counts the agents."""
    cpu_pressure_limit: int | None = None
    cpu_pressure: float | None = None
    """How much of the last ten seconds work waited for a CPU, per cent; None where it is not known."""

    def bounds(self, ask: Candidate) -> bool:
        """False for a call of an agent that is counted already: it needs no more of the machine."""
        return (ask.project, ask.name) not in self.agents


class FactKind(StrEnum):
    """What happened to an ask or its lease (``ASK_FACTS``), or to a pool."""

    GRANTED = "granted"
    REFUSED = "refused"
    GAVE_UP = "gave up"
    RECLAIMED = "reclaimed"
    """Its holder is gone, or its time is over."""
    UNANSWERED = "unanswered"
    """Its waiter never took the slot."""
    HELD = "held"
    """It was recorded as already running."""
    RESTS = "rests"
    ENDED = "ended"
    CUT = "cut"
    UNDO = "undo"
    PROBE = "probe"
    CLOSED = "closed"
    """For so long as the provider said."""
    OPEN = "open"
    """The breaker opened; ``TRIAL`` and ``CLOSE`` are its other moves."""
    TRIAL = "trial"
    CLOSE = "close"
    QUOTA = "quota"
    USAGE = "usage"
    SHARE = "share"
    PERSON = "person"
    """Only a person can change it."""


ASK_FACTS = frozenset(
    {
        FactKind.GRANTED,
        FactKind.REFUSED,
        FactKind.GAVE_UP,
        FactKind.RECLAIMED,
        FactKind.UNANSWERED,
        FactKind.HELD,
        FactKind.RESTS,
        FactKind.ENDED,
    }
)
"""They come by the thousand; facts about a pool are rare and kept apart."""


@dataclass(frozen=True, slots=True)
class Fact:
    """Something that happened and that a person may ask about later."""

    at: float
    pool: str
    kind: str
    """A ``FactKind``, or a word that a newer flyball stored."""
    words: str
    project: str = ""
    name: str = ""
    pid: int = 0


class Notes:
    """Collects the facts of one planning step."""

    def __init__(self, pool: str, project: str, name: str, now: float) -> None:
        self.pool, self.project, self.name, self.now = pool, project, name, now
        self._facts: list[Fact] = []

    def add(self, kind: FactKind, words: str) -> None:
        self._facts.append(Fact(self.now, self.pool, kind, words, self.project, self.name))

    @property
    def facts(self) -> tuple[Fact, ...]:
        return tuple(self._facts)
