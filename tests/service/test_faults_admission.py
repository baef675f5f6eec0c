"""What goes wrong around an admission: killed servers, dead stores, bad input. Nothing twice or lost."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from flyball.governor.governor import Governor
from flyball.service.tokens import Scope, TokenFile
from tests.redis_server import RedisServer
from tests.service.kit import PROBLEM, Process, Running, Wire
from tests.service.leases_kit import Desk, together
from tests.waiting import until

BROKEN = [
    b"{",
    b"[]",
    b"3",
    b"null",
    b"\xff\xfe",
    b'{"name": "\xff"}',
    b'{"name": "\\ud800"}',
    b"[" * 5000,
    b'{"slots": NaN}',
    b'{"slots": 1e999}',
    b'{"slots": 0}',
    b'{"slots": true}',
    b'{"slots": "1"}',
    b'{"slots": 1.5}',
    b'{"priority": 100000000000000000000}',
    b'{"ttl_s": 0}',
    b'{"ttl_s": -1}',
    b'{"project": ""}',
    b'{"name": "\\u0000"}',
    b'{"name": "a\\nb"}',
    b'{"name": "' + b"x" * 201 + b'"}',
    b'{"cost": {"": 1}}',
    b'{"cost": {"tokens": -1}}',
    b'{"wait": 1}',
    b'{"unknown": 1}',
]


@pytest.mark.parametrize("body", BROKEN)
def test_a_body_that_makes_no_sense_is_a_400_and_starts_nothing(running: Running, body: bytes) -> None:
    answer = running.client.post("/v1/pools/broken/leases", content=body)
    assert (answer.status_code, answer.headers["content-type"]) == (400, PROBLEM), answer.text
    assert running.client.get("/v1/pools/broken").status_code == 404


@pytest.mark.parametrize(
    "path", ["/v1/pools/p/leases", "/v1/pools/p/signals", "/v1/leases/1/renew", "/v1/orgs/o/runs"]
)
def test_a_body_that_is_too_large_is_a_413(running: Running, path: str) -> None:
    answer = running.client.post(path, content=b'{"name": "' + b"x" * 70_000 + b'"}')
    assert (answer.status_code, answer.headers["content-type"]) == (413, PROBLEM)


@pytest.mark.parametrize(
    "name",
    [
        "../status",
        "...",
        "日本",
        "é",
        "a b",
        "50%",
        "a/b",
        "%2e%2e",
        "a?b",
        "a#b",
        " ",
        "ü/ö",
        "x" * 200,
        "'; DROP TABLE claim; --",
        "{pool}",
    ],
)
def test_a_name_is_only_a_name(running: Running, name: str) -> None:
    quoted = "".join(f"%{byte:02X}" for byte in name.encode())
    assert running.client.put(f"/v1/pools/{quoted}", json={"cap": 1, "adaptive": False}).status_code == 200
    answer = running.client.post(f"/v1/pools/{quoted}/leases", json={})
    assert (answer.status_code, answer.json()["pool"]) == (201, name)
    assert running.client.put(f"/v1/orgs/{quoted}", json={"max_concurrent_runs": 1}).json()["org"] == name
    started = running.client.post(f"/v1/orgs/{quoted}/runs")
    assert (started.status_code, started.json()["org"]) == (200, name)
    assert running.client.delete(started.headers["Location"]).status_code == 204, "its own address"
    assert running.client.get(f"/v1/orgs/{quoted}").json()["active"] == 0


@pytest.mark.parametrize("name", ["%2E", "%2E%2E"])
def test_a_name_that_clients_take_for_a_folder_is_refused(running: Running, name: str) -> None:
    for made in (
        running.client.put(f"/v1/orgs/{name}", json={"max_concurrent_runs": 1}),
        running.client.put(f"/v1/pools/{name}", json={"cap": 1}),
    ):
        assert (made.status_code, made.json()["type"]) == (400, "urn:flyball:bad-request"), made.text


@pytest.mark.parametrize("name", ["x" * 201, "a%00b", "a%0Ab", "%FF"])
def test_a_name_that_cannot_be_kept_is_refused(running: Running, name: str) -> None:
    assert running.client.post(f"/v1/pools/{name}/leases", json={}).status_code in (400, 404)
    assert running.client.post(f"/v1/orgs/{name}/runs").status_code in (400, 404)


def test_a_token_that_may_only_read_starts_nothing(guarded: Running) -> None:
    with guarded.as_token("fa-read", Scope.READ) as read, guarded.as_token("fa-admin", Scope.ADMIN) as admin:
        desk = Desk(guarded, client=admin)
        lease = desk.lease()
        desk.client = read
        for answer in (desk.ask(), desk.act(lease, "renew"), desk.act(lease, "release")):
            assert (answer.status_code, answer.json()["scope"]) == (403, "lease")
        with httpx.Client(base_url=guarded.url) as stranger:
            assert stranger.post(f"{desk.path}/leases", json={}).status_code == 401
        assert desk.now["in_use"] == 1


# -- the store is gone --------------------------------------------------------------------------------


@pytest.fixture
def fragile() -> Iterator[RedisServer]:
    """A store that saves what it is told, to be killed."""
    server = RedisServer("--appendonly", "yes", "--appendfsync", "always")
    yield server
    with contextlib.suppress(Exception):
        server.close()


def _granted(answer: httpx.Response) -> list[httpx.Response]:
    return [answer] if answer.status_code == 201 else []


@pytest.mark.faults
def test_a_dead_store_is_a_503_and_what_was_granted_is_there_when_it_is_back(
    fragile: RedisServer, tmp_path: Path
) -> None:
    with Running(Governor(fragile.url), tmp_path) as server:
        desk = Desk(server, 2)
        lease = desk.ask(key="before").json()
        fragile.kill()
        answer = desk.ask(key="during")
        assert (answer.status_code, answer.headers["content-type"]) == (503, PROBLEM)
        assert int(answer.headers["Retry-After"]) >= 1
        assert desk.act(lease, "renew").status_code == 503
        fragile.start()
        again = until(lambda: _granted(desk.ask(key="during")), "back")[0]
        assert "Idempotent-Replayed" not in again.headers, "a 503 does not poison a key"
        assert desk.ask(key="before").json()["id"] == lease["id"]
        assert desk.act(lease, "renew").status_code == 200
        assert desk.now["in_use"] == 2


# -- the server is killed -----------------------------------------------------------------------------


@pytest.mark.faults
def test_a_server_killed_in_the_middle_starts_nothing_twice_and_loses_nothing(tmp_path: Path) -> None:
    home = tmp_path / "home"
    keys = [f"k{number}" for number in range(40)]
    answered: dict[str, int] = {}
    with Process(home) as old:
        with httpx.Client(base_url=old.url) as client:
            assert client.put("/v1/pools/p", json={"cap": 100, "adaptive": False}).status_code == 200
            assert client.put("/v1/pools/q", json={"cap": 1, "adaptive": False}).status_code == 200
            held = client.post("/v1/pools/q/leases", json={}).json()
            ticket = client.post("/v1/pools/q/leases", json={"wait": True}).json()
        enough = threading.Event()
        with httpx.Client(base_url=old.url, timeout=10) as client:

            def ask(number: int) -> Any:
                key = {"Idempotency-Key": keys[number]}
                with contextlib.suppress(httpx.HTTPError):
                    answer = client.post("/v1/pools/p/leases", json={"name": "n"}, headers=key)
                    answered[keys[number]] = answer.json()["id"]
                    if len(answered) >= 10:
                        enough.set()
                return httpx.Response(200)

            def kill() -> None:
                enough.wait(20)
                old.signal(9)

            killer = threading.Thread(target=kill)
            killer.start()
            together(ask, len(keys))
            killer.join()
        old.wait()
    assert len(answered) >= 10
    with Process(home) as new, httpx.Client(base_url=new.url, timeout=10) as client:
        found = {}
        for key in keys:
            answer = client.post("/v1/pools/p/leases", json={"name": "n"}, headers={"Idempotency-Key": key})
            assert answer.status_code == 201
            found[key] = answer.json()
        assert {key: found[key]["id"] for key in answered} == answered
        assert (
            client.get("/v1/pools/p").json()["in_use"] == len(keys) == len({x["id"] for x in found.values()})
        )
        for lease in found.values():
            ended = client.post(f"/v1/leases/{lease['id']}/release", headers={"Lease-Token": lease["token"]})
            assert ended.status_code == 204, "its token outlives the server"
        assert client.get("/v1/pools/p").json()["in_use"] == 0
        mine = {"Lease-Token": held["token"]}
        assert client.post(f"/v1/leases/{held['id']}/release", headers=mine).status_code == 204
        answer = client.get(f"/v1/tickets/{ticket['id']}", headers={"Prefer": "wait=20"})
        assert answer.json()["state"] == "held", "a place in line outlives the server that gave it"


# -- the client is gone -------------------------------------------------------------------------------

ASKS = {
    "lease": ("/v1/pools/p/leases", ""),
    "lease, waiting": ("/v1/pools/p/leases", "Prefer: wait=20\r\n"),
    "ticket": ("/v1/pools/full/leases", "Prefer: wait=20\r\n"),
    "run": ("/v1/orgs/acme/runs", ""),
    "run, waiting": ("/v1/orgs/acme/runs", "Prefer: wait=20\r\n"),
}


@pytest.mark.faults
@pytest.mark.parametrize("asked", ASKS)
def test_clients_that_are_gone_before_their_answer_keep_neither_slot_nor_place(
    asked: str, tmp_path: Path
) -> None:
    path, prefer = ASKS[asked]
    with Process(tmp_path / "home") as server, httpx.Client(base_url=server.url, timeout=20) as client:
        _make_room(client)
        before, answered = _used(client), _answered(client, path)
        # Stopped, it finds each request and its end together.
        server.signal(signal.SIGSTOP)
        for _ in range(20):
            _ask_and_hang_up(server.port, path, prefer)
        server.signal(signal.SIGCONT)
        until(lambda: _answered(client, path) == answered + 20, "all were worked on")
        assert _used(client) == before


@pytest.mark.faults
def test_under_a_key_a_slot_is_kept_for_a_client_that_is_gone_and_asks_again(tmp_path: Path) -> None:
    with Process(tmp_path / "home") as server, httpx.Client(base_url=server.url, timeout=20) as client:
        _make_room(client)
        server.signal(signal.SIGSTOP)
        # Whose a connection was that is closed at both ends the kernel does not say: it brings a token.
        token = TokenFile(tmp_path / "home").add("gone", Scope.LEASE)
        client.headers["Authorization"] = f"Bearer {token}"
        given = f"Authorization: Bearer {token}\r\nIdempotency-Key: k\r\n"
        _ask_and_hang_up(server.port, "/v1/pools/p/leases", given)
        server.signal(signal.SIGCONT)
        until(lambda: client.get("/v1/pools/p").json()["in_use"] == 1, "it was asked for")
        again = client.post("/v1/pools/p/leases", json={}, headers={"Idempotency-Key": "k"})
        assert (again.status_code, again.headers["Idempotent-Replayed"]) == (201, "true")
        proof = {"Lease-Token": again.json()["token"]}
        renewed = client.post(f"/v1/leases/{again.json()['id']}/renew", json={}, headers=proof)
        assert renewed.status_code == 200
        assert client.get("/v1/pools/p").json()["in_use"] == 1


def _make_room(client: httpx.Client) -> None:
    assert client.put("/v1/pools/p", json={"cap": 100, "adaptive": False}).status_code == 200
    assert client.put("/v1/pools/full", json={"cap": 1, "adaptive": False}).status_code == 200
    assert client.post("/v1/pools/full/leases", json={}).status_code == 201
    assert client.put("/v1/orgs/acme", json={"max_concurrent_runs": 50}).status_code == 200
    until(lambda: client.get("/readyz").status_code == 200, "ready")


def _used(client: httpx.Client) -> list[tuple[int, int]]:
    pools = [client.get(f"/v1/pools/{name}").json() for name in ("p", "full", "runs")]
    return [(pool["in_use"], pool["waiting"]) for pool in pools]


def _ask_and_hang_up(port: int, path: str, header: str) -> None:
    wire = Wire(port)
    wire.send(f"POST {path} HTTP/1.1\r\nHost: localhost\r\n{header}Content-Length: 2\r\n\r\n{{}}".encode())
    wire.close()


def _answered(client: httpx.Client, path: str) -> int:
    """How many requests that start something there have been worked on, however they ended."""
    template = "/v1/orgs/{org}/runs" if "orgs" in path else "/v1/pools/{pool}/leases"
    start = f'flyball_http_answers_total{{endpoint="POST {template}"'
    lines = client.get("/metrics").text.splitlines()
    return sum(int(float(line.rsplit(" ", 1)[1])) for line in lines if line.startswith(start))
