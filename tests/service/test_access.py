"""Who may come in: 401 without a token, 403 with too small a one, and no other site's page without one."""

from __future__ import annotations

import itertools

import httpx
import pytest

from flyball.service.tokens import Scope
from tests.service.kit import PROBLEM, Running

_numbers = itertools.count()
ROUTES = [
    ("GET", "/v1/status", Scope.READ),
    ("GET", "/v1/pools", Scope.READ),
    ("GET", "/v1/pools/nobody", Scope.READ),
    ("GET", "/v1/facts", Scope.READ),
    ("GET", "/v1/history", Scope.READ),
    ("GET", "/v1/events", Scope.READ),
    ("GET", "/v1/whoami", Scope.READ),
    ("GET", "/v1/openapi.json", Scope.READ),
    ("GET", "/metrics", Scope.READ),
    ("PATCH", "/v1/pools/nobody", Scope.ADMIN),
    ("PUT", "/v1/pools/nobody", Scope.ADMIN),
    ("POST", "/v1/pools/nobody/reset", Scope.ADMIN),
    ("DELETE", "/v1/pools/nobody", Scope.ADMIN),
    ("DELETE", "/v1/leases/1", Scope.ADMIN),
]


def client(server: Running, scope: Scope) -> httpx.Client:
    return server.as_token(f"{scope.value}-{next(_numbers)}", scope)


@pytest.mark.parametrize(("method", "path", "_"), ROUTES)
def test_without_a_token_there_is_nothing_to_see(guarded: Running, method: str, path: str, _: Scope) -> None:
    answer = guarded.client.request(method, path)
    assert (answer.status_code, answer.headers["content-type"]) == (401, PROBLEM)
    assert answer.headers["www-authenticate"].startswith("Bearer")
    assert answer.json()["type"] == "urn:flyball:no-token"


@pytest.mark.parametrize("scheme", ["Bearer nobody-has-this", "Bearer", "Basic b3BzOm9w", "Bearer\ta", "x"])
def test_a_wrong_token_is_worth_no_more_than_none(guarded: Running, running: Running, scheme: str) -> None:
    for server in (guarded, running):
        answer = server.client.get("/v1/status", headers={"Authorization": scheme})
        assert (answer.status_code, answer.headers["content-type"]) == (401, PROBLEM)
        assert "error=" in answer.headers["www-authenticate"]


@pytest.mark.parametrize("path", ["/healthz", "/readyz", "/"])
def test_health_and_the_page_need_no_token(guarded: Running, path: str) -> None:
    assert guarded.client.get(path).status_code == 200


@pytest.mark.parametrize(("method", "path", "needed"), [route for route in ROUTES if route[2] is Scope.ADMIN])
def test_a_token_that_may_only_look_changes_nothing(
    guarded: Running, method: str, path: str, needed: Scope
) -> None:
    for scope in (Scope.READ, Scope.LEASE):
        with client(guarded, scope) as reader:
            answer = reader.request(method, path)
        assert (answer.status_code, answer.headers["content-type"]) == (403, PROBLEM)
        assert answer.json()["scope"] == needed.value
        assert 'error="insufficient_scope", scope="admin"' in answer.headers["www-authenticate"]


@pytest.mark.parametrize("scope", list(Scope))
def test_every_scope_may_look(guarded: Running, scope: Scope) -> None:
    with client(guarded, scope) as reader:
        assert reader.get("/v1/status").status_code == 200
        assert reader.get("/v1/whoami").json()["scope"] == scope.value


def test_an_admin_may_change_a_pool(guarded: Running) -> None:
    with client(guarded, Scope.ADMIN) as admin:
        assert admin.patch("/v1/pools/p", json={"cap": 3}).json()["cap"] == 3


def test_a_token_that_was_removed_ends_without_a_restart(guarded: Running) -> None:
    token = guarded.tokens.add("leaving", Scope.READ)
    headers = {"Authorization": f"Bearer {token}"}
    assert guarded.client.get("/v1/status", headers=headers).status_code == 200
    guarded.tokens.remove("leaving")
    assert guarded.client.get("/v1/status", headers=headers).status_code == 401


def test_a_token_is_judged_even_where_none_is_needed(running: Running) -> None:
    with client(running, Scope.READ) as reader:
        assert reader.patch("/v1/pools/p", json={"cap": 3}).status_code == 403
        assert reader.get("/v1/whoami").json()["token_needed"] is False


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:80", "10.0.0.1", "localhost.evil.example", "[::2]"]
)
def test_a_foreign_name_that_points_here_is_not_answered(running: Running, host: str) -> None:
    answer = running.client.get("/v1/status", headers={"Host": host})
    assert (answer.status_code, answer.json()["type"]) == (403, "urn:flyball:other-host")


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1:1", "[::1]:8790", "box.localhost", "LOCALHOST"])
def test_this_machine_has_several_names(running: Running, host: str) -> None:
    assert running.client.get("/v1/status", headers={"Host": host}).status_code == 200


@pytest.mark.parametrize("origin", ["https://evil.example", "null", "http://localhost:1", "file://"])
def test_a_page_of_another_site_cannot_change_anything(running: Running, origin: str) -> None:
    answer = running.client.post("/v1/pools/nobody/reset", headers={"Origin": origin})
    assert (answer.status_code, answer.json()["type"]) == (403, "urn:flyball:other-site")
    assert "access-control-allow-origin" not in answer.headers


def test_our_own_page_may(running: Running) -> None:
    answer = running.client.patch("/v1/pools/own", json={"cap": 2}, headers={"Origin": running.url})
    assert answer.status_code == 200


def test_no_other_page_may_read_an_answer(running: Running) -> None:
    asked = {"Origin": "https://evil.example", "Access-Control-Request-Method": "PATCH"}
    for answer in (
        running.client.options("/v1/pools/p", headers=asked),
        running.client.get("/v1/status", headers={"Origin": "https://evil.example"}),
    ):
        assert not [name for name in answer.headers if name.startswith("access-control")]


def test_tokens_that_cannot_be_read_let_no_client_in(guarded: Running) -> None:
    token = guarded.tokens.add("before", Scope.ADMIN)
    kept = guarded.tokens.path.read_bytes()
    guarded.tokens.path.write_text("{")
    try:
        answer = guarded.client.get("/v1/status", headers={"Authorization": f"Bearer {token}"})
        assert (answer.status_code, answer.headers["content-type"]) == (503, PROBLEM)
    finally:
        guarded.tokens.path.write_bytes(kept)
