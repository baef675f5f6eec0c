"""Promises that hold whatever happens: the cap, the books, the first in line, and no ask lost for good."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence

from hypothesis import settings
from hypothesis.stateful import invariant

from flyball.core.pool.model import Phase
from flyball.core.pool.settings import MachineSettings
from flyball.stores.snapshot import PoolSnapshot
from flyball.testing import Scene, make_memory
from flyball.testing.store_checks.snapshots import expect_balanced
from tests.stores.traces import Told, Trace

SOAK = bool(os.environ.get("FLYBALL_SOAK"))
EXAMPLES = settings(max_examples=1000 if SOAK else 30, stateful_step_count=100 if SOAK else 40)


class OneStore(Trace):
    def open_scenes(self) -> Sequence[Scene]:
        return [Scene(make_memory)]

    @property
    def scene(self) -> Scene:
        return self.scenes[0]

    def pools(self) -> tuple[PoolSnapshot, ...]:
        return self.scene.store.snapshot().pools


class Bounded(OneStore):
    """What admission granted fits what it may grant; only what runs already and comes to light goes above."""

    def do(self, step: Callable[[Scene], Told]) -> Told:
        before = {pool.name: pool for pool in self.pools()}
        held = {lease.id for pool in before.values() for lease in pool.leases}
        said = super().do(step)
        held_id = said[0] if said and type(said[0]) is int else 0
        for pool in self.pools():
            new = [lease for lease in pool.leases if lease.id not in held and lease.id != held_id]
            above = sum(lease.slots for lease in pool.leases if lease.id == held_id)
            shared = sum(share.slots for share in pool.shares)
            above += max(0, shared - sum(share.slots for share in before.get(pool.name, pool).shares))
            # A step may carry an old release, hand its slot on, and then fold a throttle.
            limit = max(usable(pool), usable(before.get(pool.name, pool)))
            assert not new or pool.in_use - above <= limit, f"{pool.in_use} of {limit} after granting {new}"
        return said

    @invariant()
    def the_books_balance(self) -> None:
        expect_balanced(self.scene.store.snapshot())

    @invariant()
    def what_a_recount_says_is_what_was_kept(self) -> None:
        assert self.scene.store.miscounts() == []


class Watched(OneStore):
    """Where asks wait, exactly one of them watches the holders."""

    @invariant()
    def one_watches(self) -> None:
        for pool in self.pools():
            watchers = [ask.claim.id for ask in pool.asks if ask.verdict.watch]
            assert len(watchers) == (1 if pool.asks else 0), f"watchers of {pool.name}: {watchers}"


class Served(OneStore):
    """When all work ends and nothing stands in the way, every ask in line is served in the end."""

    def teardown(self) -> None:
        self.scene.store.set_machine(MachineSettings(resources={"gpu": 9, "docker": 9, "tpu": 9}))
        for pool in self.pools():
            self.scene.store.set_pool(pool.name, {"windows": dict.fromkeys(pool.settings.windows, "0")})
        # Less than a probe period from look to look: a watcher of a line looks more often.
        rounds = 200
        while (waiting := self.waiting()) and (rounds := rounds - 1):
            for pool in self.pools():
                for lease in pool.leases:
                    self.scene.store.withdraw(lease.id)
            # What is owed to a window that was learned is owed, if need be for days.
            self.scene.wait(max(200.0, self.until_full_s()))
            for claim_id in waiting:
                self.scene.store.poll(claim_id, advance=True)
        super().teardown()
        assert not waiting, f"lost for good: {waiting}"

    def until_full_s(self) -> float:
        windows = [window for pool in self.pools() for window in pool.windows]
        now = self.scene.world.clock()
        return max((window.room_at(window.limit, now) - now for window in windows), default=0.0)

    def waiting(self) -> list[int]:
        return [ask.claim.id for pool in self.pools() for ask in pool.asks if possible(pool, ask.claim.slots)]


def usable(pool: PoolSnapshot) -> int:
    """How many slots admission may give out; the trial may go up to the ceiling."""
    return pool.ceiling if pool.phase is Phase.TRIAL else pool.cap


def possible(pool: PoolSnapshot, slots: int) -> bool:
    """Could an ask of this size be granted under the pool's settings at all?"""
    maxima = pool.settings.maxima.values()
    return slots <= min([pool.ceiling - pool.settings.reserve, *maxima])


TestBounded, TestWatched, TestServed = Bounded.TestCase, Watched.TestCase, Served.TestCase
TestBounded.settings = TestWatched.settings = TestServed.settings = EXAMPLES
