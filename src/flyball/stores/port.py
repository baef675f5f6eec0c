"""What the governor asks of a store, and the records that travel.

A claim is named by its id and, as ``asked_at``, by the time at which it was asked for on the store's clock. A
store that lost its last writes gives ids out again; an act that says the time never finds another's
claim. Without the time it is about whichever claim has the id now.

Every operation is one atomic step. It returns what has to happen *after* it: which waiters to wake and what
to tell observers. A store wakes no waiter itself and looks at no process; it is told which died.

What ``snapshot`` and the counting return stands with what makes it (snapshot.py, recount.py).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from flyball.core.pool.holder import Holder
from flyball.core.pool.model import Ask, Claim, Fact, Outcome

if TYPE_CHECKING:
    from flyball.core.pool.plan import LearnedState
    from flyball.core.pool.settings import MachineChanges, MachineSettings, PoolChanges
    from flyball.core.pool.verdict import Verdict
    from flyball.core.share_lease.renewal import Renewal, Reply
    from flyball.core.signals import Bucket, Signal
    from flyball.stores.recount import CountMismatch
    from flyball.stores.snapshot import Snapshot


@dataclass(frozen=True, slots=True)
class WakeUp:
    """Tell this waiter to look: it was granted a slot, or it is now first in line."""

    mailbox: str
    claim_id: int
    holder: Holder
    granted: bool = False
    """It has a slot. Good for a waiter of the process that took this very step; the others look."""


@dataclass(slots=True)
class AfterCommit:
    """What a verb leaves to do once it is committed."""

    wakes: list[WakeUp] = field(default_factory=list)
    facts: list[Fact] = field(default_factory=list)
    notices: list[str] = field(default_factory=list)
    """Mailboxes of share leases that should be renewed soon."""


@dataclass(frozen=True, slots=True)
class Release:
    """Everything a release says; kept and sent again if it could not be written."""

    claim_id: int
    outcome: Outcome = Outcome.FINISHED
    oks: int | None = None
    """Calls that succeeded under the lease; None where they were not counted and the outcome speaks."""
    rejected: bool = False
    """The call was refused: what it had reserved of the windows was not used."""
    used: Mapping[str, float] = field(default_factory=dict)
    """What it really used of the windows, where that is known."""
    buckets: tuple[Bucket, ...] = ()
    """What the last answer's headers said about the quotas."""
    words: str = ""
    """How it ended, for people."""
    asked_at: float | None = None


@dataclass(frozen=True, slots=True)
class Demand:
    """A project's standing heartbeat: it has ready work."""

    pool: str
    project: str
    holder: Holder
    until: float


@dataclass(frozen=True, slots=True)
class HolderCensus:
    """Processes whose death would change something."""

    claims: tuple[Claim, ...]
    demands: tuple[Demand, ...]


@runtime_checkable
class BatchStore(Protocol):
    """A store beside us, where several verbs of one thread may share a transaction."""

    def begin_together(self) -> bool:
        """What is called from now on is one step. False, without waiting, where another step is open."""

    def end_together(self, *, keep: bool) -> bool:
        """Commit it, or undo it. False: none of it was done."""


@runtime_checkable
class AtHand(Protocol):
    """A store beside us, which can be asked without waiting."""

    def is_granted_now(self, claim_id: int) -> bool:
        """Is this claim a lease? False also where that cannot be seen without waiting."""

    def grant_now(self, ask: Ask) -> Verdict | None:
        """Grant it, where nothing is in the way. None also where that takes more than a small write."""


class Store(Protocol):
    """The port. Implementations pass one conformance suite and give identical verdicts."""

    def admit(self, ask: Ask, *, park: bool) -> tuple[Verdict, AfterCommit]:
        """Grant, or park in line (``park``), or refuse."""

    def poll(
        self, claim_id: int, *, advance: bool, asked_at: float | None = None
    ) -> tuple[Verdict | None, AfterCommit]:
        """How an ask stands. ``advance`` also hands out what time has freed. None: it is gone."""

    def withdraw(self, claim_id: int, *, asked_at: float | None = None) -> AfterCommit:
        """Give up an ask, or the lease it just became."""

    def extend(self, claim_id: int, *, ttl_s: float, asked_at: float | None = None) -> bool:
        """An ask or lease with a time to live goes on for so long from now. False: it is gone."""

    def note(self, name: str, fresh: str) -> str:
        """A small text that the store keeps for all who use it: what is there, or ``fresh`` from now on."""

    def set_note(self, name: str, text: str) -> None:
        """Replace such a text."""

    def notes(self, prefix: str) -> dict[str, str]:
        """All whose names begin so."""

    def release(self, release: Release) -> AfterCommit:
        """End a lease; the slot goes to the next in line in the same step. Idempotent."""

    def remember(self, release: Release) -> None:
        """Keep a release that could not be written; it rides in this process's next step."""

    def rebind(
        self, claim_id: int, holder: Holder, *, launcher_pid: int, asked_at: float | None = None
    ) -> tuple[bool, AfterCommit]:
        """Make ``holder`` the process whose life the lease follows. False: it is not a lease (any more)."""

    def record_running(self, ask: Ask) -> tuple[int, AfterCommit]:
        """Record work that already runs; may exceed the cap. Recorded twice, it counts once."""

    def pause(self, ask: Ask, *, for_s: float, why: str) -> tuple[int, AfterCommit]:
        """Show a run that waits out a limit: it holds nothing, stands in no line and is counted nowhere.

        It ends with its release, its time, or its process.
        """

    def report(
        self,
        pool: str,
        signal: Signal,
        *,
        project: str,
        name: str,
        claim_id: int | None,
        first: bool = False,
        asked_at: float | None = None,
    ) -> AfterCommit:
        """Fold one signal into the plan, at once. ``first``: it answers the call the lease was taken for."""

    def renew(self, pool: str, renewal: Renewal) -> tuple[Reply, AfterCommit]:
        """Renew a share lease, or begin one: what its holder may use from now on.

        The rule is in core/share_lease/renewal.py."""

    def demand(self, pool: str, project: str, holder: Holder, *, ttl_s: float) -> AfterCommit:
        """Announce (ttl_s > 0) or drop (0) a project's standing demand."""

    def holders(self, pool: str) -> list[Holder]:
        """The processes whose death would free something for this pool's line, each once."""

    def pool_census(self, pool: str) -> HolderCensus:
        """The same as claims and demands."""

    def census(self) -> HolderCensus:
        """Every claim and demand there is."""

    def reclaim(
        self, claims: Sequence[tuple[int, Holder]], demands: Sequence[Demand] = (), *, why: str = ""
    ) -> AfterCommit:
        """Remove the claims of dead holders, if they still are the holders, and expired leases.

        ``why``: what is told of these claims, in place of what is known of their holders.
        """

    def granted_ids(self, mailbox: str) -> list[int]:
        """The leases whose asks waited at this mailbox."""

    def claim(self, claim_id: int) -> Claim | None:
        """One ask or lease."""

    def snapshot(self) -> Snapshot:
        """Everything, read only."""

    def facts(self, *, limit: int) -> list[Fact]:
        """The newest facts, newest first."""

    def named_settings(self) -> dict[str, PoolChanges]:
        """What people named for each pool there is; nothing else of it is read."""

    def set_pool(self, pool: str, changes: PoolChanges) -> AfterCommit:
        """Change exactly the named settings; a named cap reseeds the adaptive one."""

    def reset_pool(self, pool: str, *, settings: bool = False) -> AfterCommit:
        """Forget what was learned; with ``settings`` those are the defaults again, else they stay."""

    def remove_pool(self, pool: str) -> AfterCommit:
        """Forget a pool, its settings and its history. Refused while anything is held or waits in it."""

    def import_pool(self, pool: str, changes: PoolChanges, memory: LearnedState) -> AfterCommit:
        """Take over settings and learned state from elsewhere."""

    def miscounts(self) -> list[CountMismatch]:
        """Where kept counts and claims differ; there should be none. Read only."""

    def recount(self) -> tuple[list[CountMismatch], AfterCommit]:
        """Set every count to what the claims say; what was wrong."""

    def set_machine(self, machine: MachineSettings) -> AfterCommit:
        """Replace the machine-wide limits."""

    def change_machine(self, changes: MachineChanges) -> AfterCommit:
        """Change exactly the named machine-wide limits."""

    def machine(self) -> MachineSettings:
        """The machine-wide limits."""

    def now(self) -> float:
        """The store's own clock."""

    def close(self) -> None:
        """Close files and connections."""
