"""Releases, withdrawals, and releases that could not be written."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

from flyball.core.pool.model import Outcome
from flyball.core.pool.plan import first_memory
from flyball.core.pool.settings import MachineSettings, PoolSettings
from flyball.core.pool.verdict import Reason, Verdict
from flyball.errors import UsageError
from flyball.stores.port import Release
from flyball.testing.store_checks.scenario import Scene, expect, expect_equal, store_check


@store_check
def a_second_release_changes_nothing(s: Scene) -> None:
    s.static(2)
    lease, other = s.take(), s.take()
    s.release(lease)
    again = s.release(lease, Outcome.THROTTLED)
    expect_equal((again.wakes, again.facts), ([], []), "what the second release did")
    expect_equal(s.snapshot().in_use, 1, "slots in use")
    expect(s.is_held(other), "the other lease")


@store_check
def releasing_what_never_was_changes_nothing(s: Scene) -> None:
    after = s.release(987_654)
    expect_equal((after.wakes, after.facts), ([], []), "what it did")


@store_check
def an_id_is_never_used_twice(s: Scene) -> None:
    seen = set()
    for _ in range(5):
        lease = s.take()
        expect(lease not in seen, f"id {lease} came back")
        seen.add(lease)
        s.release(lease)


def _lost(s: Scene) -> tuple[Verdict, Scene, int]:
    """A lease of a store that then forgot it; the store, in which another one has its id now."""
    s.static(1)
    before = s.nowait()
    forgot = s.twin()
    forgot.wait(5)
    forgot.static(1)
    now = forgot.take()
    expect_equal(now, before.claim_id, "the id, given out again")
    return before, forgot, now


@store_check
def a_release_never_ends_another_lease_that_has_its_id_now(s: Scene) -> None:
    before, forgot, now = _lost(s)
    forgot.store.release(Release(before.claim_id, asked_at=before.asked_at))
    forgot.store.release(Release(before.claim_id, words="said", asked_at=before.asked_at))
    forgot.store.withdraw(before.claim_id, asked_at=before.asked_at)
    forgot.store.remember(Release(before.claim_id, asked_at=before.asked_at))
    forgot.take(pool="q")
    kept, in_use = forgot.is_held(now), forgot.snapshot().in_use
    forgot.close()
    expect(kept, "the other lease")
    expect_equal(in_use, 1, "slots in use")


@store_check
def nobody_takes_another_lease_that_has_its_id_now_for_its_own(s: Scene) -> None:
    before, forgot, now = _lost(s)
    name, at = before.claim_id, before.asked_at
    looks = [forgot.store.poll(name, advance=advance, asked_at=at)[0] for advance in (False, True)]
    bound, _ = forgot.store.rebind(name, forgot.holder(), launcher_pid=1, asked_at=at)
    extended = forgot.store.extend(name, ttl_s=60, asked_at=at)
    kept = forgot.is_held(now)
    forgot.close()
    expect_equal(looks, [None, None], "looking")
    expect_equal((bound, extended), (False, False), "rebound, extended")
    expect(kept, "the other lease")


@store_check
def a_verdict_says_when_its_claim_was_asked_for(s: Scene) -> None:
    s.static(1)
    lease = s.nowait()
    parked, _ = s.store.admit(s.ask(), park=True)
    s.wait(3)
    looked, _ = s.store.poll(parked.claim_id, advance=True, asked_at=parked.asked_at)
    for verdict in (lease, parked, looked):
        claim = s.store.claim(verdict.claim_id) if verdict is not None else None
        expect(claim is not None and verdict is not None, "the claim")
        if claim is not None and verdict is not None:
            expect_equal(verdict.asked_at, claim.asked_at, "when it was asked for")
    s.store.release(Release(lease.claim_id, asked_at=lease.asked_at))
    expect(s.is_held(parked.claim_id), "the next has it")


@store_check
def withdrawing_an_ask_takes_it_out_of_line(s: Scene) -> None:
    s.static(1)
    lease = s.take()
    first, second = s.park(), s.park()
    s.store.withdraw(first)
    s.release(lease)
    expect(s.store.claim(first) is None and s.is_held(second), "the second in line has the slot")


@store_check
def withdrawing_a_lease_that_just_came_hands_it_on(s: Scene) -> None:
    s.static(1)
    lease = s.take()
    first, second = s.park(), s.park()
    s.release(lease)
    after = s.store.withdraw(first)
    expect(s.is_held(second), "the next has it")
    expect_equal([(wake.claim_id, wake.granted) for wake in after.wakes], [(second, True)], "woken")


@store_check
def an_abandoned_lease_is_no_success(s: Scene) -> None:
    s.pool(profile="calls", controller="article")
    for _ in range(6):
        leases = [s.take(), s.take()]
        for lease in leases:
            s.store.withdraw(lease)
        s.wait(1)
    expect_equal(s.snapshot().cap, 2, "the cap")


def _other_verbs(s: Scene) -> dict[str, Callable[[], object]]:
    """Every verb that writes, as a step that has nothing to do with the release."""
    lease, doomed, held = s.take(pool="q"), s.take(pool="q"), s.take(pool="q")
    ask = s.ask("b", pool="q")
    memory = first_memory(PoolSettings(), 0.0)
    s.pool("unused", cap=1)
    return {
        "admit": lambda: s.store.admit(ask, park=False),
        "poll": lambda: s.store.poll(held, advance=True),
        "withdraw": lambda: s.store.withdraw(99_999),
        "release": lambda: s.release(lease),
        "rebind": lambda: s.store.rebind(held, s.holder(), launcher_pid=1),
        "record_running": lambda: s.store.record_running(ask),
        "report": lambda: s.throttle(pool="q"),
        "demand": lambda: s.demand("b", pool="q"),
        "reclaim": lambda: s.reclaim(doomed),
        "set_pool": lambda: s.pool("q", cap=4),
        "reset_pool": lambda: s.store.reset_pool("q"),
        "remove_pool": lambda: s.store.remove_pool("unused"),
        "import_pool": lambda: s.store.import_pool("q", {}, memory),
        "set_machine": lambda: s.store.set_machine(MachineSettings()),
        "change_machine": lambda: s.store.change_machine({"ceiling": None}),
        "recount": lambda: s.store.recount(),
    }


@store_check
def a_remembered_release_rides_in_the_next_step_whatever_it_is(s: Scene) -> None:
    left_behind = []
    for verb in _other_verbs(s):
        scene = s.twin()
        step = _other_verbs(scene)[verb]
        scene.static(1)
        lease = scene.take()
        scene.store.remember(Release(lease))
        expect(scene.is_held(lease), "remembering writes nothing")
        step()
        if scene.is_held(lease):
            left_behind.append(verb)
        scene.close()
    expect_equal(left_behind, [], "verbs that do not take it along")


@store_check
def a_remembered_release_hands_its_slot_on(s: Scene) -> None:
    s.static(1)
    lease = s.take()
    ask = s.park()
    s.store.remember(Release(lease))
    _, after = s.store.admit(s.ask(pool="q"), park=False)
    expect(s.is_held(ask), "granted")
    expect_equal([wake.claim_id for wake in after.wakes], [ask], "woken")


@store_check
def a_remembered_release_makes_room_for_the_ask_it_rides_with(s: Scene) -> None:
    s.static(1)
    s.store.remember(Release(s.take()))
    s.take()


@store_check
def a_remembered_release_is_kept_while_steps_fail(s: Scene) -> None:
    s.static(1)
    lease = s.take()
    s.store.remember(Release(lease))
    try:
        s.store.admit(s.ask(resources={"undeclared": 1}), park=False)
    except UsageError:
        expect(s.is_held(lease), "a step that failed wrote nothing")
    s.take()
    expect(not s.is_held(lease), "written with the next step that worked")


@store_check
def a_remembered_release_goes_out_once(s: Scene) -> None:
    s.store.remember(Release(s.take(), Outcome.THROTTLED))
    s.throttle(pool="q")
    s.throttle(pool="q")
    expect_equal(s.snapshot().memory.cap.throttle_count, 1, "throttles")


@store_check
def a_failed_step_leaves_no_trace(s: Scene) -> None:
    s.pool(cap=1)
    s.throttle()
    s.wait(300)
    before = s.store.snapshot()
    facts = s.store.facts(limit=100)
    with suppress(UsageError):
        s.store.admit(s.ask(resources={"undeclared": 1}), park=True)
    expect_equal(s.store.facts(limit=100), facts, "facts")
    expect_equal(s.store.snapshot(), before, "everything else")
    s.take()


@store_check
def work_that_already_runs_counts_even_above_the_cap(s: Scene) -> None:
    s.static(1)
    lease = s.take()
    held, _ = s.store.record_running(s.ask("b"))
    expect_equal(s.snapshot().in_use, 2, "slots in use")
    s.release(lease)
    s.expect_refusal(Reason.CAP)
    s.release(held)
    s.take()


@store_check
def a_lease_that_ends_in_words_is_remembered_with_them(s: Scene) -> None:
    lease = s.take("blog", name="t-14", holder=s.holder(4121))
    s.wait(200)
    s.store.release(Release(lease, Outcome.ABANDONED, words="limited: the provider throttled it (429)"))
    (fact,) = s.store.facts(limit=10)
    expect_equal((fact.kind, fact.project, fact.name, fact.pid), ("ended", "blog", "t-14", 4121), "who")
    expect_equal(fact.words, "limited: the provider throttled it (429) (after 3 min)", "how")


@store_check
def a_lease_that_ended_badly_is_remembered_and_one_that_ended_well_is_not(s: Scene) -> None:
    s.static(4)
    for outcome in Outcome:
        lease = s.take()
        s.wait(2)
        s.release(lease, outcome)
    told = [fact.words for fact in s.store.facts(limit=10) if fact.kind == "ended"]
    expect_equal(
        sorted(told), [f"{word} (after 2 s)" for word in ("abandoned", "failed", "throttled")], "told"
    )


@store_check
def a_short_lease_leaves_no_line_in_the_history(s: Scene) -> None:
    s.release(s.take(), Outcome.FAILED)
    expect_equal(s.fact_kinds(), [], "what is remembered")
