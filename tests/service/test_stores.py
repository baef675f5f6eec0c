"""The same over Redis and PostgreSQL: looking, changing, and a store that goes and comes back."""

from __future__ import annotations

from pathlib import Path

import pytest

from flyball.core.signals import Signal, SignalKind
from flyball.governor.governor import Governor
from tests.redis_server import RedisServer
from tests.service.kit import Events, Running
from tests.waiting import until


@pytest.fixture(params=["redis", "postgres"])
def url(request: pytest.FixtureRequest) -> str:
    base: str = request.getfixturevalue(f"{request.param}_server").url
    return f"{base}{'&' if '?' in base else '?'}space=service"


def test_a_server_that_many_share_is_seen_and_changed(url: str, tmp_path: Path) -> None:
    other = Governor(url)
    with Running(Governor(url), tmp_path) as server:
        with Events(server.port) as events:
            server.client.put("/v1/pools/shared", json={"cap": 6, "controller": "koryph"})
            lease = other.acquire_nowait("shared", project="blog", name="t-1")
            until(lambda: _in_use(events)[-1:] == [1], "the lease")
            other.report("shared", Signal(SignalKind.THROTTLED), project="blog", name="t-1")
            until(lambda: events.about("fact", "shared"), "the cut")
            assert server.client.delete(f"/v1/leases/{lease.id}").status_code == 409
            other.release(lease)
            until(lambda: _in_use(events)[-1] == 0, "the release")
        told = server.client.get("/v1/status").json()
        assert "@" not in told["location"]
        assert server.client.post("/v1/pools/shared/reset").json()["cap"] == 6
        assert server.client.delete("/v1/leases/999999999").status_code == 404
    other.close()


def _in_use(events: Events) -> list[int]:
    return [pool["in_use"] for pool in events.about("state", "shared")]


def test_a_store_that_goes_and_comes_back(tmp_path: Path) -> None:
    redis = RedisServer()
    try:
        with Running(Governor(redis.url), tmp_path) as server:
            with Events(server.port) as events:
                redis.kill()
                events.wait_for("outage")
                answer = server.client.patch("/v1/pools/p", json={"cap": 3})
                assert (answer.status_code, answer.json()["type"]) == (503, "urn:flyball:store")
                assert "retry-after" in answer.headers
                assert server.client.get("/readyz").status_code == 503
                assert server.client.get("/healthz").status_code == 200
                before = len(events.named("state"))
                redis.start()
                events.wait_for("state", before + 1)
            until(lambda: server.client.get("/readyz").status_code == 200, "ready again")
    finally:
        redis.close()
