"""Answers on purpose: what a script says comes first, and reads in every dialect as what it is."""

from __future__ import annotations

import gzip
import io
import json
import urllib.request
from typing import Any

import pytest

from flyball.core.provider.http_response import from_http
from flyball.core.signals import SignalKind
from flyball.errors import UsageError
from flyball.sim.provider.capacity import Capacity
from flyball.sim.provider.dialect import ANSWER, DEFAULT_TOKENS, Dialect
from flyball.sim.provider.dialect_gemini import GeminiDialect
from flyball.sim.provider.script import KINDS, ProviderScript
from flyball.sim.provider.server import BODY_LIMIT, DIALECTS, Manner, Provider, read_body
from tests.cases import every
from tests.sim.test_provider import post

dialects = pytest.mark.parametrize("dialect", DIALECTS, ids=lambda dialect: type(dialect).__name__)
WALL_S = 1_790_000_000.0


def provider_of(script: str, capacity: str = "9") -> Provider:
    return Provider(Capacity.parse(capacity), Manner(retry_after_s=7.0), script=script, sleep=lambda _: None)


def test_the_first_requests_are_answered_by_the_script_the_rest_by_capacity() -> None:
    with provider_of("429x2,ok,529:3") as provider:
        statuses = [post(f"{provider.url}/v1/messages")[0] for _ in range(5)]
        tally = provider.tally()
    assert statuses == [429, 429, 200, 529, 200]
    assert (tally.accepted, tally.rejected, tally.open) == (2, 3, 0)


def test_a_script_does_not_make_room_where_there_is_none() -> None:
    with provider_of("ok", capacity="0") as provider:
        assert post(f"{provider.url}/v1/messages")[0] == 429


def test_what_is_not_a_model_request_is_answered_and_not_counted() -> None:
    with provider_of("401") as provider:
        assert post(f"{provider.url}/v1/messages/count_tokens?beta=true")[2] == {"input_tokens": 1234}
        assert post(f"{provider.url}/v1beta/models/m:countTokens")[2] == {"totalTokens": 1234}
        with urllib.request.urlopen(f"{provider.url}/v1beta/models?pageSize=50") as reply:
            assert json.load(reply)["models"] == []
        assert post(f"{provider.url}/v1/messages")[0] == 401
        assert provider.tally().rejected == 1


@pytest.mark.parametrize(
    ("text", "wait_s"), [("429", 7.0), ("429:0", None), ("429:0.5", 0.5), ("529:2", 2.0)]
)
def test_a_step_names_its_wait_or_takes_the_usual_one(text: str, wait_s: float | None) -> None:
    assert ProviderScript.parse(text, usual_s=7.0).at(0).retry_after_s == wait_s


def test_a_star_is_for_ever() -> None:
    assert ProviderScript.parse("ok,creditx*", usual_s=None).at(10**9).kind is SignalKind.CREDIT_GONE


@every("text", ["430", "429x", "429:x2", "429x-1", "429 529", "*"])
def test_a_script_that_cannot_be_read_says_so(text: str) -> None:
    with pytest.raises(UsageError, match="in a script"):
        ProviderScript.parse(text, usual_s=None)


@dialects
@pytest.mark.parametrize("kind", [kind for kind in KINDS.values() if kind is not SignalKind.OK])
def test_every_trouble_reads_as_itself(dialect: Dialect, kind: SignalKind) -> None:
    reply = dialect.refusal(kind, number=1, retry_after_s=7200.0, wall_s=WALL_S)
    signal = from_http(reply.status, dict(reply.headers), reply.parts()[0], wall_s=WALL_S)
    assert signal.kind is kind
    if kind in (SignalKind.THROTTLED, SignalKind.WINDOW_USED_UP):
        assert signal.retry_after_s == 7200.0


@dialects
def test_a_ceiling_is_not_taken_for_a_length(dialect: Dialect) -> None:
    body = {"max_tokens": 128_000, "generationConfig": {"maxOutputTokens": 65_536}}
    assert dialect.tokens(body) == DEFAULT_TOKENS


# -- Google's dialect --------------------------------------------------------------------------------


def streamed(url: str) -> list[dict[str, Any]]:
    with urllib.request.urlopen(urllib.request.Request(url, b"{}")) as reply:
        assert reply.headers["content-type"] == "text/event-stream"
        lines = reply.read().decode().splitlines()
    return [json.loads(line.removeprefix("data: ")) for line in lines if line]


def test_gemini_takes_model_and_stream_from_the_path() -> None:
    with provider_of("") as provider:
        whole = post(f"{provider.url}/v1beta/models/gemini-9:generateContent")[2]
        pieces = streamed(f"{provider.url}/v1beta/models/gemini-9:streamGenerateContent?alt=sse")
    assert whole["modelVersion"] == pieces[0]["modelVersion"] == "gemini-9"
    texts = [piece["candidates"][0]["content"]["parts"][0]["text"] for piece in pieces]
    assert "".join(texts) == ANSWER
    assert [piece["candidates"][0].get("finishReason") for piece in pieces] == [None, None, "STOP"]


def test_gemini_answers_a_side_call_in_the_shape_that_it_asks_for() -> None:
    kinds = {"who": {"enum": ["user", "model"]}, "score": {"type": "INTEGER"}, "why": {"type": "string"}}
    body = {"generationConfig": {"responseJsonSchema": {"properties": kinds}}}
    reply: Any = GeminiDialect().answer(body, number=1).body
    said = json.loads(reply["candidates"][0]["content"]["parts"][0]["text"])
    assert said == {"who": "user", "score": 1, "why": "fake"}


# -- bodies on the wire ------------------------------------------------------------------------------


def test_a_body_may_come_in_chunks_and_packed() -> None:
    packed = gzip.compress(b'{"a": 1}')
    chunked = b"%x\r\n%b\r\n%x;x=y\r\n%b\r\n0\r\n\r\n" % (5, packed[:5], len(packed) - 5, packed[5:])
    headers = {"Transfer-Encoding": "chunked", "Content-Encoding": "gzip"}
    assert read_body(headers, io.BytesIO(chunked)) == b'{"a": 1}'


@every(
    "headers, raw",
    [
        ({"content-length": str(BODY_LIMIT + 1)}, b""),
        ({"content-length": "-1"}, b""),
        ({"content-length": "3", "content-encoding": "zstd"}, b"abc"),
        ({"content-length": "3", "content-encoding": "gzip"}, b"abc"),
        ({"transfer-encoding": "chunked"}, b"zz\r\n"),
        ({"transfer-encoding": "chunked"}, b"-5\r\nhello\r\n"),
        ({"transfer-encoding": "chunked"}, b"fffffff\r\n"),
    ],
)
def test_a_body_that_cannot_be_read_is_refused(headers: dict[str, str], raw: bytes) -> None:
    with pytest.raises(ValueError, match=r"."):
        read_body(headers, io.BytesIO(raw))
