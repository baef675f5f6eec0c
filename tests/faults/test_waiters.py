"""Waiters sleep; one of them must notice the dead. Real processes, really killed."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from flyball.governor.internals import internals
from flyball.host.process import identify, me
from tests.faults.people_kit import Start, cap_of, pool, said, starting
from tests.waiting import until


@pytest.fixture
def person(home: Path) -> Iterator[Start]:
    with starting() as start:
        yield start


def test_slots_of_killed_holders_come_back_while_every_waiter_sleeps(person: Start) -> None:
    cap_of(2)
    holders = [person("hold", f"holder {n}") for n in range(2)]
    assert [said(holder) for holder in holders] == ["held", "held"]
    waiters = [person("wait", f"waiter {n}") for n in range(5)]
    until(lambda: pool().waiting == 5)
    time.sleep(0.3)  # let the head of the line start to watch and all waiters fall asleep
    for holder in holders:
        holder.kill()
    assert [said(waiter) for waiter in waiters] == ["got"] * 5


def test_a_dead_waiters_slot_is_handed_on_to_the_next(person: Start) -> None:
    gov = cap_of(1)
    lease = gov.acquire(name="holder")
    first = person("wait", "first")
    until(lambda: pool().waiting == 1)
    second = person("wait", "second")
    until(lambda: pool().waiting == 2)
    first.kill()
    first.wait()
    lease.release()
    assert said(second) == "got"


def test_a_line_whose_head_died_is_watched_by_the_next(person: Start) -> None:
    cap_of(1)
    holder = person("hold", "holder")
    assert said(holder) == "held"
    head = person("wait", "head")
    until(lambda: pool().waiting == 1)
    behind = person("wait", "behind")
    until(lambda: pool().waiting == 2)
    head.kill()
    holder.kill()
    assert said(behind) == "got"


def test_a_recycled_pid_holds_nothing(home: Path) -> None:
    gov = cap_of(1)
    lease = gov.acquire(name="older")
    internals(gov).store.rebind(lease.id, replace(me(), start=1), launcher_pid=1)
    assert [held.alive for held in pool().leases] == [False]
    assert gov.acquire_nowait(name="newer").id != lease.id


def test_a_lease_from_before_a_reboot_holds_nothing(home: Path) -> None:
    gov = cap_of(1)
    lease = gov.acquire(name="before")
    internals(gov).store.rebind(lease.id, replace(me(), boot="another boot"), launcher_pid=1)
    gov.acquire_nowait(name="after")


def test_a_zombie_holds_nothing(home: Path) -> None:
    gov = cap_of(1)
    pid = os.fork()
    if pid == 0:
        time.sleep(30)
        os._exit(0)
    gov.hold(pid, "anthropic", project="p", name="soon a zombie")
    os.kill(pid, signal.SIGKILL)
    until(lambda: Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z")
    gov.acquire_nowait(name="next")
    os.waitpid(pid, 0)


def test_ten_thousand_asks_from_eight_processes_are_all_served(person: Start) -> None:
    cap_of(4)
    each = 1250
    crowds = [person("crowd", each) for _ in range(8)]
    assert [said(crowd) for crowd in crowds] == ["asking"] * 8
    assert [said(crowd, 100) for crowd in crowds] == [str(each)] * 8
    assert (pool().in_use, pool().waiting) == (0, 0)


def test_a_forked_child_lets_go_of_nothing_that_is_its_parents(home: Path) -> None:
    gov = cap_of(2)
    with gov.slot("anthropic", name="parent"):
        pid = os.fork()
        if pid == 0:
            try:
                with gov.slot("anthropic", name="child", timeout=10):
                    os._exit(10 + pool().in_use)
            except BaseException:
                os._exit(1)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 12
        assert [lease.name for lease in pool().leases if lease.alive] == ["parent"]
    assert identify(os.getpid()) == me()
