"""A stream that began well and then says that it cannot go on."""

from __future__ import annotations

import asyncio
import gzip
import json
from typing import Any

import anthropic
import httpx2
import pytest

from flyball import Governor, Limiter, Pool
from flyball.core.signals import SignalKind
from flyball.integrations.held_slot import Hold
from flyball.integrations.response_stream import Relay, StreamHead, listener_for
from tests.integrations.kit import Listener, Night, Pieces, pool_of
from tests.integrations.transports import URL, async_client_of, client_of

ERROR = {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}
DELTA = b'event: content_block_delta\ndata: {"type": "content_block_delta", "delta": {"text": "hi"}}\n\n'
LAST = f"event: error\ndata: {json.dumps(ERROR)}\n\n".encode()
PARTS = [DELTA, DELTA + LAST[:20], LAST[20:]]
FINE_THEN_NOT = [SignalKind.OK, SignalKind.OVERLOADED]


def streaming(lib: Any, *parts: bytes | Exception, kind: str = "text/event-stream", **headers: str) -> Any:
    said = {"content-type": kind, **{name.replace("_", "-"): value for name, value in headers.items()}}
    return lambda _: lib.Response(200, headers=said, stream=Pieces(lib).of(*parts))


def test_an_error_after_a_200_is_a_signal_of_the_lease(lib: Any, gov: Governor, night: Night) -> None:
    gate = Listener(Pool(gov, "p"))
    with client_of(lib, gate, streaming(lib, *PARTS), night) as client:
        assert client.post(URL).content == b"".join(PARTS)
    assert gate.kinds == FINE_THEN_NOT
    assert (pool_of(gov).in_use, pool_of(gov).throttle_count) == (0, 1)
    assert night.slept == []


def test_on_an_event_loop_too(lib: Any, gov: Governor, night: Night) -> None:
    gate = Listener(Pool(gov, "p"))

    async def answer(request: Any) -> Any:
        return streaming(lib, *PARTS)(request)

    async def main() -> list[bytes]:
        async with async_client_of(lib, gate, answer, night) as client, client.stream("POST", URL) as reply:
            return [part async for part in reply.aiter_raw()]

    assert asyncio.run(main()) == PARTS
    assert (gate.kinds, pool_of(gov).in_use) == (FINE_THEN_NOT, 0)


def test_it_is_told_before_the_caller_who_gives_up_on_it_has_it(lib: Any, night: Night) -> None:
    gate = Listener()
    with (
        client_of(lib, gate, streaming(lib, *PARTS, DELTA), night) as client,
        client.stream("POST", URL) as reply,
    ):
        raw = reply.iter_raw()
        assert [next(raw), next(raw)] == PARTS[:2]
        assert gate.kinds == FINE_THEN_NOT[:1]
        assert next(raw) == PARTS[2]
        assert gate.kinds == FINE_THEN_NOT
    assert gate.in_use == 0


def test_an_encoded_stream_is_understood_and_passes_as_it_came(lib: Any, night: Night) -> None:
    gate, whole = Listener(), gzip.compress(DELTA * 5000 + LAST)
    parts = [whole[:7], whole[7:300], whole[300:]]
    with client_of(lib, gate, streaming(lib, *parts, content_encoding="gzip"), night) as client:
        assert client.post(URL).content == DELTA * 5000 + LAST
    assert gate.kinds == FINE_THEN_NOT


@pytest.mark.parametrize("encoding", ["zstd, br", "gzip"])
def test_what_cannot_be_decoded_is_given_on_and_tells_nothing(lib: Any, night: Night, encoding: str) -> None:
    gate, parts = Listener(), [b"\x1f\x8b\x08nonsense", LAST]
    answers = streaming(lib, *parts, content_encoding=encoding)
    with client_of(lib, gate, answers, night) as client, client.stream("POST", URL) as reply:
        assert list(reply.iter_raw()) == parts
    assert gate.kinds == [SignalKind.OK]


def test_a_body_that_is_not_a_stream_of_events_is_not_listened_to(lib: Any, night: Night) -> None:
    gate = Listener()
    with client_of(lib, gate, streaming(lib, LAST, kind="application/json"), night) as client:
        client.post(URL)
    assert gate.kinds == [SignalKind.OK]


def test_only_the_first_error_of_a_stream_is_told(lib: Any, night: Night) -> None:
    gate = Listener()
    with client_of(lib, gate, streaming(lib, LAST + LAST, LAST), night) as client:
        client.post(URL)
    assert gate.kinds == FINE_THEN_NOT


def test_a_limiter_learns_from_both_the_headers_and_the_error(night: Night) -> None:
    limiter = Limiter(cap=8, cap_ceiling=8)
    room = {"x_ratelimit_limit_requests": "60", "x_ratelimit_remaining_requests": "50"}
    with client_of(httpx2, limiter, streaming(httpx2, LAST, **room), night) as client:
        client.post(URL)
    stats = limiter.stats()
    assert (stats.throttles, stats.in_use, [window.name for window in stats.windows]) == (1, 0, ["requests"])


def test_the_official_sdk_raises_as_before_and_the_pool_knows(gov: Governor, night: Night) -> None:
    gate = Listener(Pool(gov, "p"))
    with client_of(httpx2, gate, streaming(httpx2, *PARTS), night) as http_client:
        client = anthropic.Anthropic(
            api_key="k", base_url="https://x", http_client=http_client, max_retries=0
        )
        question: Any = {"model": "m", "max_tokens": 5, "messages": [{"role": "user", "content": "?"}]}
        with pytest.raises(anthropic.APIStatusError):
            list(client.messages.create(**question, stream=True))
    assert (gate.kinds, pool_of(gov).in_use) == (FINE_THEN_NOT, 0)


@pytest.mark.parametrize(
    "last", [b"data: [DONE]\n\n", b'event: message_stop\ndata: {"type": "message_stop"}\n\n']
)
def test_the_last_event_gives_the_slot_back_of_a_client_that_stops_there(last: bytes) -> None:
    gate = Listener()
    hold, listener = Hold.of(gate, {}), listener_for({"content-type": "text/event-stream"})
    opening = StreamHead((), iter([b'data: {"text": "data: [DONE]"}\n\n', last, b"\n"]))
    read = iter(Relay(opening, None, hold, OSError, listener, stops_at_last_event=True))
    next(read)
    assert gate.in_use == 1
    next(read)
    assert gate.in_use == 0
