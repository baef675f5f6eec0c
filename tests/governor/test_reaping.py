"""Slots of the dead come back: to the next ask, and to a sleeping waiter."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from dataclasses import replace

import pytest

from flyball import Governor, MachineSettings
from flyball.core.pool.model import Ask, Claim
from flyball.core.pool.settings import LEASE_BACKSTOP_S
from flyball.errors import AtCapacityError
from flyball.governor import acquisition
from flyball.governor.acquisition import is_gone
from flyball.governor.internals import internals
from flyball.host.process import me
from tests.governor.people import Person, in_use, nothing_left, pool, wait_for_line

Start = Callable[[], "subprocess.Popen[bytes]"]


def _killed(child: Start, gov: Governor, name: str = "p") -> int:
    """A lease whose holder is dead."""
    process = child()
    claim_id = gov.hold(process.pid, name, project="blog", name="t-14")
    process.kill()
    process.wait()
    return claim_id


def test_an_ask_that_would_be_refused_takes_the_slot_of_a_dead_holder(gov: Governor, child: Start) -> None:
    _killed(child, gov)
    gov.acquire_nowait("p").release()
    assert nothing_left(gov)
    assert any(fact.kind == "reclaimed" for fact in gov.facts())


def test_a_zombie_is_dead(gov: Governor, child: Start) -> None:
    process = child()
    gov.hold(process.pid, "p")
    process.kill()
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
    gov.acquire_nowait("p").release()


def test_a_living_holder_keeps_its_slot(gov: Governor, child: Start) -> None:
    gov.hold(child().pid, "p")
    with pytest.raises(AtCapacityError):
        gov.acquire_nowait("p")


def test_a_sleeping_waiter_gets_the_slot_of_a_holder_that_is_killed(gov: Governor, child: Start) -> None:
    process = child()
    gov.hold(process.pid, "p")
    waiting = Person(lambda: gov.acquire("p", timeout=9))
    wait_for_line(gov)
    process.kill()
    process.wait()
    waiting.outcome().release()
    assert nothing_left(gov)


@pytest.mark.parametrize("url", ["memory", "sqlite"], indirect=True)
@pytest.mark.parametrize("machine", [MachineSettings(ceiling=1), MachineSettings(resources={"gpu": 1})])
def test_a_dead_holder_of_another_pool_is_found_where_limits_span_pools(
    gov: Governor, child: Start, machine: MachineSettings
) -> None:
    gov.set_machine(machine)
    needs = dict(machine.resources)
    process = child()
    lease = gov.acquire("q", resources=needs)
    assert internals(gov).rebind(lease, process.pid)
    process.kill()
    process.wait()
    gov.acquire_nowait("p", resources=needs).release()


def test_a_lease_follows_the_process_it_was_bound_to(gov: Governor, child: Start) -> None:
    process = child()
    lease = gov.acquire("p")
    assert internals(gov).rebind(lease, process.pid)
    (shown,) = pool(gov).leases
    assert (shown.pid, shown.launcher_pid) == (process.pid, os.getpid())
    with pytest.raises(AtCapacityError):
        gov.acquire_nowait("p")
    process.kill()
    process.wait()
    gov.acquire_nowait("p").release()


def test_a_command_that_ends_while_the_dead_are_looked_for_is_its_launchers_to_release(
    gov: Governor, child: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    gov.set_pool("p", cap=2)
    _killed(child, gov)
    process = child()
    lease = gov.acquire("p")
    assert internals(gov).rebind(lease, process.pid)
    look = acquisition._is_being_released

    def it_ends_after_the_look(claim: Claim) -> bool:
        seen = look(claim)
        if claim.id == lease.id and process.poll() is None:
            process.kill()
            process.wait()
        return seen

    monkeypatch.setattr(acquisition, "_is_being_released", it_ends_after_the_look)
    gov.acquire_nowait("p").release()
    lease.release(words="it said how it ended")
    told = [(fact.kind, fact.words) for fact in gov.facts()]
    assert any(words.startswith("it said how it ended") for _, words in told)
    assert [kind for kind, _ in told].count("reclaimed") == 1


def test_reaping_finds_the_dead_of_every_pool(gov: Governor, child: Start) -> None:
    _killed(child, gov, "p")
    _killed(child, gov, "q")
    assert gov.reap() == 2
    assert gov.reap() == 0
    assert nothing_left(gov)


def test_status_shows_the_dead_as_dead_and_still_counts_them(gov: Governor, child: Start) -> None:
    _killed(child, gov)
    (shown,) = pool(gov).leases
    assert (shown.alive, in_use(gov)) == (False, 1)
    assert in_use(gov) == 1


def test_held_work_counts_above_the_cap_and_admits_no_ask(gov: Governor, child: Start) -> None:
    gov.acquire("p")
    gov.hold(child().pid, "p")
    assert (in_use(gov), pool(gov).free) == (2, 0)
    with pytest.raises(AtCapacityError):
        gov.acquire_nowait("p")


def test_a_demand_whose_process_died_is_dropped(gov: Governor, child: Start) -> None:
    process = child()
    holder = replace(me(), pid=process.pid, start=0)
    internals(gov).store.demand("p", "blog", holder, ttl_s=600.0)
    assert [d.alive for d in pool(gov).demand] == [False]
    assert gov.reap() == 1
    assert pool(gov).demand == ()


# -- holders that this host cannot see -----------------------------------------------------------------------


def _elsewhere(gov: Governor) -> int:
    ask = Ask(pool="p", project="blog", name="far", holder=replace(me(), host="elsewhere"))
    verdict, _ = internals(gov).store.admit(ask, park=False)
    return verdict.claim_id


def test_a_holder_on_another_machine_keeps_its_slot_for_a_day(gov: Governor) -> None:
    claim = internals(gov).store.claim(_elsewhere(gov))
    assert claim is not None
    assert claim.granted_at is not None
    assert not is_gone(claim, claim.granted_at + LEASE_BACKSTOP_S - 1)
    assert is_gone(claim, claim.granted_at + LEASE_BACKSTOP_S + 1)


@pytest.mark.parametrize("foreign", [{"host": "elsewhere"}, {"pidns": 7}])
def test_the_backstop_is_for_holders_that_cannot_be_checked(
    gov: Governor, foreign: dict[str, object]
) -> None:
    claim = internals(gov).store.claim(_elsewhere(gov))
    assert claim is not None
    ages = claim.asked_at + 10 * LEASE_BACKSTOP_S
    assert is_gone(replace(claim, holder=replace(me(), **foreign)), ages)  # type: ignore[arg-type]
    assert not is_gone(replace(claim, holder=me()), ages)
    assert is_gone(replace(claim, holder=replace(me(), boot="before")), claim.asked_at)


def test_an_unknown_holder_does_not_make_an_ask_fail(gov: Governor) -> None:
    _elsewhere(gov)
    with pytest.raises(AtCapacityError):
        gov.acquire_nowait("p")
    assert [shown.alive for shown in pool(gov).leases] == [None]
