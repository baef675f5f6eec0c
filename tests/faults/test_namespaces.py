"""Holders and waiters in pid namespaces of their own, as in containers. Real namespaces, really ended."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import flyball
from flyball.host.pid_namespaces import FIRST_NAMESPACE, pid_namespace
from tests.faults.people_kit import Start, cap_of, pool, said, starting
from tests.waiting import until

INSIDE = ("unshare", "--user", "--map-root-user", "--pid", "--fork", "--mount-proc")
ELSEWHERE = ("env", "FLYBALL_HOST_ID=container", *INSIDE)
"""A namespace under a host name of its own."""

pytestmark = pytest.mark.skipif(
    not shutil.which("unshare") or bool(subprocess.run([*INSIDE, "true"], capture_output=True).returncode),
    reason="this system does not allow pid namespaces",
)
sees_all = pytest.mark.skipif(
    pid_namespace() != FIRST_NAMESPACE, reason="only the machine's first pid namespace sees all others"
)


@pytest.fixture
def person(home: Path) -> Iterator[Start]:
    with starting() as start:
        yield start


def end(process: subprocess.Popen[str]) -> None:
    """Kill a namespace: its first process, and with it all."""
    with open(f"/proc/{process.pid}/task/{process.pid}/children") as file:
        (first,) = file.read().split()
    os.kill(int(first), 9)
    process.wait()


def inside(*words: str) -> dict[str, Any]:
    """What a verb says in a namespace of its own."""
    command = [*INSIDE, sys.executable, "-m", "flyball", *words, "--json"]
    done = subprocess.run(command, capture_output=True, text=True)
    found: dict[str, Any] = json.loads(done.stdout)
    return found


@pytest.mark.parametrize("where", [INSIDE, ELSEWHERE])
def test_a_holder_in_a_namespace_below_is_seen_to_live(person: Start, where: tuple[str, ...]) -> None:
    gov = cap_of(1)
    holder = person("hold", "inside", before=where)
    assert said(holder) == "held"
    lease = pool().leases[0]
    assert (lease.alive, lease.expires_in_s) == (True, None)
    with pytest.raises(flyball.AtCapacityError):
        gov.acquire_nowait()
    waiter = person("wait", "outside")
    until(lambda: pool().waiting == 1)
    assert holder.stdin is not None
    holder.stdin.close()
    assert said(waiter) == "got"


def test_a_holder_in_a_namespace_beside_cannot_be_checked_and_counts(person: Start) -> None:
    cap_of(1)
    assert said(person("hold", "inside", before=INSIDE)) == "held"
    (lease,) = inside("status")["pools"][0]["leases"]
    assert lease["alive"] is None
    assert lease["expires_in_s"] == pytest.approx(24 * 3600, abs=60)
    (finding,) = inside("doctor")["findings"]
    assert finding["kind"] == "unchecked-lease"


def test_the_lease_of_a_namespace_that_ended_can_be_dropped_from_one_beside(person: Start) -> None:
    gov = cap_of(1)
    holder = person("hold", "inside", before=INSIDE)
    assert said(holder) == "held"
    end(holder)
    (lease,) = inside("lease", "list")["leases"]
    assert inside("lease", "drop", str(lease["id"]))["dropped"] == lease["id"]
    gov.acquire_nowait(name="next")


@sees_all
@pytest.mark.parametrize("where", [INSIDE, ELSEWHERE])
def test_the_slot_of_a_namespace_that_ended_comes_back(person: Start, where: tuple[str, ...]) -> None:
    gov = cap_of(1)
    holder = person("hold", "inside", before=where)
    assert said(holder) == "held"
    end(holder)
    assert pool().leases[0].alive is False
    gov.acquire_nowait(name="next")


@sees_all
def test_a_waiter_gets_the_slot_of_a_namespace_that_ends_while_it_sleeps(person: Start) -> None:
    cap_of(1)
    holder = person("hold", "inside", before=INSIDE)
    assert said(holder) == "held"
    waiter = person("wait", "outside")
    until(lambda: pool().waiting == 1)
    end(holder)
    assert said(waiter) == "got"


def test_a_dead_waiter_in_a_namespace_beside_is_passed_at_once(person: Start) -> None:
    cap_of(1)
    holder = person("hold", "inside", before=INSIDE)
    assert said(holder) == "held"
    dead = person("wait", "dead", before=INSIDE)
    until(lambda: pool().waiting == 1)
    alive = person("wait", "alive", before=INSIDE)
    until(lambda: pool().waiting == 2)
    end(dead)
    assert holder.stdin is not None
    holder.stdin.close()
    assert said(alive) == "got"
