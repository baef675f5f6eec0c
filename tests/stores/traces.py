"""Any trace of verbs, as hypothesis rules. What must hold after each step is said by the subclasses."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import astuple, replace
from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from flyball.core.pool.holder import Holder
from flyball.core.pool.model import Outcome
from flyball.core.pool.settings import MachineSettings, PoolChanges
from flyball.core.share_lease.renewal import CallCounts, Renewal
from flyball.core.signals import Bucket, Signal, SignalKind, WindowReading
from flyball.errors import UsageError
from flyball.stores.port import AfterCommit, Release
from flyball.testing import Scene
from tests.stores.trace_words import (
    answers,
    buckets,
    costs,
    machines,
    names,
    nodes,
    numbers,
    pool_changes,
    pools,
    projects,
    readings,
    renewals,
    resources,
    waits,
)

Told = tuple[object, ...]


class Trace(RuleBasedStateMachine):
    """One or more stores that live through the same story. ``do`` plays one step on all of them."""

    one_machine = True
    """False: among the stores is one that many machines share, so nothing limits all pools of one."""

    def __init__(self) -> None:
        super().__init__()
        self.scenes = self.open_scenes()
        self.claims: list[int] = []
        self.sent: dict[tuple[str, str, str], tuple[int, CallCounts]] = {}
        """By pool, node and incarnation: the number of the latest renewal, and what was answered by then."""

    def open_scenes(self) -> Sequence[Scene]:
        raise NotImplementedError

    def do(self, step: Callable[[Scene], Told]) -> Told:
        """Play a step everywhere; what it said must be the same everywhere."""
        said = [_said(step, scene) for scene in self.scenes]
        assert all(other == said[0] for other in said), f"stores disagree: {said}"
        return said[0]

    def teardown(self) -> None:
        for scene in self.scenes:
            scene.close()

    def pick(self, number: int) -> int:
        return self.claims[number % len(self.claims)]

    # -- rules ------------------------------------------------------------------------------------

    @initialize(
        cap=st.integers(1, 4),
        changes=pool_changes,
        machine=machines,
        learned=st.sampled_from([True, True, True, False]),
    )
    def begin(self, cap: int, changes: PoolChanges, machine: MachineSettings, learned: bool) -> None:
        """Small pools, so that something is always in the way; mostly on a store that knows all shares."""
        self.set_pool("p", {**changes, "cap": cap})
        self.set_machine(machine, None)
        if learned:
            self.renewed(("p", "n1", "a"), {"holds": 0, "in_flight": 0, "wants": 0}, (0, 0, 0), 0)
            self.wait(60.0)

    @rule(asks=st.lists(st.tuples(projects, st.integers(1, 3)), min_size=1, max_size=4))
    def crowd(self, asks: list[tuple[str, int]]) -> None:
        """Several who are willing to wait arrive at once."""
        for project, slots in asks:
            self.admit("p", project, 0, slots, {}, {}, True, False)

    @rule(
        pool=pools,
        project=projects,
        priority=st.sampled_from([0, 0, 0, 1, -1, 4]),
        slots=st.sampled_from([1, 1, 1, 2, 3]),
        needs=resources,
        cost=costs,
        park=st.booleans(),
        stranger=st.sampled_from([False, False, False, True]),
        unread=st.sampled_from([False, False, False, True]),
    )
    def admit(
        self,
        pool: str,
        project: str,
        priority: int,
        slots: int,
        needs: Mapping[str, int],
        cost: Mapping[str, float],
        park: bool,
        stranger: bool,
        unread: bool = False,
    ) -> None:
        def step(s: Scene) -> Told:
            holder = s.stranger() if stranger else s.holder()
            ask = s.ask(
                project,
                pool=pool,
                slots=slots,
                priority=priority,
                resources=needs if self.one_machine else {},
                holder=holder,
                cost=cost,
                unread=unread,
            )
            verdict, after = s.store.admit(ask, park=park)
            return (verdict, verdict.claim_id, *told(after))

        said = self.do(step)
        if len(said) > 2 and isinstance(said[1], int) and said[1]:
            self.claims.append(said[1])

    @precondition(lambda self: self.claims)
    @rule(number=numbers, advance=st.booleans())
    def look(self, number: int, advance: bool) -> None:
        claim_id = self.pick(number)

        def step(s: Scene) -> Told:
            verdict, after = s.store.poll(claim_id, advance=advance)
            return (verdict, *told(after))

        self.do(step)

    @precondition(lambda self: self.claims)
    @rule(number=numbers)
    def withdraw(self, number: int) -> None:
        self.do(lambda s: told(s.store.withdraw(self.pick(number))))

    @precondition(lambda self: self.claims)
    @rule(
        number=numbers,
        outcome=st.sampled_from([Outcome.FINISHED, *Outcome]),
        oks=st.none() | st.integers(0, 3),
        rejected=st.sampled_from([False, False, True]),
        used=costs,
        said=buckets,
        later=st.sampled_from([False, False, True]),
        named=st.booleans(),
    )
    def release(
        self,
        number: int,
        outcome: Outcome,
        oks: int | None,
        rejected: bool,
        used: Mapping[str, float],
        said: tuple[Bucket, ...],
        later: bool,
        named: bool,
    ) -> None:
        release = Release(self.pick(number), outcome, oks, rejected, used, said)

        def keep(s: Scene) -> Told:
            s.store.remember(release)
            return ()

        def step(s: Scene) -> Told:
            claim = s.store.claim(release.claim_id) if named else None
            asked_at = None if claim is None else claim.asked_at
            return told(s.store.release(replace(release, asked_at=asked_at)))

        self.do(keep if later else step)

    @rule(
        pool=pools,
        kind=st.sampled_from([SignalKind.THROTTLED, SignalKind.THROTTLED, *SignalKind]),
        retry_after_s=st.sampled_from([None, None, None, 5.0, 10_000.0]),
        project=projects,
        name=names,
        number=st.none() | numbers,
        first=st.booleans(),
        said=buckets,
        read=readings,
    )
    def report(
        self,
        pool: str,
        kind: SignalKind,
        retry_after_s: float | None,
        project: str,
        name: str,
        number: int | None,
        first: bool,
        said: tuple[Bucket, ...],
        read: tuple[WindowReading, ...],
    ) -> None:
        claim_id = self.pick(number) if number is not None and self.claims else None
        signal = Signal(kind, retry_after_s, buckets=said, windows=read)

        def step(s: Scene) -> Told:
            after = s.store.report(pool, signal, project=project, name=name, claim_id=claim_id, first=first)
            return told(after)

        self.do(step)

    @precondition(lambda self: self.claims)
    @rule(numbers=st.lists(numbers, min_size=1, max_size=4), wait_s=st.sampled_from([0.1, 0.2, 7.0]))
    def refuse(self, numbers: list[int], wait_s: float) -> None:
        """The first calls of some leases are refused and their blocks end, as most do."""
        self.wait(wait_s)
        for number in numbers:
            claim_id = self.pick(number)
            release = Release(claim_id, Outcome.FINISHED, 0, rejected=True)

            def step(s: Scene, claim_id: int = claim_id, release: Release = release) -> Told:
                claim = s.store.claim(claim_id)
                if claim is None or not claim.held:
                    return ()
                said = told(s.refuse(claim_id))
                return (*said, *told(s.store.release(release)))

            self.do(step)

    @rule(pool=pools, project=projects, ttl_s=st.sampled_from([0.0, 30.0, 600.0]))
    def demand(self, pool: str, project: str, ttl_s: float) -> None:
        self.do(lambda s: told(s.demand(project, pool=pool, ttl_s=ttl_s)))

    @precondition(lambda self: self.claims)
    @rule(dead=st.lists(numbers, max_size=3), wrong=st.booleans(), demands=st.booleans())
    def reclaim(self, dead: list[int], wrong: bool, demands: bool) -> None:
        def step(s: Scene) -> Told:
            found = [claim for n in dead if (claim := s.store.claim(self.pick(n))) is not None]
            holders: list[tuple[int, Holder]] = [
                (c.id, replace(c.holder, start=-1) if wrong else c.holder) for c in found
            ]
            return told(s.store.reclaim(holders, s.store.census().demands if demands else ()))

        self.do(step)

    @precondition(lambda self: self.claims)
    @rule(number=numbers)
    def rebind(self, number: int) -> None:
        def step(s: Scene) -> Told:
            rebound, after = s.store.rebind(self.pick(number), s.holder(), launcher_pid=1)
            return (rebound, *told(after))

        self.do(step)

    @rule(pool=pools, project=projects, slots=st.sampled_from([1, 1, 3]))
    def hold(self, pool: str, project: str, slots: int) -> None:
        def step(s: Scene) -> Told:
            claim_id, after = s.store.record_running(s.ask(project, pool=pool, slots=slots))
            return (claim_id, *told(after))

        claim_id = self.do(step)[0]
        assert isinstance(claim_id, int)
        self.claims.append(claim_id)

    @rule(
        pool=pools,
        node=nodes,
        incarnation=st.sampled_from("aaab"),
        renewal=renewals,
        said=answers,
        behind=st.sampled_from([0, 0, 0, 0, 0, 0, 1, 2]),
    )
    def renew(
        self,
        pool: str,
        node: str,
        incarnation: str,
        renewal: Mapping[str, Any],
        said: tuple[int, int, int],
        behind: int,
    ) -> None:
        """Whatever a holder may say, sensible or not; ``behind``: it comes late or twice."""
        self.renewed((pool, node, incarnation), renewal, said, behind)

    def renewed(
        self, key: tuple[str, str, str], renewal: Mapping[str, Any], said: tuple[int, int, int], behind: int
    ) -> None:
        pool, node, incarnation = key
        seq, tally = self.sent.get(key, (0, CallCounts()))
        heard = CallCounts(*(old + new for old, new in zip(astuple(tally), said, strict=True)))
        sent = Renewal(
            node=node,
            incarnation=incarnation,
            seq=max(0, seq + 1 - behind),
            tally=heard,
            mailbox=f"/mail/{node}",
            **renewal,
        )
        self.sent[key] = (max(seq, sent.seq), heard)

        def step(s: Scene) -> Told:
            reply, after = s.store.renew(pool, sent)
            return (reply, *told(after))

        self.do(step)

    @precondition(lambda self: self.sent)
    @rule(number=numbers, wants=st.sampled_from([0, 1, 3, 9]), ended=st.integers(0, 4))
    def renew_honestly(self, number: int, wants: int, ended: int) -> None:
        """A holder that does as it was told: what it has of work is within what it may use."""
        pool, node, incarnation = sorted(self.sent)[number % len(self.sent)]
        shown = [seen for seen in self.scenes[0].store.snapshot().pools if seen.name == pool]
        shares = shown[0].shares if shown else ()
        mine = [s for s in shares if (s.node, s.incarnation) == (node, incarnation)]
        holds = max(0, min(mine[0].target, mine[0].slots - mine[0].owed) - ended) if mine else 0
        renewal = {"holds": holds, "in_flight": min(holds, wants), "wants": wants}
        self.renewed((pool, node, incarnation), renewal, (min(wants, ended), 0, 0), 0)

    @rule(lives=st.sampled_from([0, 0, 0, 0, 0, 1]))
    def live_again(self, lives: int) -> None:
        """The store is started anew: it may have forgotten a node."""
        for scene in self.scenes:
            scene.world.epoch += "'" * lives

    @rule(pool=pools, changes=pool_changes)
    def set_pool(self, pool: str, changes: PoolChanges) -> None:
        self.do(lambda s: told(s.store.set_pool(pool, changes)))

    @rule(pool=pools)
    def reset(self, pool: str) -> None:
        self.do(lambda s: told(s.store.reset_pool(pool)))

    @rule(pool=pools)
    def reset_settings(self, pool: str) -> None:
        self.do(lambda s: told(s.store.reset_pool(pool, settings=True)))

    @rule(pool=pools)
    def remove(self, pool: str) -> None:
        self.do(lambda s: told(s.store.remove_pool(pool)))

    @rule(machine=machines, memory_free_bytes=st.sampled_from([None, 1 << 20, 1 << 34]))
    def set_machine(self, machine: MachineSettings, memory_free_bytes: int | None) -> None:
        def step(s: Scene) -> Told:
            s.world.memory_free_bytes = memory_free_bytes
            return told(s.store.set_machine(machine))

        if self.one_machine:
            self.do(step)

    @rule(seconds=waits)
    def wait(self, seconds: float) -> None:
        for scene in self.scenes:
            scene.wait(seconds)


def told(after: AfterCommit) -> Told:
    return (after.wakes, after.facts, sorted(after.notices))


def _said(step: Callable[[Scene], Told], scene: Scene) -> Told:
    try:
        return step(scene)
    except UsageError as error:
        return ("refused as nonsense", str(error))
