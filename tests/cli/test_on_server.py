"""The same verbs where ``FLYBALL_URL`` names a server; a password in it is shown nowhere."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from flyball.core.pool.holder import Holder
from flyball.governor.governor import Governor
from flyball.governor.internals import internals
from flyball.stores.postgres.store import PostgresStore
from flyball.stores.redis.store import RedisStore
from flyball.testing import FakeWorld, Scene, make_postgres, make_redis
from tests.cli.kit import Cli, People
from tests.postgres_server import PostgresServer
from tests.redis_server import RedisServer


@dataclass(frozen=True, slots=True)
class Guarded:
    """A server that wants a password."""

    server: RedisServer | PostgresServer
    address: str
    make: Callable[..., RedisStore | PostgresStore]

    def at(self, port: int) -> str:
        return self.address.format(port=port)


def redis() -> Guarded:
    server = RedisServer("--requirepass", "s3cret", tcp=True)
    return Guarded(server, "redis://:s3cret@127.0.0.1:{port}/0", make_redis)


def postgres() -> Guarded:
    server = PostgresServer(tcp=True)
    server.rules.write_text("local all all trust\nhost all all 127.0.0.1/32 scram-sha-256\n")
    server.run("CREATE ROLE someone SUPERUSER LOGIN PASSWORD 's3cret'; SELECT pg_reload_conf()")
    return Guarded(server, "postgresql://someone:s3cret@127.0.0.1:{port}/postgres", make_postgres)


@pytest.fixture(scope="module", params=[redis, postgres], ids=["redis", "postgres"])
def guarded(request: pytest.FixtureRequest) -> Iterator[Guarded]:
    found: Guarded = request.param()
    yield found
    found.server.close()


@pytest.fixture
def home(tmp_path: Path, guarded: Guarded, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("FLYBALL_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("FLYBALL_URL", f"{guarded.at(guarded.server.port)}?space={os.urandom(6).hex()}")
    monkeypatch.delenv("FLYBALL_LEASE", raising=False)
    return tmp_path / "home"


def test_nothing_is_made_by_looking(cli: Cli, guarded: Guarded) -> None:
    shown = cli("status")
    assert shown.code == 0
    assert "no pool is in use yet" in shown.out
    assert f"127.0.0.1:{guarded.server.port}" in shown.out
    assert "s3cret" not in shown.out + shown.err
    assert not cli.home.exists()


def test_a_pool_is_set_shown_and_reset(cli: Cli) -> None:
    assert cli("pool", "set", "anthropic", "--cap", "3", "--adaptive").code == 0
    assert cli("status", "--json").json["pools"][0]["operator_cap"] == 3
    assert "3" in cli("pool", "show", "anthropic").out
    assert cli("pool", "reset", "anthropic").code == 0


def test_a_pool_is_removed(cli: Cli, governor: Governor) -> None:
    governor.set_pool("demo", cap=2)
    governor.release(governor.acquire("demo"), "throttled")
    assert cli("pool", "remove", "demo").code == 0
    assert cli("status", "--json").json["pools"] == []
    assert governor.facts() == []


def test_status_and_why_name_who_holds_and_who_waits(cli: Cli, governor: Governor, people: People) -> None:
    governor.set_pool("anthropic", cap=1, adaptive=False)
    people.holds("anthropic", "blog", "t-14", model="opus")
    people.waits("anthropic", "shop", "t-15")
    shown = cli("status")
    assert "blog/t-14" in shown.out
    assert "shop/t-15" in shown.out
    assert "s3cret" not in shown.out + cli("status", "--json").out
    told = cli("why", "t-15")
    assert told.code == 0
    assert "blog/t-14" in told.out


def test_the_doctor_finds_and_takes_back_a_dead_lease(cli: Cli, governor: Governor, people: People) -> None:
    governor.set_pool("anthropic", cap=1, adaptive=False)
    pid = people.holds("anthropic", "blog", "t-14")
    assert cli("doctor").code == 0
    people.dies(pid)
    found = cli("doctor")
    assert found.code == 1
    assert "1 dead lease" in found.out
    assert cli("doctor", "--fix").code == 0
    assert governor.status().pools[0].in_use == 0
    assert "s3cret" not in found.out + found.err


def test_the_doctor_says_that_the_server_cannot_be_used(
    cli: Cli, guarded: Guarded, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FLYBALL_URL", guarded.at(1))
    found = cli("doctor")
    assert found.code == 1
    assert "cannot be reached" in found.out
    assert "s3cret" not in found.out + found.err


def test_limits_of_one_machine_are_refused_with_the_way_out(cli: Cli) -> None:
    told = cli("machine", "set", "--ceiling", "3")
    assert told.code == 2
    assert "flyball pool set" in told.err
    assert cli("machine", "show").code == 0


def test_a_host_that_is_gone_for_good_is_buried_under_its_name(
    cli: Cli, governor: Governor, guarded: Guarded
) -> None:
    """It held a lease, was heard of five minutes ago, and never comes back."""
    gone = Holder("gone box", "its last boot", 1, 7, 7)
    place, _, space = os.environ["FLYBALL_URL"].partition("?space=")
    world = FakeWorld(now=internals(governor).store.now() - 300, here=gone)
    then = guarded.make(world, place, space=space)
    scene = Scene(lambda _: then, world)
    scene.take(pool="anthropic", name="t-1", holder=gone)
    then.beat("anthropic", look_s=10)
    found = cli("doctor")
    assert found.code == 1
    assert "host gone box holds 1 slot and was not heard of for 5 min" in found.out
    assert "not for 5 min; its leases stay counted" in cli("status").out
    assert cli("doctor", "--fix").code == 1, "whether it works there cannot be told from here"
    way_out = found.out[found.out.index("FLYBALL_HOST_ID=") :].splitlines()[0].removesuffix(" here")
    assert way_out == "FLYBALL_HOST_ID='gone box' flyball doctor --fix"
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(["bash", "-c", way_out], env={**os.environ, "PATH": path}, capture_output=True)
    assert done.returncode == 0, done.stderr
    assert governor.status().pools[0].in_use == 0
    scene.close()
