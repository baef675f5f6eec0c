"""Errors inside a stream of events: found however the bytes are cut, and never where there are none."""

from __future__ import annotations

import json
from itertools import pairwise
from typing import Any

from hypothesis import example, given
from hypothesis import strategies as st

from flyball.core.provider.http_response import from_event
from flyball.core.provider.stream_events import EVENT_BYTES, SseErrorScanner
from flyball.core.signals import Signal, SignalKind
from tests.cases import every

OVERLOADED = {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}


def event(said: Any, name: str = "", *, end: str = "\n") -> bytes:
    lines = [f"event: {name}"] * bool(name) + [f"data: {json.dumps(said)}", "", ""]
    return end.join(lines).encode()


def delta(text: str) -> bytes:
    return event({"type": "content_block_delta", "delta": {"type": "text_delta", "text": text}}, "delta")


def heard(*parts: bytes) -> list[Signal]:
    spotter = SseErrorScanner()
    return [said for said in (*map(spotter.feed, parts), spotter.end()) if said is not None]


def kinds(*parts: bytes) -> list[SignalKind]:
    return [signal.kind for signal in heard(*parts)]


@every(
    "stream",
    [
        b"",
        b"event: error\n\n",
        b'data: {"error": {"type": "overloaded_error"\n\n',
        b'data: "error"\n\n',
        b'data: ["error"]\n\n',
        b'data: {"error": null}\n\n',
        b': "error" {"error": {"type": "overloaded_error"}}\n\n',
        b'<html>"error"</html>\n\n',
        b'data: {"error": \xff\xfe}\n\n',
        b"data: " + b"[" * 30_000 + b'"error"\n\n',
    ],
)
def test_what_is_not_an_error_event_is_nothing(stream: bytes) -> None:
    assert heard(stream) == []


def test_text_about_errors_is_not_an_error() -> None:
    said = [delta('{"error": {"type": "overloaded_error"}}'), delta('event: error\n\ndata: "error"\n\n')]
    nested = {"type": "content_block_start", "content_block": {"type": "result", "error": {"type": "x"}}}
    assert heard(*said, event(nested)) == []


def test_of_an_event_that_never_ends_nothing_is_kept() -> None:
    spotter = SseErrorScanner()
    for _ in range(100):
        assert spotter.feed(b"x" * EVENT_BYTES) is None
    assert len(spotter._event) < 10
    assert spotter.feed(b'"error"\n\n') is None
    said = spotter.feed(event(OVERLOADED, "error"))
    assert said is not None
    assert said.kind is SignalKind.OVERLOADED


@every(
    "said, kind",
    [
        (OVERLOADED, SignalKind.OVERLOADED),
        ({"type": "error", "error": {"type": "rate_limit_error", "message": "m"}}, SignalKind.THROTTLED),
        ({"type": "error", "error": {"type": "api_error", "message": "m"}}, SignalKind.SERVER_ERROR),
        ({"type": "error", "error": {"type": "invalid_request_error"}}, SignalKind.CLIENT_ERROR),
        ({"error": {"type": "tokens", "code": "rate_limit_exceeded"}}, SignalKind.THROTTLED),
        ({"error": {"type": "server_error", "message": "The server had an error"}}, SignalKind.SERVER_ERROR),
        ({"error": {"code": "insufficient_quota"}}, SignalKind.CREDIT_GONE),
        ({"type": "error", "code": "rate_limit_exceeded", "message": "m"}, SignalKind.THROTTLED),
        (
            {"type": "response.failed", "response": {"error": {"code": "rate_limit_exceeded"}}},
            SignalKind.THROTTLED,
        ),
        ({"error": {"code": 503, "status": "UNAVAILABLE", "message": "m"}}, SignalKind.OVERLOADED),
        ({"id": "gen-1", "error": {"code": 429, "message": "slow"}, "choices": []}, SignalKind.THROTTLED),
    ],
)
def test_each_provider_is_understood(said: dict[str, Any], kind: SignalKind) -> None:
    assert kinds(delta("so far, so"), event(said)) == [kind]


def test_a_response_that_only_mentions_its_error_did_not_fail() -> None:
    assert from_event({"type": "response.completed", "response": {"error": {"code": "x"}}}) is None


def test_the_wait_stands_in_the_words() -> None:
    message = "Rate limit reached for gpt: Please try again in 1.2s."
    (said,) = heard(event({"error": {"code": "rate_limit_exceeded", "message": message}}))
    assert said.retry_after_s == 1.2
    assert said.detail.startswith("mid-stream rate_limit_exceeded: Rate limit")


def test_a_last_event_may_lack_its_blank_line() -> None:
    assert kinds(event(OVERLOADED).rstrip(b"\n")) == [SignalKind.OVERLOADED]


@given(
    st.lists(st.text(max_size=20), max_size=5),
    st.sampled_from(["\n", "\r\n", "\r"]),
    st.lists(st.integers(0, 400), max_size=12),
    st.booleans(),
)
@example(["a"], "\r\n", list(range(200)), True)
def test_the_cuts_change_nothing(texts: list[str], end: str, cuts: list[int], fails: bool) -> None:
    stream = b"".join(event({"delta": text}, "delta", end=end) for text in texts)
    stream += event(OVERLOADED, "error", end=end) if fails else b""
    places = sorted({0, len(stream), *(cut for cut in cuts if cut < len(stream))})
    parts = [stream[a:b] for a, b in pairwise(places)]
    assert kinds(*parts) == [SignalKind.OVERLOADED] * fails


@given(st.binary(max_size=300))
def test_nothing_raises(noise: bytes) -> None:
    heard(noise, b'data: {"error": ' + noise + b"}\n\n")
