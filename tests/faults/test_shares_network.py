"""Share leases of real processes behind a network that fails: it hangs, loses, delays, reorders and cuts.

Two nodes reach their server through a proxy, one directly. An observer outside counts what is in flight: the
bound holds throughout, a node that was cut off comes back by itself, and at the end no slot is missing.
"""

from __future__ import annotations

import random
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from flyball import Governor
from tests.faults.conftest import SOAK
from tests.faults.share_fleet import Fleet
from tests.faults.tcp_proxy import FaultProxy, Way
from tests.faults.test_shares import BEAT_S, ends_well
from tests.faults.test_shares_and_their_server import SERVERS, SPACE, AnyServer, prepare
from tests.redis_server import RedisServer

ROUNDS = 40
LATE_S = 0.01
"""Each way. Every renewal of a PostgreSQL server takes several round trips, with its pool locked."""


@dataclass
class Network:
    """What a story needs: the proxy, those behind it, and the fleet that they are part of."""

    proxy: FaultProxy
    fleet: Fleet
    far: list[subprocess.Popen[bytes]]
    near: subprocess.Popen[bytes]

    def all_work(self) -> None:
        self.fleet.works(self.near, *self.far, pieces=10)

    def until_fenced(self) -> None:
        """The nodes behind the proxy start nothing any more; the other goes on."""
        pieces = self.fleet.observer.pieces
        seen, since = -1, time.monotonic()

        def quiet() -> bool:
            nonlocal seen, since
            done = sum(pieces[node.pid] for node in self.far)
            if done != seen:
                seen, since = done, time.monotonic()
            return time.monotonic() - since >= 2 * BEAT_S

        self.fleet.until(quiet, "those behind the proxy to be fenced")
        self.fleet.works(self.near, pieces=10)


@pytest.fixture(params=["forgets", "postgres"], ids=["redis", "postgres"])
def server(request: pytest.FixtureRequest) -> Iterator[AnyServer]:
    server = SERVERS[request.param]()
    yield server
    server.close()


@pytest.fixture
def gov(server: AnyServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Governor]:
    monkeypatch.setenv("FLYBALL_HOME", str(tmp_path / "home"))
    governor = Governor(f"{server.url}?socket_timeout=1&space={SPACE}")
    prepare(governor)
    yield governor
    governor.close()


@pytest.fixture
def network(server: AnyServer, gov: Governor) -> Iterator[Network]:
    is_redis = isinstance(server, RedisServer)
    proxy = FaultProxy(str(server.folder / ("s" if is_redis else ".s.PGSQL.5432")))
    options = f"socket_timeout=1&space={SPACE}"
    url = f"redis://127.0.0.1:{proxy.port}?{options}"
    if not is_redis:
        url = f"postgresql://127.0.0.1:{proxy.port}/postgres?{options}&sslmode=disable"
    with tempfile.TemporaryDirectory(prefix="fb-") as short:
        fleet = Fleet(gov.address, Path(short))
        far = [fleet.start(name, url=url) for name in "ab"]
        network = Network(proxy, fleet, far, fleet.start("c"))
        network.all_work()
        yield network
        proxy.mend()
        fleet.close()
        proxy.close()


def cut(network: Network) -> None:
    network.proxy.cut()


def cut_for_long(network: Network) -> None:
    network.proxy.refuse()
    network.proxy.cut()
    network.until_fenced()


def answers_hang(network: Network) -> None:
    """What was asked is done, and those who asked do not know; in the end they hear it, the last first."""
    network.proxy.hang(Way.ANSWERING)
    network.until_fenced()
    network.proxy.resume(newest_first=True)


def renewals_hang(network: Network) -> None:
    """They arrive when their senders have long given up."""
    network.proxy.hang(Way.ASKING)
    network.until_fenced()
    network.proxy.resume(newest_first=True)


def answers_are_lost(network: Network) -> None:
    network.proxy.lose(Way.ANSWERING)
    network.until_fenced()


def everything_is_late(network: Network) -> None:
    network.proxy.delay(LATE_S)
    network.all_work()


FAULTS: list[Callable[[Network], None]] = [
    cut,
    cut_for_long,
    answers_hang,
    renewals_hang,
    answers_are_lost,
    everything_is_late,
]


def test_a_network_that_fails_in_every_way_breaks_no_promise(network: Network, gov: Governor) -> None:
    for fault in FAULTS:
        fault(network)
        network.proxy.mend()
        network.all_work()
    network.fleet.stop(network.near, *network.far)
    ends_well(network.fleet, gov)


@pytest.mark.skipif(not SOAK, reason="make soak runs it")
def test_so_does_one_that_fails_at_random(network: Network, gov: Governor) -> None:
    seed = time.time_ns()
    print(f"seed {seed}")
    chance = random.Random(seed)
    for _ in range(ROUNDS):
        chance.choice(FAULTS)(network)
        network.proxy.mend()
        if chance.random() < 0.7:
            network.all_work()
    network.all_work()
    network.fleet.stop(network.near, *network.far)
    ends_well(network.fleet, gov)
