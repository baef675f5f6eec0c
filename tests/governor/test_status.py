"""``status()``: typed, JSON-able, the same for every reader, and it changes nothing."""

from __future__ import annotations

import os
from pathlib import Path

import msgspec
import pytest

from flyball import Governor, MachineSettings, Status
from flyball.core.pool.model import Ask
from flyball.errors import AtCapacityError
from flyball.governor.internals import internals
from flyball.governor.state_url import on_server
from flyball.host.process import me
from tests.governor.people import pool


@pytest.fixture
def busy(gov: Governor) -> Governor:
    """A governor with some of everything that its kind of store has."""
    needs = {} if on_server(gov.address) else {"gpu": 1}
    if needs:
        gov.set_machine(MachineSettings(ceiling=9, memory_floor_bytes=1, resources={"gpu": 2}))
    gov.set_pool("q", cap=2, controller="koryph", spacing_s=2.0, share="strict")
    gov.set_pool("q", weights={"blog": 2.0}, maxima={"shop": 1})
    gov.demand("q", "blog")
    gov.acquire("p", project="blog", name="ünï 🚀", resources=needs, model="opus")
    lease = gov.acquire("q", project="blog", timeout=0)
    lease.report(429, {"retry-after": "60"})
    internals(gov).store.admit(_ask(), park=True)
    return gov


def _ask() -> Ask:
    return Ask(pool="p", project="shop", name="t-15", holder=me(), priority=2)


def test_status_is_json_and_back(busy: Governor) -> None:
    status = busy.status()
    assert msgspec.json.decode(msgspec.json.encode(status), type=Status) == status


@pytest.mark.parametrize("url", ["sqlite"], indirect=True)
def test_a_reader_sees_what_the_writer_sees(busy: Governor, url: str) -> None:
    ours, theirs = busy.status(), Governor(url).status()
    assert _still(theirs) == _still(ours)


def _still(status: Status) -> object:
    """Without what changes from one moment to the next."""

    def calm(value: object) -> object:
        if isinstance(value, dict):
            return {k: calm(v) for k, v in value.items() if not k.endswith(("_s", "_ago", "words", "why"))}
        if isinstance(value, (list, tuple)):
            return [calm(v) for v in value]
        return value

    return calm(msgspec.to_builtins(status))


def test_status_shows_what_a_person_asks_for(busy: Governor) -> None:
    shown = pool(busy, "q")
    assert (shown.operator_cap, shown.cap, shown.cap_ceiling, shown.throttle_count) == (2, 1, 4, 1)
    assert shown.settling == "cut"
    assert (shown.settle_ends_in_s or 0) > 100
    assert shown.last_cut_s_ago is not None
    assert 50 < (shown.closed_for_s or 0) <= 60
    assert [d.project for d in shown.demand] == ["blog"]
    assert {p.name: (p.weight, p.maximum) for p in shown.projects} == {"blog": (2.0, None), "shop": (1.0, 1)}


def test_status_shows_leases_and_asks_with_their_reasons(busy: Governor) -> None:
    shown = pool(busy)
    (lease,), (ask,) = shown.leases, shown.asks
    assert (lease.project, lease.name, lease.pid, lease.model) == ("blog", "ünï 🚀", os.getpid(), "opus")
    assert dict(lease.resources) == ({} if on_server(busy.address) else {"gpu": 1})
    assert (ask.project, ask.position, ask.reason, ask.priority, ask.alive) == ("shop", 1, "cap", 2, True)
    assert "blog/ünï 🚀" in ask.words


@pytest.mark.parametrize("url", ["memory", "sqlite"], indirect=True)
def test_status_shows_the_machine(busy: Governor) -> None:
    machine = busy.status().machine
    assert (machine.ceiling, machine.memory_floor_bytes, machine.in_use) == (9, 1, 2)
    assert (dict(machine.resources), dict(machine.resources_in_use)) == ({"gpu": 2}, {"gpu": 1})


def test_status_says_where_the_state_is(gov: Governor, url: str) -> None:
    assert gov.status().location in (url, url.removeprefix("sqlite://"))


@pytest.mark.parametrize("url", ["sqlite"], indirect=True)
def test_status_changes_nothing(busy: Governor, home: Path) -> None:
    busy.close()
    before = {file.name: file.read_bytes() for file in home.iterdir() if file.suffix == ".db"}
    Governor().status()
    assert {file.name: file.read_bytes() for file in home.iterdir() if file.suffix == ".db"} == before


def test_status_never_frees_a_slot(busy: Governor) -> None:
    busy.status()
    with pytest.raises(AtCapacityError):
        busy.acquire_nowait("p")
