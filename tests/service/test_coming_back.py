"""Clients that ask again under their key, at the same server or another: served soon, or not at all."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest

from flyball.governor.governor import Governor
from flyball.governor.internals import internals
from tests.service.kit import Process, Running
from tests.service.leases_kit import Desk, Later, url_for
from tests.waiting import until

STORES = ("sqlite", "redis", "postgres")
CLIENTS = 60
WORK_S = 0.05
pytestmark = pytest.mark.faults


class Waiters:
    """Clients that each want one slot for a moment, wait for it under a key, and come back when cut off."""

    def __init__(self, pool: str) -> None:
        self._pool = pool
        self._url = ""
        self._there = threading.Condition()
        self.served: set[int] = set()
        self.wrong: list[str] = []
        self._threads = [threading.Thread(target=self._want, args=(n,), daemon=True) for n in range(CLIENTS)]

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def go_to(self, url: str) -> None:
        with self._there:
            self._url = url
            self._there.notify_all()

    def _want(self, number: int) -> None:
        tried = ""
        while number not in self.served:
            with self._there:
                self._there.wait_for(lambda tried=tried: self._url != tried)  # type: ignore[misc]
                tried = self._url
            try:
                self._work(urlsplit(tried).port or 0, number)
            except (OSError, HTTPException):
                continue
            except Exception as error:
                self.wrong.append(repr(error))
                return

    def _work(self, port: int, number: int) -> None:
        connection = HTTPConnection("127.0.0.1", port, timeout=70)

        def post(path: str, status: int, headers: dict[str, str]) -> Any:
            connection.request("POST", path, body=b"{}", headers=headers)
            answer = connection.getresponse()
            said = answer.read()
            assert answer.status == status, said
            return json.loads(said or b"{}")

        headers = {"Idempotency-Key": f"{self._pool}-{number}", "Prefer": "wait=60"}
        lease = post(f"/v1/pools/{self._pool}/leases", 201, headers)
        token = {"Lease-Token": lease["token"]}
        post(f"/v1/leases/{lease['id']}/renew", 200, token)
        time.sleep(WORK_S)
        post(f"/v1/leases/{lease['id']}/release", 204, token)
        self.served.add(number)
        connection.close()

    def until_served(self, *, patience_s: float) -> None:
        deadline = time.monotonic() + patience_s
        for thread in self._threads:
            thread.join(max(0.0, deadline - time.monotonic()))


@pytest.mark.parametrize("kind", STORES)
def test_those_who_wait_are_served_by_a_server_that_was_killed_and_started_again(
    kind: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    home, pool = tmp_path / "home", f"back-{kind}"
    environment = {"FLYBALL_URL": url_for(kind, request, tmp_path)}
    waiters = Waiters(pool)
    with Process(home, environment=environment) as old:
        with httpx.Client(base_url=old.url, timeout=20) as client:
            assert client.put(f"/v1/pools/{pool}", json={"cap": 2, "adaptive": False}).status_code == 200
            held = [client.post(f"/v1/pools/{pool}/leases", json={}).json() for _ in range(2)]
            waiters.start()
            waiters.go_to(old.url)
            until(lambda: client.get(f"/v1/pools/{pool}").json()["waiting"] == CLIENTS, "all wait")
        old.signal(9)
        old.wait()
    with Process(home, environment=environment) as new, httpx.Client(base_url=new.url, timeout=20) as client:
        waiters.go_to(new.url)
        for lease in held:
            token = {"Lease-Token": lease["token"]}
            client.post(f"/v1/leases/{lease['id']}/release", json={}, headers=token)
        # 1.5 s of work, and far less than the minute for which each of them would wait.
        waiters.until_served(patience_s=45)
        assert (len(waiters.served), waiters.wrong) == (CLIENTS, [])
        assert client.get(f"/v1/pools/{pool}").json()["in_use"] == 0


@pytest.fixture(params=STORES)
def servers(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[Running, Running]]:
    url = url_for(request.param, request, tmp_path)
    with Running(Governor(url), tmp_path) as one, Running(Governor(url), tmp_path) as other:
        yield one, other


class FullOrg:
    """An org whose one run goes on, seen through two servers."""

    def __init__(self, servers: tuple[Running, Running], name: str) -> None:
        self.path = f"/v1/orgs/{name}"
        self.clients = [server.client for server in servers]
        assert self.clients[0].put(self.path, json={"max_concurrent_runs": 1}).status_code == 200
        self.first = self.start(0, "first")
        assert self.first.status_code == 200

    def start(self, server: int, key: str, wait_s: int = 0) -> httpx.Response:
        headers = {"Idempotency-Key": key, "Prefer": f"wait={wait_s}"}
        answer = self.clients[server].post(f"{self.path}/runs", headers=headers)
        # Another server hears of an org within a second.
        return answer if answer.status_code != 404 else self.start(server, key, wait_s)

    def until_queued(self, many: int) -> None:
        until(lambda: self.clients[0].get(self.path).json()["queued"] == many, f"{many} in line")

    def mailbox(self, server: Running) -> str:
        """Where the ask in line is woken."""
        claims = internals(server.service.governor).store.census().claims
        return next(
            claim.mailbox for claim in claims if f"/v1/orgs/{claim.project}" == self.path and not claim.held
        )

    def end(self, run_id: str) -> httpx.Response:
        return self.clients[0].delete(f"{self.path}/runs/{run_id}")

    def beat(self, run_id: str) -> httpx.Response:
        return self.clients[1].post(f"{self.path}/runs/{run_id}/heartbeat")


def test_a_run_that_was_never_admitted_is_refused_by_both_servers_that_waited(
    servers: tuple[Running, Running], request: pytest.FixtureRequest
) -> None:
    org = FullOrg(servers, f"never-{request.node.callspec.id}")
    one = Later(org.start, 0, "k", 3)
    org.until_queued(1)
    other = Later(org.start, 1, "k", 6)
    assert one.answer.status_code == 429
    assert other.answer.status_code == 429, other.answer.text
    org.until_queued(0)


def test_a_run_is_admitted_once_where_two_servers_wait_for_it(
    servers: tuple[Running, Running], request: pytest.FixtureRequest
) -> None:
    org = FullOrg(servers, f"once-{request.node.callspec.id}")
    one = Later(org.start, 0, "k", 15)
    org.until_queued(1)
    mailbox = org.mailbox(servers[0])
    other = Later(org.start, 1, "k", 15)
    until(lambda: org.mailbox(servers[0]) != mailbox, "the other waits too")
    assert org.end(org.first.json()["run_id"]).status_code == 204
    answers = [one.answer, other.answer]
    assert [answer.status_code for answer in answers] == [200, 200]
    assert len({answer.json()["run_id"] for answer in answers}) == 1
    assert org.beat(one.answer.json()["run_id"]).status_code == 200


def test_a_ticket_that_was_withdrawn_is_not_told_as_a_lease_to_its_key(tmp_path: Path) -> None:
    with Running(Governor(f"sqlite://{tmp_path / 'governor.db'}"), tmp_path) as server:
        desk = Desk(server)
        desk.lease()
        ticket = desk.ticket(key="k")
        later = Later(desk.ask, key="k", wait=True, prefer="wait=5")
        until(lambda: desk.ask(key="k", wait=True).status_code == 409, "the replay waits")
        token = {"Lease-Token": ticket["token"]}
        assert server.client.delete(f"/v1/tickets/{ticket['id']}", headers=token).status_code == 204
        answer = later.answer
        assert (answer.status_code, answer.json()["state"]) == (202, "waiting")
        assert desk.now["in_use"] == 1
