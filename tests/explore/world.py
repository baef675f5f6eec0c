"""What is searched: scenarios, and worlds made of small numbers.

Times are relative to now, and of sequence numbers only the order is kept, so the same situation later is the
same world and a search can come to its end. What no decision of the rule reads is left out: work as it was
reported, tallies, and what only ``beat.due`` looks at, since the model may renew at any time.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple

UNBORN, LIVE, OVER = 0, 1, 2
PLENTY = 9
"""What a process wants that could use any number of slots."""


class Hold(NamedTuple):
    """A ``Holding``."""

    seq: int = 0
    pending: int = 0
    age: int = 0
    """Since the pending renewal was sent, as far as it matters to the fence."""
    slots: int = 0
    """What was declared or counted; kept where something still depends on it."""
    gate: int = 0
    fence: int = 0
    """Until the fence; 0 is fenced."""
    early: int = 0
    """The pending renewal was sent before the fence that has been reached since."""
    leaving: int = 0
    told: int = 0
    failed: int = 0
    """The latest renewal was given up; kept where it leaves."""


class Row(NamedTuple):
    """A ``ShareLease``."""

    seq: int
    slots: int
    owed: int
    target: int
    draining: int
    expires: int
    """Until it may be evicted."""
    since: int
    wants: int


class Request(NamedTuple):
    seq: int
    holds: int
    wants: int
    beyond: int
    leaving: int


class Answer(NamedTuple):
    seq: int
    slots: int
    gate: int
    ttl: int


class Block(NamedTuple):
    """One incarnation: its process, its lease, and the messages between them."""

    status: int = LIVE
    hold: Hold = Hold()
    work: int = 0
    old: int = 0
    """Work that goes on beyond a fence."""
    grace: int = 0
    """Until that work has ended at the latest."""
    drift: int = 0
    """How far the holder's clock may get behind the store's."""
    offset: int = 0
    """How far it is."""
    hungry: int = 1
    row: Row | None = None
    saved: Row | None = None
    """The lease as it is in a snapshot of the store."""
    requests: tuple[Request, ...] = ()
    answers: tuple[Answer, ...] = ()


class Books(NamedTuple):
    """A ``Pot``: what a renewal reads beside its own row."""

    cap: int
    held: int
    nodes: int
    learning: int
    ttl: int


class World(NamedTuple):
    cap: int
    ttl: int
    high: int
    """The most that may be in flight: the cap, or what was held when it was lowered and has not come down."""
    learning: int
    """Until the store stops learning."""
    left: tuple[int, ...]
    """How often each kind of RARE move may still happen."""
    blocks: tuple[Block, ...]


class Kind(Enum):
    """What can be wrong."""

    OVERSHOOT = "more in flight than the cap"
    OVERGRANT = "more granted than the cap"
    OVERCOUNT = "more in the books than the cap"
    UNCOVERED = "more in use than the store counts"
    LOST = "a slot that no node gets any more"
    STUCK = "more held than the cap, for ever"
    STARVED = "a node that gets nothing any more"


class Fault(NamedTuple):
    kind: Kind
    words: str


def called(index: int) -> str:
    """The name of a process in what people read."""
    return "ABC"[index]


RARE = ("join", "leave", "crash", "flush", "save", "restore", "cap", "ttl", "notice", "mood")
GONE = Block(status=OVER)


@dataclass(frozen=True)
class Process:
    """One incarnation of a node."""

    node: str = ""
    """The node id, where more than one incarnation has the same."""
    starts: bool = True
    heir: int | None = None
    """The process that starts in its place, under the same node id, when this one crashes."""
    drift: int = 0
    """How many ticks its clock may be behind. It may catch up and fall behind again without end."""
    seq: int = 0
    """How many renewals it has sent before anything is looked at."""


class AtFence(Enum):
    """What work does whose holder is fenced."""

    ABORT = "ends at once"
    LINGER = "ends within the grace"
    STUBBORN = "goes on, and is not counted"
    DEAF = "goes on, and is counted: it was not told"


@dataclass(frozen=True, kw_only=True)
class Scenario:
    """What may happen, and how much of it. The bounds of a search are these and nothing else."""

    name: str
    processes: tuple[Process, ...] = (Process(), Process())
    caps: tuple[int, ...] = (2,)
    """The cap, and the values it may move between."""
    rare: Mapping[str, int] = field(default_factory=dict)
    """How often each kind of RARE move may happen."""
    ttls: tuple[int, ...] = (4,)
    """Ticks that a lease lasts, and the values this may move between."""
    grace: int = 0
    at_fence: AtFence = AtFence.ABORT
    local: int = 0
    """What a fenced holder admits by itself; such work is not counted."""
    time: bool = True
    wire: int = 1
    """Messages on their way, per process and direction."""
    twice: bool = True
    """Messages may be delivered any number of times."""
    lossy: bool = True
    """Messages get lost. Otherwise they may still be late for ever."""
    impatient: bool = False
    """Holders may stop waiting for a reply before they renew again."""
    prompt: bool = False
    """The plan is made in the same step as every renewal, as a store does that finds it due."""
    demand: bool = False
    full: int = 50_000
    """States to visit at most in a soak, where the search does not end by itself before."""

    def words(self) -> str:
        """Its bounds, as a person reads them."""
        drift = max(one.drift for one in self.processes)
        namesakes = sum(1 for one in self.processes if one.node)
        parts = [
            f"{len(self.processes)} processes",
            f"{namesakes} of them under one node id" if namesakes else "",
            f"cap {' or '.join(map(str, self.caps))}",
            f"TTL {' or '.join(map(str, self.ttls))} ticks" if self.time else "no time",
            f"grace {self.grace}" if self.grace else "",
            f"drift {drift} tick" if drift else "",
            f"{self.wire} message{'s' * (self.wire > 1)} each way",
            "loss" if self.lossy else "",
            "duplicates" if self.twice else "",
            "replies given up" if self.impatient else "",
            f"local {self.local}" if self.local else "",
            "by demand" if self.demand else "",
            "plan with every renewal" if self.prompt else "",
            "" if self.at_fence in (AtFence.ABORT, AtFence.LINGER) else f"fenced work {self.at_fence.value}",
            *(f"{times} x {kind}" for kind, times in self.rare.items()),
        ]
        return ", ".join(part for part in parts if part)
