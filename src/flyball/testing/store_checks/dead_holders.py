"""Dead holders, holders that cannot be checked, and which process a lease follows."""

from __future__ import annotations

from flyball.core.pool.settings import CONFIRM_S, LEASE_BACKSTOP_S, MachineSettings
from flyball.testing.store_checks.scenario import Scene, expect, expect_equal, machine_check, store_check


@store_check
def the_slot_of_a_dead_holder_goes_to_the_next_in_line(s: Scene) -> None:
    s.static(1)
    lease = s.take()
    ask = s.park()
    after = s.reclaim(lease)
    expect(s.is_held(ask), "granted in the same step")
    expect_equal([wake.claim_id for wake in after.wakes], [ask], "woken")
    expect("reclaimed" in s.fact_kinds(), "it is told")


@store_check
def a_dead_waiter_leaves_the_line(s: Scene) -> None:
    s.static(1)
    lease = s.take()
    dead, alive = s.park(), s.park()
    s.reclaim(dead)
    s.release(lease)
    expect(s.is_held(alive), "the slot went past the dead")


@store_check
def a_slot_handed_to_a_dead_waiter_is_handed_on(s: Scene) -> None:
    s.static(1)
    lease = s.take()
    dead, alive = s.park(), s.park()
    s.release(lease)
    expect(s.is_held(dead), "handed to the first in line, who is dead")
    s.reclaim(dead)
    expect(s.is_held(alive), "handed on")


@store_check
def nobody_is_buried_whose_lease_has_a_new_holder(s: Scene) -> None:
    launcher, child = s.holder(), s.holder()
    lease = s.take(holder=launcher)
    rebound, _ = s.store.rebind(lease, child, launcher_pid=launcher.pid)
    expect(rebound, "rebound")
    s.store.reclaim([(lease, launcher)])
    expect(s.is_held(lease), "the lease lives with the child now")
    expect_equal((s.claim(lease).holder, s.claim(lease).launcher_pid), (child, launcher.pid), "whose it is")
    s.store.reclaim([(lease, child)])
    expect(not s.is_held(lease), "and dies with it")


@store_check
def a_recycled_pid_is_not_the_holder(s: Scene) -> None:
    old = s.holder(500)
    lease = s.take(holder=old)
    recycled = type(old)(old.host, old.boot, old.pidns, old.pid, old.start + 1)
    s.store.reclaim([(lease, recycled)])
    expect(s.is_held(lease), "another process of that pid died, not the holder")


@store_check
def a_lease_that_is_gone_cannot_be_rebound(s: Scene) -> None:
    lease = s.take()
    s.release(lease)
    rebound, _ = s.store.rebind(lease, s.holder(), launcher_pid=1)
    expect(not rebound, "rebound a released lease")


@store_check
def an_ask_that_waits_cannot_be_rebound(s: Scene) -> None:
    s.static(1)
    s.take()
    launcher = s.holder()
    ask = s.park(holder=launcher)
    rebound, _ = s.store.rebind(ask, s.holder(), launcher_pid=launcher.pid)
    expect(not rebound, "bound a process to a slot that it does not have")
    expect_equal(s.claim(ask).holder, launcher, "whose ask it is")


@store_check
def who_dropped_a_lease_is_told(s: Scene) -> None:
    s.static(1)
    lease, ask = s.take(), s.park()
    s.store.reclaim([(lease, s.claim(lease).holder)], why="dropped by ann on box")
    expect(s.is_held(ask), "the next in line has the slot")
    told = [fact.words for fact in s.store.facts(limit=10) if fact.kind == "reclaimed"]
    expect_equal(told, ["slot taken back: dropped by ann on box"], "what is told")


@store_check
def a_slot_that_its_waiter_never_took_is_told_apart(s: Scene) -> None:
    s.static(1)
    lease = s.take()
    s.park(holder=s.stranger())
    s.release(lease)
    s.wait(120)
    s.store.reclaim([])
    expect("unanswered" in s.fact_kinds(), "what became of the slot that was handed over")
    expect("reclaimed" not in s.fact_kinds(), "no holder was found dead")


@store_check
def reclaiming_the_same_claim_twice_frees_one_slot(s: Scene) -> None:
    s.static(2)
    lease = s.take()
    s.take()
    holder = s.claim(lease).holder
    s.store.reclaim([(lease, holder), (lease, holder)])
    expect_equal(s.snapshot().in_use, 1, "slots in use")


@store_check
def a_lease_that_was_granted_to_its_asker_never_expires_by_itself(s: Scene) -> None:
    """Whether a holder is gone is judged by who can see it; the store is told."""
    known, unknown = s.take(), s.take(holder=s.stranger())
    s.wait(30 * LEASE_BACKSTOP_S)
    s.reclaim()
    expect(s.is_held(known) and s.is_held(unknown), "a lease vanished under a living agent")


@store_check
def a_slot_handed_to_a_waiter_we_cannot_check_must_be_confirmed(s: Scene) -> None:
    s.static(1)
    lease = s.take()
    silent, next_one = s.park(holder=s.stranger()), s.park()
    s.release(lease)
    s.wait(CONFIRM_S - 1)
    s.reclaim()
    expect(s.is_held(silent), "it has a minute")
    s.wait(1)
    s.reclaim()
    expect(s.is_held(next_one), "then the slot is handed on")


@store_check
def a_confirmed_slot_stays(s: Scene) -> None:
    s.static(1)
    lease = s.take()
    ask = s.park(holder=s.stranger())
    s.release(lease)
    s.store.poll(ask, advance=False)
    s.wait(CONFIRM_S + 1)
    s.reclaim()
    expect(s.is_held(ask), "it answered in time")


@store_check
def the_watched_are_the_holders_and_the_watcher(s: Scene) -> None:
    s.static(2)
    leases = {s.take(), s.take()}
    s.park()
    s.park()
    (watcher,) = [ask.claim.id for ask in s.snapshot().asks if ask.verdict.watch]
    other = s.take(pool="q")
    watched = {claim.id for claim in s.store.pool_census("p").claims}
    expect_equal(watched, leases | {watcher}, "watched in the pool")
    holders = {s.claim(claim_id).holder for claim_id in watched}
    expect_equal(set(s.store.holders("p")), holders, "the processes behind them")
    expect(other in {claim.id for claim in s.store.census().claims}, "the census has every holder")


@machine_check
def under_limits_over_all_pools_every_pools_holders_are_watched(s: Scene) -> None:
    s.store.set_machine(MachineSettings(ceiling=1))
    elsewhere = s.take(pool="q")
    s.park(pool="p")
    expect(
        elsewhere in {claim.id for claim in s.store.pool_census("p").claims}, "a holder that is in the way"
    )


@store_check
def watching_a_pool_that_is_not_there_finds_nobody(s: Scene) -> None:
    expect_equal(s.store.pool_census("nowhere").claims, (), "watched")
    expect_equal(s.store.holders("nowhere"), [], "holders")
    expect_equal(s.store.snapshot().pools, (), "pools made by asking")
