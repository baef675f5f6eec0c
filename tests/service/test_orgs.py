"""Orgs and their runs: never more at once than allowed, on every store."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from itertools import count
from typing import Any

import httpx
import pytest

from flyball.service.tokens import Scope
from tests.service.kit import PROBLEM, Running
from tests.service.leases_kit import STORES, Later, serving_on, together
from tests.waiting import until

_numbers = count(1)


@pytest.fixture(scope="module", params=STORES)
def server(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    with serving_on(request.param, request, tmp_path_factory.mktemp("home")) as server:
        yield server


class Org:
    def __init__(self, client: httpx.Client, **settings: Any) -> None:
        self.client, self.path = client, f"/v1/orgs/org-{next(_numbers)}"
        answer = client.put(self.path, json={"max_concurrent_runs": 2, **settings})
        assert answer.status_code == 200, answer.text

    def start(self, **headers: str) -> httpx.Response:
        return self.client.post(f"{self.path}/runs", headers=headers)

    def run(self) -> str:
        answer = self.start()
        assert answer.status_code == 200, answer.text
        return str(answer.json()["run_id"])

    def beat(self, run_id: str) -> httpx.Response:
        return self.client.post(f"{self.path}/runs/{run_id}/heartbeat")

    def end(self, run_id: str) -> httpx.Response:
        return self.client.delete(f"{self.path}/runs/{run_id}")

    @property
    def now(self) -> dict[str, Any]:
        found: dict[str, Any] = self.client.get(self.path).json()
        return found


@pytest.fixture
def org(server: Running) -> Org:
    return Org(server.client)


def test_ten_starts_at_a_limit_of_two_admit_exactly_two(org: Org) -> None:
    for _ in range(3):
        answers = together(lambda _: org.start(), 10)
        assert Counter(answer.status_code for answer in answers) == {200: 2, 429: 8}
        assert org.now["active"] == 2
        for answer in answers:
            if answer.status_code == 200:
                assert org.end(answer.json()["run_id"]).status_code == 204
            else:
                said = answer.json()
                assert answer.headers["content-type"] == PROBLEM
                assert (said["limit"], said["active"], said["reason"]) == (2, 2, "maximum")
                assert 1 <= int(answer.headers["Retry-After"]) <= 30
    assert org.now["active"] == 0


def test_an_org_that_does_not_exist_has_no_runs(server: Running) -> None:
    answer = server.client.post("/v1/orgs/nobody/runs")
    assert (answer.status_code, answer.json()["type"]) == (404, "urn:flyball:unknown-org")
    answer = server.client.put("/v1/orgs/nobody", json={"weight": 2})
    assert (answer.status_code, answer.json()["setting"]) == (400, "max_concurrent_runs")


def test_a_run_of_another_org_cannot_be_touched(org: Org, server: Running) -> None:
    run_id = org.run()
    other = Org(server.client)
    for wrong in (run_id[:-1], f"{run_id}x", "1", "..", run_id.replace(".60000.", ".90000."), "9" * 40):
        assert org.beat(wrong).status_code in (404, 405)
        assert org.end(wrong).status_code in (404, 405)
    assert other.beat(run_id).status_code == 404
    assert org.now["active"] == 1


def test_a_run_without_heartbeats_ends(server: Running) -> None:
    org = Org(server.client, max_concurrent_runs=1, ttl_s=1, heartbeat_s=0.3)
    run_id = org.run()
    assert org.beat(run_id).json()["ttl_s"] == 1
    assert org.start().status_code == 429
    until(lambda: org.start().status_code == 200, "its place is free again")
    assert org.beat(run_id).status_code == 410
    assert org.end(run_id).status_code == 204


def test_a_start_that_is_repeated_starts_nothing_twice(org: Org) -> None:
    first = org.start(**{"Idempotency-Key": "k"})
    again = org.start(**{"Idempotency-Key": "k"})
    assert (again.status_code, again.content) == (200, first.content)
    assert again.headers["Idempotent-Replayed"] == "true"
    assert org.now["active"] == 1


def test_a_start_may_wait_for_its_turn(org: Org) -> None:
    runs = [org.run(), org.run()]
    later = Later(org.start, Prefer="wait=20")
    until(lambda: org.now["queued"] == 1, "it waits")
    org.end(runs[0])
    assert later.answer.status_code == 200
    assert org.now["active"] == 2


def test_what_is_not_named_stays(org: Org) -> None:
    org.client.put(org.path, json={"weight": 3, "ttl_s": 90})
    org.client.put(org.path, json={"max_concurrent_runs": 5})
    now = org.now
    assert (now["max_concurrent_runs"], now["weight"], now["ttl_s"], now["heartbeat_s"]) == (
        5,
        3.0,
        90.0,
        20.0,
    )


def test_a_raised_limit_counts_at_once(org: Org) -> None:
    org.run()
    org.run()
    assert org.start().status_code == 429
    org.client.put(org.path, json={"max_concurrent_runs": 3})
    assert org.start().status_code == 200


@pytest.mark.parametrize(
    "body",
    [
        {"max_concurrent_runs": 0},
        {"max_concurrent_runs": "2"},
        {"max_concurrent_runs": 2, "weight": 0},
        {"max_concurrent_runs": 2, "ttl_s": 10, "heartbeat_s": 10},
        {"max_concurrent_runs": 2, "ttl": 10},
        {},
    ],
)
def test_settings_that_make_no_sense_are_refused(running: Running, body: dict[str, object]) -> None:
    answer = running.client.put("/v1/orgs/senseless", json=body)
    assert (answer.status_code, answer.headers["content-type"]) == (400, PROBLEM)
    assert running.client.get("/v1/orgs/senseless").status_code == 404


def test_a_flood_of_one_org_leaves_the_others_their_place(server: Running) -> None:
    flooder, light = Org(server.client, max_concurrent_runs=3), Org(server.client)
    answers = together(lambda _: flooder.start(), 30)
    assert Counter(answer.status_code for answer in answers)[200] == 3
    assert light.start().status_code == 200


def test_only_an_admin_sets_limits_and_only_who_may_lease_starts(guarded: Running) -> None:
    with (
        guarded.as_token("org-admin", Scope.ADMIN) as admin,
        guarded.as_token("org-lease", Scope.LEASE) as lease,
        guarded.as_token("org-read", Scope.READ) as read,
    ):
        org = Org(admin)
        assert lease.put(org.path, json={"max_concurrent_runs": 9}).status_code == 403
        assert read.post(f"{org.path}/runs").status_code == 403
        assert guarded.client.post(f"{org.path}/runs").status_code == 401
        assert lease.post(f"{org.path}/runs").status_code == 200
        assert read.get(org.path).json()["active"] == 1


def test_a_run_that_had_to_wait_is_told_again_to_its_key_after_it_ended(org: Org) -> None:
    first = [org.run(), org.run()]
    later = Later(org.start, **{"Idempotency-Key": "k", "Prefer": "wait=20"})
    until(lambda: org.now["queued"] == 1, "it waits")
    org.end(first[0])
    run_id = later.answer.json()["run_id"]
    org.end(run_id)
    again = org.start(**{"Idempotency-Key": "k"})
    assert (again.status_code, again.json()["run_id"]) == (200, run_id)
    assert org.now["active"] == 1


def test_starts_refused_together_are_told_to_come_back_apart(org: Org) -> None:
    for _ in range(3):
        # A pace that is far below the least wait: the usual case of a busy server.
        org.end(org.run())
    runs = [org.run(), org.run()]
    waits = {org.start().json()["retry_after_ms"] for _ in range(40)}
    assert len(waits) > 10
    assert 1000 <= min(waits) <= max(waits) <= 30_000
    for run_id in runs:
        org.end(run_id)


def test_a_refusal_says_what_the_org_really_has_and_may_have(org: Org) -> None:
    runs = [org.run(), org.run()]
    org.client.put(org.path, json={"max_concurrent_runs": 1})
    said = org.start().json()
    assert (said["reason"], said["limit"], said["active"]) == ("maximum", 1, 2)
    for run_id in runs:
        org.end(run_id)
