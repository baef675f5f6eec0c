"""What a call reserved of the windows is settled with what its answer says that it used."""

from __future__ import annotations

import asyncio
import gzip
import json
from collections.abc import Callable
from typing import Any

import pytest

from flyball import Governor, Pool
from tests.integrations.kit import Night, Pieces
from tests.integrations.transports import URL, async_client_of, client_of

RESERVED: Any = {"estimate": lambda request: {"tokens": 600}}
ANTHROPIC = {"content": [{"text": 'it said "usage"'}], "usage": {"input_tokens": 25, "output_tokens": 15}}
CACHED = {
    "input_tokens": 5,
    "cache_creation_input_tokens": 20,
    "cache_read_input_tokens": 9000,
    "output_tokens": 15,
}
WHOLE: dict[str, Any] = {
    "anthropic": ANTHROPIC,
    "anthropic, from its cache": {"usage": CACHED},
    "openai": {"choices": [], "usage": {"prompt_tokens": 25, "completion_tokens": 15, "total_tokens": 40}},
    "openai responses": {"output": [], "usage": {"input_tokens": 25, "output_tokens": 15}},
    "gemini": {
        "usageMetadata": {"promptTokenCount": 25, "candidatesTokenCount": 5, "thoughtsTokenCount": 10}
    },
}
STREAMS: dict[str, list[Any]] = {
    "anthropic": [
        {"type": "message_start", "message": {"usage": {"input_tokens": 25, "output_tokens": 1}}},
        {"type": "content_block_delta", "delta": {"text": 'so much "usage" of it'}},
        {"type": "message_delta", "delta": {}, "usage": {"output_tokens": 15}},
    ],
    "openai": [{"choices": [{}], "usage": None}, {"choices": [], "usage": WHOLE["openai"]["usage"]}],
    "openai responses": [{"type": "response.completed", "response": WHOLE["openai responses"]}],
    "gemini": [{"usageMetadata": {"promptTokenCount": 25}}, WHOLE["gemini"]],
}


@pytest.fixture
def left(gov: Governor) -> Callable[[], int]:
    """What is left of a thousand tokens a day."""
    gov.set_pool("p", windows={"tokens": "1000/d"})

    def look() -> int:
        (window,) = next(pool for pool in gov.status().pools if pool.name == "p").windows
        return round(window.left)

    return look


def answering(lib: Any, *parts: bytes, kind: str = "application/json", encoding: str = "") -> Any:
    headers = {"content-type": kind} | ({"content-encoding": encoding} if encoding else {})
    return lambda _: lib.Response(200, headers=headers, stream=Pieces(lib).of(*parts))


def events(records: list[Any]) -> list[bytes]:
    text = b"".join(b"data: " + json.dumps(record).encode() + b"\n\n" for record in records)
    return [text[:30], text[30:77], text[77:]]


@pytest.mark.parametrize("provider", WHOLE)
def test_a_whole_answer_says_what_it_used(
    lib: Any, gov: Governor, night: Night, left: Callable[[], int], provider: str
) -> None:
    body = json.dumps(WHOLE[provider]).encode()
    with client_of(lib, Pool(gov, "p"), answering(lib, body[:9], body[9:]), night, **RESERVED) as client:
        client.post(URL)
    assert left() == 960


@pytest.mark.parametrize("provider", STREAMS)
def test_a_stream_says_it_on_the_way(
    lib: Any, gov: Governor, night: Night, left: Callable[[], int], provider: str
) -> None:
    parts = events(STREAMS[provider])
    answer = answering(lib, *parts, kind="text/event-stream; charset=utf-8")

    async def answered(request: Any) -> Any:
        return answer(request)

    async def main() -> None:
        async with async_client_of(lib, Pool(gov, "p"), answered, night, **RESERVED) as client:
            await client.post(URL)

    asyncio.run(main())
    assert left() == 960


def test_what_was_encoded_is_understood_and_passed_on_as_it_came(
    lib: Any, gov: Governor, night: Night, left: Callable[[], int]
) -> None:
    body = gzip.compress(json.dumps(ANTHROPIC).encode())
    answer = answering(lib, body[:11], body[11:], encoding="gzip")
    with client_of(lib, Pool(gov, "p"), answer, night, **RESERVED) as client:
        assert client.post(URL).json() == ANTHROPIC
    assert left() == 960


def test_an_answer_that_is_there_at_once_is_understood_too(
    lib: Any, gov: Governor, night: Night, left: Callable[[], int]
) -> None:
    with client_of(
        lib, Pool(gov, "p"), lambda _: lib.Response(200, json=ANTHROPIC), night, **RESERVED
    ) as client:
        client.post(URL)
    assert left() == 960


def test_without_an_estimate_it_is_taken_when_it_is_known(
    lib: Any, gov: Governor, night: Night, left: Callable[[], int]
) -> None:
    body = json.dumps(ANTHROPIC).encode()
    with client_of(lib, Pool(gov, "p"), answering(lib, body), night) as client:
        client.post(URL)
    assert left() == 960


@pytest.mark.parametrize(
    "body",
    [
        b'{"usage": "a lot"}',
        b'{"usage": {"input_tokens": "many", "output_tokens": -5}, "x": 1',
        b'["usage"]',
        b'{"text": "\\"usage\\": {}"}',
        b'{"usage": {"input_tokens": 25}, "pad": "' + b"x" * 5_000_000 + b'"}',
        b"[" * 200_000 + b'"usage',
    ],
)
def test_where_nothing_that_makes_sense_is_said_the_estimate_stands(
    lib: Any, gov: Governor, night: Night, left: Callable[[], int], body: bytes
) -> None:
    with client_of(lib, Pool(gov, "p"), answering(lib, body), night, **RESERVED) as client:
        assert client.post(URL).content == body
    assert left() == 400


def test_a_reader_that_stops_early_has_used_what_was_reserved(
    lib: Any, gov: Governor, night: Night, left: Callable[[], int]
) -> None:
    parts = events(STREAMS["anthropic"])
    answer = answering(lib, *parts, kind="text/event-stream")
    with (
        client_of(lib, Pool(gov, "p"), answer, night, **RESERVED) as client,
        client.stream("POST", URL) as reply,
    ):
        next(reply.iter_raw())
    assert left() == 400
