"""Names in paths: a pool may be called anything, and no path leads anywhere but where it says."""

from __future__ import annotations

from contextlib import suppress
from urllib.parse import quote

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flyball.core.pool.settings import NAME_LIMIT
from flyball.service.middleware import readable_path
from flyball.service.problems import ProblemError
from tests.service.kit import PROBLEM, Running, Wire

NAMES = [
    "a/b",
    "/",
    "a//b",
    "%2f",
    "%",
    "?",
    "#",
    "a b",
    "provider:account",
    "ü",
    "日本",
    "a\\b",
    "*",
]
NAMES += ["reset", "status", "🚀", "a;b=c", "a&b", "+", "'", '"', "<script>", "{pool}", "x" * 200]


@pytest.mark.parametrize("name", NAMES)
def test_a_pool_may_be_called_anything(running: Running, name: str) -> None:
    path = f"/v1/pools/{quote(name, safe='')}"
    wire = Wire(running.port)
    # Clients tidy paths up before they send them; we do not want that here.
    wire.send(_request("PATCH", path, b'{"cap": 3}') + _request("POST", f"{path}/reset", b"", "close"))
    answers = wire.read_all()
    wire.close()
    assert answers.count(b"HTTP/1.1 200 OK") == 2, answers
    assert name in [pool["name"] for pool in running.client.get("/v1/pools").json()["pools"]]


def _request(method: str, path: str, body: bytes, connection: str = "keep-alive") -> bytes:
    head = f"{method} {path} HTTP/1.1\r\nHost: localhost\r\nConnection: {connection}\r\n"
    return f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body


@pytest.mark.parametrize(
    "path",
    [
        "/v1/pools/%00",
        "/v1/pools/a%0Ab",
        "/v1/pools/%1F",
        "/v1/pools/%7F",
        "/v1/pools/%FF",
        "/v1/pools/%C0%AF",
        "/v1/pools/%ED%A0%80",
        f"/v1/pools/{'x' * (NAME_LIMIT + 1)}",
        "/%ff",
    ],
)
def test_a_name_that_cannot_be_is_refused(running: Running, path: str) -> None:
    wire = Wire(running.port)
    wire.send(_request("PATCH", path, b'{"cap": 3}', "close"))
    answer = wire.read_all()
    wire.close()
    assert answer.startswith(b"HTTP/1.1 400"), answer
    assert PROBLEM.encode() in answer


@pytest.mark.parametrize(
    "path",
    [
        "/../v1/status",
        "/v1/../etc/passwd",
        "/page/../../server.py",
        "/%2e%2e/%2e%2e/server.py",
        "/..%2f..%2fserver.py",
        "/vendor/../../server.py",
        "/page/index.html",
        "/__init__.py",
        "/v1/pools/a/b",
        "/v1/pools/a/reset/x",
        "/v1/leases/1/2",
        "/v1/leases/one",
        "//evil.example/v1/status",
    ],
)
def test_a_path_that_is_made_up_leads_nowhere(running: Running, path: str) -> None:
    wire = Wire(running.port)
    wire.send(_request("GET", path, b"", "close"))
    answer = wire.read_all()
    wire.close()
    assert answer.startswith((b"HTTP/1.1 404", b"HTTP/1.1 405")), answer


@pytest.mark.parametrize("path", ["/v1/pools/", "/v1/pools//", "//v1//pools"])
def test_an_empty_name_is_not_a_pool(running: Running, path: str) -> None:
    wire = Wire(running.port)
    wire.send(_request("PATCH", path, b'{"cap": 3}', "close"))
    assert wire.read_all().startswith(b"HTTP/1.1 405")
    wire.close()


@given(parts=st.lists(st.text(min_size=1), min_size=1, max_size=4))
@settings(max_examples=200)
def test_a_path_is_taken_apart_only_where_a_slash_was_sent(parts: list[str]) -> None:
    raw = "/" + "/".join(quote(part, safe="") for part in parts)
    try:
        path = readable_path(raw.encode())
    except ProblemError:
        assert any(ord(char) < 32 or ord(char) == 127 for part in parts for char in part)
        return
    assert [part.replace("\x1f", "/") for part in path.split("/")[1:]] == parts


@given(raw=st.binary(max_size=60))
def test_any_bytes_are_a_path_or_a_problem(raw: bytes) -> None:
    with suppress(ProblemError):
        assert isinstance(readable_path(raw), str)
