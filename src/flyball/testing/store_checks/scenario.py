"""A fresh store in a simulated world, and short methods to play a scene with it.

Every helper says what it expects, so that a check reads like the behaviour it is named after.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from itertools import count
from typing import TYPE_CHECKING

from flyball.core.pool.holder import Holder
from flyball.core.pool.model import Ask, Claim, Outcome
from flyball.core.pool.settings import DEMAND_TTL_S
from flyball.core.pool.verdict import Reason, Verdict
from flyball.core.signals import Bucket, Signal, SignalKind
from flyball.stores.port import AfterCommit, Release, Store
from flyball.stores.snapshot import PoolSnapshot
from flyball.testing.world import FakeWorld

if TYPE_CHECKING:
    from typing import Unpack

    from flyball.core.pool.settings import PoolChanges

MakeStore = Callable[[FakeWorld], Store]
StoreCheck = Callable[["Scene"], None]
POOL = "p"


def expect(condition: object, what: str) -> None:
    """Like ``assert``, also under ``python -O``."""
    if not condition:
        raise AssertionError(what)


def expect_equal(actual: object, wanted: object, what: str) -> None:
    expect(actual == wanted, f"{what}: expected {wanted!r}, got {actual!r}")


class Scene:
    """One store and its world. Time moves with ``wait``."""

    def __init__(self, make_store: MakeStore, world: FakeWorld | None = None) -> None:
        self.world = world or FakeWorld()
        self.store = make_store(self.world)
        self._make_store = make_store
        self._pids = count(100)

    def close(self) -> None:
        self.store.close()

    def twin(self) -> Scene:
        """A scene of its own, with an empty store, in a world that looks the same."""
        return Scene(self._make_store, FakeWorld(seed=self.world.seed, now=self.world.clock()))

    def wait(self, seconds: float) -> None:
        self.world.clock.advance(seconds)

    # -- who asks ---------------------------------------------------------------------------------

    def holder(self, pid: int | None = None) -> Holder:
        """A process that can be checked from here; each a new one unless named."""
        pid = next(self._pids) if pid is None else pid
        return replace(self.world.here, pid=pid, start=pid)

    def stranger(self) -> Holder:
        """A process of another machine: whether it lives cannot be told from here."""
        return replace(self.holder(), host="elsewhere")

    def ask(
        self,
        project: str = "a",
        *,
        name: str = "",
        pool: str = POOL,
        slots: int = 1,
        priority: int = 0,
        resources: Mapping[str, int] | None = None,
        holder: Holder | None = None,
        cost: Mapping[str, float] | None = None,
        unread: bool = False,
    ) -> Ask:
        holder = holder or self.holder()
        return Ask(
            pool=pool,
            project=project,
            name=name or f"t-{holder.pid}",
            holder=holder,
            slots=slots,
            priority=priority,
            resources=resources or {},
            mailbox=f"/mail/{holder.pid}",
            cost=cost or {},
            unread=unread,
        )

    # -- asking -----------------------------------------------------------------------------------

    def take(self, project: str = "a", **rest: Unpack[AskWords]) -> int:
        """Ask for slots that must be free; the lease."""
        verdict = self.nowait(project, **rest)
        expect(verdict.granted, f"expected a grant, got {verdict.words()!r} ({verdict.reason.value})")
        return verdict.claim_id

    def park(self, project: str = "a", **rest: Unpack[AskWords]) -> int:
        """Ask for slots that must not be free; the ask in line."""
        verdict, _ = self.store.admit(self.ask(project, **rest), park=True)
        expect(not verdict.granted and verdict.claim_id, f"expected to be parked, got {verdict.words()!r}")
        return verdict.claim_id

    def nowait(self, project: str = "a", **rest: Unpack[AskWords]) -> Verdict:
        verdict, _ = self.store.admit(self.ask(project, **rest), park=False)
        return verdict

    def expect_refusal(self, reason: Reason, project: str = "a", **rest: Unpack[AskWords]) -> Verdict:
        """Ask without waiting; must be refused for this reason."""
        verdict = self.nowait(project, **rest)
        expect(not verdict.granted, f"expected a refusal for {reason.value}, got a grant")
        expect_equal(verdict.reason, reason, f"the reason of {verdict.words()!r}")
        return verdict

    def poll(self, claim_id: int) -> Verdict:
        """How an ask stands after handing out what time has freed."""
        verdict, _ = self.store.poll(claim_id, advance=True)
        if verdict is None:
            raise AssertionError(f"claim {claim_id} is gone")
        return verdict

    def is_held(self, claim_id: int) -> bool:
        """Is it a lease, without looking again?"""
        claim = self.store.claim(claim_id)
        return claim is not None and claim.held

    def claim(self, claim_id: int) -> Claim:
        claim = self.store.claim(claim_id)
        if claim is None:
            raise AssertionError(f"claim {claim_id} is gone")
        return claim

    # -- everything else --------------------------------------------------------------------------

    def release(self, claim_id: int, outcome: Outcome = Outcome.FINISHED, *, oks: int = 0) -> AfterCommit:
        return self.store.release(Release(claim_id, outcome, oks))

    def finish_call(
        self,
        claim_id: int,
        kind: SignalKind = SignalKind.OK,
        *,
        buckets: tuple[Bucket, ...] = (),
        used: Mapping[str, float] | None = None,
    ) -> AfterCommit:
        """The one call of a lease was answered; the lease ends, as ``Lease.report`` and its block do it."""
        if kind is not SignalKind.OK:
            self.refuse(claim_id, kind, buckets=buckets)
        rejected = kind in (SignalKind.THROTTLED, SignalKind.OVERLOADED)
        said = buckets if kind is SignalKind.OK else ()
        oks = int(kind is SignalKind.OK)
        return self.store.release(Release(claim_id, Outcome.FINISHED, oks, rejected, used or {}, said))

    def refuse(
        self,
        claim_id: int,
        kind: SignalKind = SignalKind.THROTTLED,
        *,
        retry_after_s: float | None = None,
        buckets: tuple[Bucket, ...] = (),
    ) -> AfterCommit:
        """The one call of a lease was refused; the lease goes on."""
        claim, signal = self.claim(claim_id), Signal(kind, retry_after_s, buckets=buckets)
        return self.store.report(
            claim.pool, signal, project=claim.project, name=claim.name, claim_id=claim_id, first=True
        )

    def throttle(
        self,
        project: str = "a",
        name: str = "",
        *,
        pool: str = POOL,
        claim_id: int | None = None,
        retry_after_s: float | None = None,
    ) -> AfterCommit:
        signal = Signal(SignalKind.THROTTLED, retry_after_s)
        return self.store.report(pool, signal, project=project, name=name, claim_id=claim_id)

    def demand(
        self, project: str, *, pool: str = POOL, ttl_s: float = DEMAND_TTL_S, holder: Holder | None = None
    ) -> AfterCommit:
        return self.store.demand(pool, project, holder or self.holder(1), ttl_s=ttl_s)

    def reclaim(self, *claim_ids: int) -> AfterCommit:
        """The holders of these claims were found dead."""
        return self.store.reclaim([(claim_id, self.claim(claim_id).holder) for claim_id in claim_ids])

    def pool(self, name: str = POOL, **changes: Unpack[PoolChanges]) -> AfterCommit:
        return self.store.set_pool(name, changes)

    def static(self, cap: int, /, name: str = POOL, **changes: Unpack[PoolChanges]) -> AfterCommit:
        """A pool with a fixed cap."""
        fixed: PoolChanges = {"cap": cap, "adaptive": False}
        return self.store.set_pool(name, {**changes, **fixed})

    def snapshot(self, pool: str = POOL) -> PoolSnapshot:
        found = [p for p in self.store.snapshot().pools if p.name == pool]
        expect(found, f"the snapshot does not show pool {pool!r}")
        return found[0]

    def fact_kinds(self) -> list[str]:
        """The kinds of all facts, oldest first."""
        return [fact.kind for fact in reversed(self.store.facts(limit=1000))]


if TYPE_CHECKING:
    from typing import TypedDict

    class AskWords(TypedDict, total=False):
        name: str
        pool: str
        slots: int
        priority: int
        resources: Mapping[str, int]
        holder: Holder
        cost: Mapping[str, float]
        unread: bool


registered: list[StoreCheck] = []
about_one_machine: set[StoreCheck] = set()
"""Limits over all pools of a machine: a store that many machines share has none."""


def store_check(check: StoreCheck) -> StoreCheck:
    """Make a function part of the suite. Its name is the behaviour."""
    registered.append(check)
    return check


def machine_check(check: StoreCheck) -> StoreCheck:
    """The same for a behaviour that only a store of one machine has."""
    about_one_machine.add(check)
    return store_check(check)
