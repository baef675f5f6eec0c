"""Asking for slots over HTTP: the same contract on every store."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.service.kit import PROBLEM, Running
from tests.service.leases_kit import STORES, Desk, Later, serving_on
from tests.waiting import until

UNKNOWN = {"id": 999_999_999, "token": "x"}


@pytest.fixture(scope="module", params=STORES)
def server(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    with serving_on(request.param, request, tmp_path_factory.mktemp("home")) as server:
        yield server


@pytest.fixture
def desk(server: Running) -> Desk:
    return Desk(server)


# -- refused ------------------------------------------------------------------------------------------


def test_a_full_pool_says_429_and_when_to_come_back(desk: Desk) -> None:
    desk.lease(project="blog", name="t-14")
    answer = desk.ask()
    said = answer.json()
    assert (answer.status_code, answer.headers["content-type"]) == (429, PROBLEM)
    assert (said["limit"], said["active"], said["queued"], said["reason"]) == (1, 1, 0, "cap")
    assert "blog/t-14" in said["detail"]
    assert 1000 <= said["retry_after_ms"] <= 30_000
    assert said["retry_after_ms"] <= int(answer.headers["Retry-After"]) * 1000 <= 30_000
    assert answer.headers["RateLimit-Policy"] == '"slots";q=1;qu="concurrent-requests"'
    assert answer.headers["RateLimit"].startswith('"slots";r=0;t=')


def test_an_ask_that_can_never_be_granted_is_not_a_429(desk: Desk) -> None:
    answer = desk.ask(slots=99, wait=True)
    assert (answer.status_code, answer.json()["type"]) == (400, "urn:flyball:never")


def test_a_wrong_token_changes_nothing(desk: Desk) -> None:
    lease = desk.lease()
    other = Desk(desk.server).lease()
    for wrong in ("", "x", other["token"], lease["token"][:-1]):
        for verb in ("renew", "release", "signals"):
            answer = desk.act(
                {**lease, "token": wrong}, verb, **({"status": 200} if verb == "signals" else {})
            )
            assert (answer.status_code, answer.json()["type"]) == (403, "urn:flyball:lease-token")
    assert desk.ask().status_code == 429


def test_what_never_was_cannot_be_touched(desk: Desk) -> None:
    assert desk.client.get("/v1/leases/999999999").status_code == 404
    assert desk.client.get(f"/v1/leases/{2**80}").status_code == 404
    assert desk.act(UNKNOWN, "renew").status_code == 403
    assert desk.act({"id": 2**80, "token": "x"}, "release").status_code == 403


# -- a lease's life -----------------------------------------------------------------------------------


def test_a_lease_has_a_place_a_token_and_a_holder_to_be_seen(desk: Desk) -> None:
    answer = desk.ask(project="blog", name="t-14", priority=2)
    lease = answer.json()
    assert (answer.status_code, answer.headers["Location"]) == (201, f"/v1/leases/{lease['id']}")
    assert answer.headers["RateLimit"] == '"slots";r=0'
    seen = desk.client.get(answer.headers["Location"]).json()
    assert (seen["state"], seen["project"], seen["name"], seen["priority"]) == ("held", "blog", "t-14", 2)
    assert 50 < seen["expires_in_s"] <= 60
    assert "token" not in seen


def test_a_released_slot_is_free_and_said_again_it_changes_nothing(desk: Desk) -> None:
    first = desk.lease()
    desk.release(first, outcome="failed", words="it broke")
    second = desk.lease()
    desk.release(first)
    assert desk.ask().status_code == 429
    assert desk.act(first, "renew").status_code == 410
    assert desk.act(second, "renew").json() == {"id": second["id"], "ttl_s": 60.0}


def test_a_lease_that_is_not_renewed_ends_and_the_next_in_line_is_served(desk: Desk) -> None:
    lease = desk.lease(ttl_s=0.3)
    ticket = desk.ticket()
    # No ask comes in: the server itself hands it on.
    until(lambda: desk.look(ticket).json()["state"] == "held", "the next is served")
    assert desk.act(lease, "renew").status_code == 410


def test_a_lease_that_is_renewed_goes_on(desk: Desk) -> None:
    lease = desk.lease(ttl_s=0.5)
    for _ in range(3):
        assert desk.act(lease, "renew", ttl_s=30).status_code == 200
    assert desk.client.get(f"/v1/leases/{lease['id']}").json()["expires_in_s"] > 25


def test_a_throttle_is_told_to_the_pool_at_once(server: Running) -> None:
    desk = Desk(server, 4, adaptive=True)
    lease = desk.lease()
    assert desk.act(lease, "signals", status=429, headers={"Retry-After": "7"}).status_code == 204
    assert desk.now["status"]["throttle_count"] == 1
    refused = desk.ask()
    assert (refused.status_code, refused.json()["reason"]) == (429, "retry-after")
    assert 1 <= int(refused.headers["Retry-After"]) <= 30
    told = desk.client.post(f"{desk.path}/signals", json={"kind": "throttled", "project": "elsewhere"})
    assert told.status_code == 204
    assert desk.now["status"]["throttle_count"] == 2


@pytest.mark.parametrize(
    "said", [{}, {"status": 429, "kind": "throttled"}, {"kind": "throtled"}, {"status": 9}]
)
def test_a_signal_that_says_nothing_is_refused(desk: Desk, said: dict[str, object]) -> None:
    assert desk.client.post(f"{desk.path}/signals", json=said).status_code == 400


# -- standing in line ---------------------------------------------------------------------------------


def test_a_ticket_becomes_the_lease_under_its_own_id_and_token(desk: Desk) -> None:
    lease = desk.lease()
    answer = desk.ask(wait=True)
    ticket = answer.json()
    assert (answer.status_code, ticket["state"]) == (202, "waiting")
    assert answer.headers["Location"] == f"/v1/tickets/{ticket['id']}"
    seen = desk.look(ticket).json()
    assert (seen["state"], seen["position"], seen["reason"]) == ("waiting", 1, "cap")
    desk.release(lease)
    assert desk.look(ticket).json()["state"] == "held"
    assert desk.act(ticket, "renew", ttl_s=5).status_code == 200


def test_a_request_that_waits_is_answered_when_the_slot_is_handed_over(desk: Desk) -> None:
    lease = desk.lease()
    later = Later(desk.ask, prefer="wait=20", ttl_s=90)
    desk.until_waiting(1)
    desk.release(lease)
    assert later.answer.status_code == 201
    assert desk.client.get(later.answer.headers["Location"]).json()["expires_in_s"] > 80


def test_a_ticket_that_waits_is_answered_when_the_slot_is_handed_over(desk: Desk) -> None:
    lease = desk.lease()
    ticket = desk.ticket()
    watched = [Later(desk.look, ticket, Prefer="wait=20") for _ in range(2)]
    desk.release(lease)
    assert [later.answer.json()["state"] for later in watched] == ["held", "held"]


def test_a_client_that_drops_its_connection_gives_its_place_back(desk: Desk) -> None:
    lease = desk.lease()
    first, second = desk.hold_open(), desk.hold_open(key="k")
    desk.until_waiting(2)
    first.close()
    second.close()
    desk.until_waiting(0)
    desk.release(lease)
    assert desk.now["in_use"] == 0
    assert "Idempotent-Replayed" not in desk.ask(key="k").headers


def test_a_withdrawn_ticket_leaves_the_line(desk: Desk) -> None:
    desk.lease()
    ticket = desk.ticket()
    path = f"/v1/tickets/{ticket['id']}"
    assert desk.client.delete(path).status_code == 403
    assert desk.client.delete(path, headers={"Lease-Token": ticket["token"]}).status_code == 204
    assert desk.client.delete(path, headers={"Lease-Token": ticket["token"]}).status_code == 204
    assert desk.look(ticket).status_code == 404
    assert desk.now["waiting"] == 0


def test_those_who_wait_are_served_in_order(desk: Desk) -> None:
    lease = desk.lease()
    tickets = [desk.ticket(project="same") for _ in range(4)]
    for ticket in tickets:
        desk.release(lease)
        assert desk.look(ticket).json()["state"] == "held"
        lease = ticket
