"""Reading changes nothing, and counts match what is held."""

from __future__ import annotations

from random import Random

from flyball.core.pool.model import Outcome
from flyball.core.pool.verdict import VerdictKind
from flyball.stores.snapshot import Snapshot
from flyball.testing.store_checks.scenario import Scene, expect, expect_equal, store_check


@store_check
def a_snapshot_of_nothing_shows_nothing(s: Scene) -> None:
    snapshot = s.store.snapshot()
    expect_equal((snapshot.pools, dict(snapshot.resources_in_use)), ((), {}), "the snapshot")


@store_check
def a_snapshot_writes_nothing(s: Scene) -> None:
    """The same story ends the same, whether or not the store is read at every turn."""
    watched, unwatched = s.twin(), s.twin()
    stories = [_story(watched, looking=True), _story(unwatched, looking=False)]
    expect_equal(stories[0], stories[1], "what happened")
    expect_equal(watched.store.snapshot(), unwatched.store.snapshot(), "how it ended")
    watched.close()
    unwatched.close()


def _story(s: Scene, *, looking: bool) -> list[object]:
    told: list[object] = []
    s.pool(cap=2, share="strict", spacing_s=4.0)
    s.demand("a")
    s.demand("b")
    for turn in range(40):
        verdict, after = s.store.admit(s.ask("ab"[turn % 2]), park=turn % 3 == 0)
        told.append((verdict, [wake.claim_id for wake in after.wakes]))
        s.wait(37)
        if looking:
            s.store.snapshot()
            s.store.census()
            s.store.poll(verdict.claim_id, advance=False)
        if turn % 5 == 4:
            s.throttle("a", f"t-{turn}")
        if verdict.granted:
            s.release(verdict.claim_id)
    return told


@store_check
def a_snapshot_shows_a_stale_plan_as_it_would_be_now(s: Scene) -> None:
    s.pool(cap=1)
    s.throttle()
    s.wait(300)
    expect_equal(
        (s.snapshot().phase.value, s.snapshot().closed_until), ("trial", None), "the breaker after its break"
    )


@store_check
def a_snapshot_says_what_a_look_would_say(s: Scene) -> None:
    s.static(2)
    s.take("a")
    s.take("b")
    for project in "aabb":
        s.park(project)
    s.wait(30)
    for ask in s.snapshot().asks:
        verdict, _ = s.store.poll(ask.claim.id, advance=False)
        expect_equal(ask.verdict, verdict, f"the verdict on ask {ask.claim.id}")


@store_check
def a_snapshot_lists_the_waiting_in_the_order_of_service(s: Scene) -> None:
    s.static(2)
    leases = [s.take("a"), s.take("a")]
    for project, priority in (("a", 0), ("b", 0), ("a", 3), ("b", 0)):
        s.park(project, priority=priority)
    foretold = [ask.claim.id for ask in s.snapshot().asks]
    expect_equal([ask.verdict.position for ask in s.snapshot().asks], [1, 2, 3, 4], "positions")
    for lease in leases:
        s.release(lease)
    served = [claim.id for claim in s.snapshot().leases]
    expect_equal(sorted(served), sorted(foretold[:2]), "who was served first")


@store_check
def a_snapshot_shows_leases_with_everything_known_of_them(s: Scene) -> None:
    holder = s.holder()
    lease = s.take("blog", name="t-14", slots=2, priority=3, holder=holder)
    (shown,) = s.snapshot().leases
    expect_equal(shown, s.claim(lease), "the lease")
    expect_equal((shown.project, shown.name, shown.slots, shown.priority), ("blog", "t-14", 2, 3), "its ask")
    expect_equal((shown.holder, shown.launcher_pid), (holder, holder.pid), "its holder")
    expect_equal((shown.asked_at, shown.granted_at), (1_000.0, 1_000.0), "its times")


@store_check
def counts_equal_a_recount_after_any_trace(s: Scene) -> None:
    chance = Random(7)
    s.pool(cap=5, ageing_s=20.0, reserve=1)
    claims: list[int] = []
    for _ in range(300):
        act = chance.randrange(6)
        if act <= 2 or not claims:
            ask = s.ask(
                chance.choice("abc"), slots=chance.choice([1, 1, 2]), priority=chance.choice([0, 0, 1])
            )
            verdict, _ = s.store.admit(ask, park=chance.random() < 0.7)
            claims += [verdict.claim_id] if verdict.claim_id else []
        elif act == 3:
            s.release(claims.pop(chance.randrange(len(claims))), chance.choice(list(Outcome)))
        elif act == 4:
            claim = s.store.claim(claims.pop(chance.randrange(len(claims))))
            s.store.reclaim([(claim.id, claim.holder)] if claim else [])
        else:
            s.wait(chance.choice([1, 30, 400]))
        expect_balanced(s.store.snapshot())


def expect_balanced(snapshot: Snapshot) -> None:
    """Counts against the claims themselves."""
    for pool in snapshot.pools:
        held = sum(claim.slots for claim in pool.leases) + sum(share.slots for share in pool.shares)
        expect_equal(pool.in_use, held, f"slots in use of {pool.name}")
        expect_equal(pool.waiting, len(pool.asks), f"asks waiting in {pool.name}")
        for project in pool.projects:
            slots = sum(c.slots for c in pool.leases if c.project == project.name)
            waiting = sum(1 for a in pool.asks if a.claim.project == project.name)
            expect_equal((project.in_use, project.waiting), (slots, waiting), f"counts of {project.name}")


@store_check
def facts_come_newest_first_and_say_who_and_why(s: Scene) -> None:
    s.static(1)
    s.take("blog", name="t-14", holder=s.holder(4121))
    s.nowait("shop", name="t-15", holder=s.holder(4122))
    s.wait(5)
    s.throttle("blog", "t-14", retry_after_s=7)
    newest, refused = s.store.facts(limit=2)
    expect_equal((newest.kind, newest.at), ("closed", 1_005.0), "the newest fact")
    expect_equal(
        (refused.kind, refused.project, refused.name, refused.pid), ("refused", "shop", "t-15", 4122), ""
    )
    expect("blog/t-14" in refused.words, "the words name the blocker")


@store_check
def facts_are_handed_to_observers_as_they_are_kept(s: Scene) -> None:
    s.static(1)
    s.take()
    _, after = s.store.admit(s.ask(), park=False)
    expect_equal([fact.kind for fact in after.facts], ["refused"], "the facts")
    expect_equal(after.facts, s.store.facts(limit=1), "what was kept")


@store_check
def the_facts_kept_are_bounded(s: Scene) -> None:
    s.static(1)
    s.take()
    for _ in range(4400):
        s.nowait()
    expect(len(s.store.facts(limit=100_000)) <= 4096 + 256, "facts are kept for ever")


@store_check
def every_verdict_shows_the_pool_as_it_is(s: Scene) -> None:
    s.static(3, reserve=1)
    s.take()
    verdict = s.nowait(slots=2)
    expect_equal((verdict.kind, verdict.pool), (VerdictKind.REFUSED, "p"), "the verdict")
    expect_equal((verdict.in_use, verdict.cap, verdict.reserved), (1, 3, 1), "use, cap, reserve")


@store_check
def time_is_the_stores_own(s: Scene) -> None:
    before = s.store.now()
    s.wait(12.5)
    expect_equal(s.store.now() - before, 12.5, "time passed")
