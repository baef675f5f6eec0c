"""``flyball lease list`` and ``lease drop``, on every store: a person takes back what is held by nothing."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from flyball.core.pool.model import Ask
from flyball.governor.governor import Governor
from flyball.governor.internals import internals
from flyball.host.process import me
from tests.cli.kit import Cli, People
from tests.postgres_server import PostgresServer
from tests.redis_server import RedisServer


@pytest.fixture(params=["sqlite", "redis", "postgres"])
def home(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A state of the test's own, on each kind of store that has a command line."""
    place = tmp_path / "home"
    monkeypatch.setenv("FLYBALL_HOME", str(place))
    monkeypatch.delenv("FLYBALL_LEASE", raising=False)
    monkeypatch.delenv("FLYBALL_URL", raising=False)
    if request.param == "redis":
        server: RedisServer = request.getfixturevalue("redis_server")
        monkeypatch.setenv("FLYBALL_URL", f"{server.url}?space={os.urandom(8).hex()}")
        yield place
    elif request.param == "postgres":
        postgres: PostgresServer = request.getfixturevalue("postgres_server")
        space = postgres.space()
        monkeypatch.setenv("FLYBALL_URL", f"{postgres.url}?space={space}")
        yield place
        postgres.leave(space)
    else:
        yield place


@pytest.fixture
def stray(governor: Governor) -> int:
    """The lease of a process that cannot be checked from here."""
    governor.set_pool("anthropic", cap=1, adaptive=False)
    holder = replace(me(), host="container-7", boot="another", pid=4121)
    ask = Ask(pool="anthropic", project="blog", name="t-14", holder=holder)
    verdict, _ = internals(governor).store.admit(ask, park=False)
    assert verdict.granted
    return verdict.claim_id


def test_leases_are_listed_with_their_ids(cli: Cli, stray: int, people: People) -> None:
    pid = people.holds("openai", "shop", "t-2")
    assert [
        (lease["pool"], lease["pid"], lease["alive"])
        for lease in cli("lease", "list", "--json").json["leases"]
    ] == [
        ("anthropic", 4121, None),
        ("openai", pid, True),
    ]
    (found,) = cli("lease", "list", "--pool", "anthropic", "--json").json["leases"]
    assert (found["id"], found["host"]) == (stray, "container-7")
    assert str(stray) in cli("lease", "list").out


def test_a_pool_that_is_not_there_is_asked_about(cli: Cli, stray: int) -> None:
    result = cli("lease", "list", "--pool", "antropic")
    assert result.code == 2
    assert "anthropic" in result.err


def test_a_lease_that_cannot_be_checked_is_dropped_and_the_next_in_line_served(
    cli: Cli, governor: Governor, people: People, stray: int
) -> None:
    waiter = people.waits("anthropic", "blog", "t-15")
    result = cli("lease", "drop", str(stray), "--json")
    assert result.code == 0, result.err
    assert (result.json["dropped"], result.json["pid"], result.json["forced"]) == (stray, 4121, False)
    (pool,) = governor.status().pools
    assert [lease.pid for lease in pool.leases] == [waiter]


def test_the_fact_says_who_dropped_it(cli: Cli, governor: Governor, stray: int) -> None:
    by = cli("lease", "drop", str(stray), "--json").json["by"]
    assert by in governor.facts(limit=1)[0].words


def test_a_holder_that_lives_keeps_its_lease_unless_it_is_taken_by_force(
    cli: Cli, governor: Governor, people: People
) -> None:
    pid = people.holds("anthropic", "blog", "t-1")
    (lease,) = governor.status().pools[0].leases
    refused = cli("lease", "drop", str(lease.id))
    assert refused.code == 2
    assert f"pid {pid} runs" in refused.err
    assert "does not stop its work" in refused.err
    assert cli("lease", "drop", str(lease.id), "--force", "--json").json["forced"] is True
    assert governor.status().pools[0].leases == ()
    os.kill(pid, 0)


def test_a_lease_that_is_not_there_is_named(cli: Cli, stray: int) -> None:
    result = cli("lease", "drop", "99999999")
    assert result.code == 2
    assert "flyball lease list" in result.err


def test_the_doctor_names_leases_that_cannot_be_checked_and_what_drops_them(cli: Cli, stray: int) -> None:
    (finding,) = cli("doctor", "--json").json["findings"]
    assert (finding["kind"], finding["pool"]) == ("unchecked-lease", "anthropic")
    assert "flyball lease drop" in finding["remedy"]
    assert str(stray) in finding["remedy"]
