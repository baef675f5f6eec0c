"""Keys: asked again, nothing is started twice, nothing is lost, and a no spoils nothing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flyball.core.pool.verdict import Reason, Verdict, VerdictKind
from flyball.service.lease_requests import fingerprint, parse_key, parse_wait, retry_after_s
from flyball.service.problems import ProblemError
from flyball.service.tokens import Scope
from tests.cases import every
from tests.service.kit import Running
from tests.service.leases_kit import STORES, Desk, Later, serving_on, together
from tests.waiting import until


@pytest.fixture(scope="module", params=STORES)
def server(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    with serving_on(request.param, request, tmp_path_factory.mktemp("home")) as server:
        yield server


@pytest.fixture
def desk(server: Running) -> Desk:
    return Desk(server)


def test_the_same_key_for_something_else_is_422_and_starts_nothing(server: Running) -> None:
    desk = Desk(server, 5)
    desk.ask(key="k", project="a")
    answer = desk.ask(key="k", project="b")
    assert (answer.status_code, answer.json()["type"]) == (422, "urn:flyball:key-used")
    assert desk.now["in_use"] == 1


def test_a_429_never_poisons_a_key(desk: Desk) -> None:
    lease = desk.lease()
    assert desk.ask(key="k").status_code == 429
    desk.release(lease)
    answer = desk.ask(key="k")
    assert (answer.status_code, "Idempotent-Replayed" in answer.headers) == (201, False)


def test_a_replay_says_exactly_what_was_said(server: Running) -> None:
    desk = Desk(server, 2)
    first = desk.ask(key="k", project="p", name="n")
    desk.lease()
    again = desk.client.post(
        f"{desk.path}/leases",
        content=b'{ "name" : "n",\n"project":"p"}',
        headers={"Idempotency-Key": '"k"'},
    )
    assert (again.status_code, again.content) == (first.status_code, first.content)
    assert again.headers["Location"] == first.headers["Location"]
    assert (again.headers["Idempotent-Replayed"], "Idempotent-Replayed" in first.headers) == ("true", False)
    assert desk.now["in_use"] == 2


def test_a_ticket_is_replayed_as_the_ticket_it_was(desk: Desk) -> None:
    lease = desk.lease()
    first = desk.ask(key="k", wait=True)
    desk.release(lease)
    again = desk.ask(key="k", wait=True)
    assert (again.status_code, again.content) == (202, first.content)
    waited = desk.ask(key="k", wait=True, prefer="wait=5")
    assert (waited.status_code, waited.json()["id"]) == (201, first.json()["id"])
    assert desk.now["in_use"] == 1


def test_a_storm_of_one_key_starts_one(server: Running) -> None:
    desk = Desk(server, 50)
    answers = together(lambda _: desk.ask(key="storm"), 50)
    assert {answer.status_code for answer in answers} <= {201, 409}
    granted = [answer.json()["id"] for answer in answers if answer.status_code == 201]
    assert len(set(granted)) == 1
    assert desk.now["in_use"] == 1


@pytest.mark.parametrize("prefer", [None, "wait=5"])
def test_a_storm_of_replays_of_an_answered_key_is_answered(server: Running, prefer: str | None) -> None:
    desk = Desk(server, 2)
    first = desk.ask(key="k", prefer=prefer)
    answers = together(lambda _: desk.ask(key="k", prefer=prefer), 50)
    assert {(answer.status_code, answer.content) for answer in answers} == {(201, first.content)}
    assert desk.now["in_use"] == 1


def test_a_key_that_is_being_answered_is_409_until_it_is(desk: Desk) -> None:
    lease = desk.lease()
    later = Later(desk.ask, key="k", prefer="wait=20")
    desk.until_waiting(1)
    answer = desk.ask(key="k", prefer="wait=20")
    assert (answer.status_code, answer.json()["type"]) == (409, "urn:flyball:in-flight")
    assert int(answer.headers["Retry-After"]) >= 1
    desk.release(lease)
    assert later.answer.status_code == 201
    assert desk.ask(key="k", prefer="wait=20").content == later.answer.content


def test_a_slot_handed_to_a_client_that_left_is_told_to_its_key(desk: Desk) -> None:
    lease = desk.lease()
    wire = desk.hold_open(key="k")
    desk.until_waiting(1)
    desk.release(lease)
    until(lambda: desk.now["in_use"] == 1 and desk.now["waiting"] == 0, "it was handed over")
    wire.close()
    until(lambda: desk.ask(key="k", prefer="wait=5").is_success, "it is told")
    answer = desk.ask(key="k", prefer="wait=5")
    assert answer.headers["Idempotent-Replayed"] == "true"
    assert desk.act(answer.json(), "renew").status_code == 200


def test_keys_of_two_pools_do_not_meet(server: Running) -> None:
    ids = [Desk(server).ask(key="k").json()["id"] for _ in range(2)]
    assert len(set(ids)) == 2


def test_keys_of_two_tenants_do_not_meet(guarded: Running) -> None:
    with guarded.as_token("chief", Scope.ADMIN) as admin:
        desk = Desk(guarded, 5, client=admin)
    found = []
    for name in ("one", "two"):
        with guarded.as_token(name, Scope.LEASE) as client:
            desk.client = client
            found.append(desk.ask(key="k").json())
    assert len({lease["id"] for lease in found}) == 2
    assert [lease["project"] for lease in found] == ["one", "two"]


# -- what is decided without a server -----------------------------------------------------------------

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=8,
)


@given(st.dictionaries(st.text(max_size=4), VALUES, max_size=5), st.randoms())
def test_the_order_and_space_of_json_do_not_matter(value: dict[str, object], chance: object) -> None:
    import json

    items = list(value.items())
    chance.shuffle(items)  # type: ignore[attr-defined]
    assert fingerprint(json.dumps(value).encode()) == fingerprint(json.dumps(dict(items), indent=3).encode())


@every("key", ["", " ", "k" * 256, "schlüssel", "a\x01b", '""'])
def test_a_key_that_cannot_be_kept_is_refused(key: str) -> None:
    with pytest.raises(ProblemError, match="1 to 255"):
        parse_key({"idempotency-key": key}, b"{}", tenant="", route="r")


def test_keys_are_told_apart_by_who_and_where() -> None:
    scopes = [("", "r"), ("t", "r"), ("", "q"), ("r", "")]
    found = [
        parse_key({"idempotency-key": "k"}, b"", tenant=tenant, route=route).key for tenant, route in scopes
    ]
    assert len(set(found)) == len(scopes)


@given(st.none() | st.floats(0, 1e6), st.integers(0, 10_000), st.floats(0, 1))
def test_no_client_is_told_to_come_back_at_once_or_much_later(
    estimate_s: float | None, position: int, chance: float
) -> None:
    verdict = Verdict(
        kind=VerdictKind.REFUSED, reason=Reason.CAP, pool="p", estimate_s=estimate_s, position=position
    )
    assert 1.0 <= retry_after_s(verdict, chance=chance) <= 30.0


def test_those_refused_together_come_back_apart() -> None:
    verdict = Verdict(kind=VerdictKind.REFUSED, reason=Reason.CAP, pool="p", estimate_s=10)
    waits = Counter(round(retry_after_s(verdict, chance=n / 100)) for n in range(101))
    assert (min(waits), max(waits)) == (8, 12)
    assert len(waits) == 5


@every(
    "prefer, wait_s",
    [("wait=3", 3), ("wait=61", 60), ("WAIT = 7", 7), ("wait=-1", 0), ("await=9", 0), ("wait=x", 0), ("", 0)],
)
def test_how_long_to_wait_is_read_from_prefer(prefer: str, wait_s: float) -> None:
    assert parse_wait({"prefer": prefer}) == wait_s
