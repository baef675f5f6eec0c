"""Places in line over time: waits that run out, streams, a server that ends, one that is started again."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from flyball.governor.governor import Governor
from flyball.service.routes import tickets
from tests.service.kit import Running
from tests.service.leases_kit import Desk, Later
from tests.waiting import until


@pytest.fixture
def desk(running: Running) -> Desk:
    return Desk(running)


def test_a_wait_that_runs_out_leaves_a_ticket(desk: Desk) -> None:
    desk.lease()
    assert desk.ask(prefer="wait=0, respond-async").status_code == 429
    answer = desk.ask(prefer="wait=1")
    assert (answer.status_code, answer.headers["Preference-Applied"]) == (202, "wait=1")
    assert desk.look(answer.json(), Prefer="wait=1").json()["state"] == "waiting"


def test_a_place_that_is_not_asked_about_is_given_up(desk: Desk) -> None:
    desk.lease()
    ticket = desk.ticket(ttl_s=0.2)
    until(lambda: desk.look(ticket).status_code == 404, "it is gone")
    assert desk.now["waiting"] == 0


def test_looking_with_the_token_keeps_the_place_and_without_it_changes_nothing(desk: Desk) -> None:
    desk.lease()
    ticket = desk.ticket(ttl_s=20)
    assert desk.look(ticket).json()["expires_in_s"] <= 20
    desk.look(ticket, **{"Lease-Token": ticket["token"]})
    assert desk.look(ticket).json()["expires_in_s"] > 50


def test_a_dropped_look_keeps_the_place_for_a_moment_only(desk: Desk) -> None:
    desk.lease()
    ticket = desk.ticket()
    headers = {"Lease-Token": ticket["token"], "Prefer": "wait=30"}
    with pytest.raises(httpx.ReadTimeout):
        desk.client.get(f"/v1/tickets/{ticket['id']}", headers=headers, timeout=0.2)
    until(lambda: desk.look(ticket).json()["expires_in_s"] <= tickets.BLIP_S, "kept for a moment")


@pytest.fixture
def often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tickets, "LOOK_S", 0.05)


@pytest.mark.usefixtures("often")
def test_a_stream_tells_the_place_and_then_the_lease(desk: Desk) -> None:
    lease = desk.lease()
    ahead, ticket = desk.ticket(), desk.ticket()
    lines = _events(desk, ticket)
    assert next(lines) == ("ticket", 2)
    assert desk.client.delete(
        f"/v1/tickets/{ahead['id']}", headers={"Lease-Token": ahead["token"]}
    ).is_success
    assert next(lines) == ("ticket", 1)
    desk.release(lease)
    assert next(lines)[0] == "lease"
    assert list(lines) == []


@pytest.mark.usefixtures("often")
def test_a_stream_ends_with_its_ticket(desk: Desk) -> None:
    desk.lease()
    ticket = desk.ticket()
    lines = _events(desk, ticket)
    next(lines)
    desk.client.delete(f"/v1/tickets/{ticket['id']}", headers={"Lease-Token": ticket["token"]})
    assert [name for name, _ in lines] == ["gone"]


def _events(desk: Desk, ticket: dict[str, object]) -> Iterator[tuple[str, object]]:
    with desk.client.stream("GET", f"/v1/tickets/{ticket['id']}/events") as response:
        name = ""
        for line in response.iter_lines():
            if line.startswith("event: "):
                name = line.removeprefix("event: ")
            elif line.startswith("data: "):
                yield name, json.loads(line.removeprefix("data: ")).get("position")


def test_a_server_that_ends_keeps_places_and_the_next_one_serves_them(tmp_path: Path) -> None:
    address = f"sqlite://{tmp_path / 'governor.db'}"
    with Running(Governor(address), tmp_path) as old:
        desk = Desk(old)
        lease = desk.lease()
        ticket = desk.ticket()
        held_open = Later(desk.ask, prefer="wait=30")
        desk.until_waiting(2)
        old.service.drain()
        assert held_open.answer.status_code == 202
        refused = desk.ask()
        assert (refused.status_code, refused.json()["type"]) == (503, "urn:flyball:draining")
        assert refused.headers["Retry-After"]
    with Running(Governor(address), tmp_path) as new:
        desk.server, desk.client = new, new.client
        later = Later(desk.look, ticket, Prefer="wait=20")
        desk.release(lease)
        assert later.answer.json()["state"] == "held"
        desk.release(ticket)
        assert desk.look(held_open.answer.json(), Prefer="wait=20").json()["state"] == "held"
