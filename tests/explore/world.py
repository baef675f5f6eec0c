"""What is searched: scenarios, and worlds made of small numbers.

Times are relative to now, and of sequence numbers only the order is kept, so the same situation later is the
same world and a search can come to its end. What no decision of the rule reads is left out: work as it was
reported, tallies, and what only ``beat.due`` looks at, since the model may renew at any time.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
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
    fenced: int
    leaving: int


class Answer(NamedTuple):
    seq: int
    slots: int
    gate: int


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


class World(NamedTuple):
    cap: int
    high: int
    """The most that may be in flight: the cap, or what was held when it was lowered and has not come down."""
    learning: int
    """Until the store stops learning."""
    left: tuple[int, ...]
    """How often each kind of RARE move may still happen."""
    blocks: tuple[Block, ...]


RARE = ("join", "leave", "crash", "flush", "save", "restore", "cap", "notice", "mood")
GONE = Block(status=OVER)


@dataclass(frozen=True)
class Process:
    """One incarnation of a node; its place in the scenario is its name in the model."""

    starts: bool = True
    heir: int | None = None
    """The process that starts in its place, under the same node id, when this one crashes."""
    drift: int = 0
    """How many ticks its clock may be behind. It may catch up and fall behind again without end."""


@dataclass(frozen=True, kw_only=True)
class Scenario:
    """What may happen, and how much of it. The bounds of a search are these and nothing else."""

    name: str
    processes: tuple[Process, ...] = (Process(), Process())
    caps: tuple[int, ...] = (2,)
    """The cap, and the values it may move between."""
    rare: Mapping[str, int] = field(default_factory=dict)
    """How often each kind of RARE move may happen."""
    ttl: int = 4
    grace: int = 0
    at_fence: str = "abort"
    """What work does at a fence: abort (ends at once), linger (ends within the grace), stubborn (goes on,
    and is not counted), deaf (goes on, and is counted: nobody told it)."""
    time: bool = True
    wire: int = 1
    """Messages on their way, per process and direction."""
    twice: bool = True
    """Messages may be delivered any number of times."""
    lossy: bool = True
    """Messages get lost. Otherwise they may still be late for ever."""
    demand: bool = False
    alias: Mapping[int, int] = field(default_factory=dict)
    """Processes under the node id of another, for stores that do not tell incarnations apart."""
    full: int = 0
    """States to visit at most in a soak, where the search does not end by itself before."""
    quick: int = 0
    """The same in every test run."""
