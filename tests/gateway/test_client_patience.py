"""How long the gateway lets a call wait: what the official clients say of their own time-outs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress

import anthropic
import openai
import pytest
from google import genai
from google.genai.types import HttpOptions

from flyball.gateway.call import LONGEST_WAIT_S, WAIT_S, Request
from tests.gateway.conftest import ScriptedServer

BAD = b"HTTP/1.1 400 Bad Request\r\ncontent-length: 2\r\nconnection: close\r\n\r\n{}<close>"
TIMEOUT_S = 20.0


def ask_anthropic(url: str, timeout: float | anthropic.Timeout | None) -> None:
    client = anthropic.Anthropic(api_key="k", base_url=url, max_retries=0)
    client = client if timeout is None else client.with_options(timeout=timeout)
    client.messages.create(model="m", max_tokens=1, messages=[{"role": "user", "content": "x"}])


def ask_openai(url: str, timeout: float | openai.Timeout | None) -> None:
    client = openai.OpenAI(api_key="k", base_url=url, max_retries=0)
    client = client if timeout is None else client.with_options(timeout=timeout)
    client.chat.completions.create(model="m", messages=[{"role": "user", "content": "x"}])


def ask_gemini(url: str, timeout: float | None) -> None:
    options = HttpOptions(base_url=url, timeout=int(1000 * timeout) if timeout else None)
    client = genai.Client(api_key="k", http_options=options)
    client.models.generate_content(model="m", contents="x")


@pytest.fixture
def server() -> Iterator[ScriptedServer]:
    server = ScriptedServer(BAD)
    yield server
    server.close()


def patience_s(server: ScriptedServer, ask: Callable[[str], None]) -> float:
    """What the gateway makes of the request that this client sends."""
    with suppress(Exception):
        ask(server.url)
    lines = server.heard[0].partition(b"\r\n\r\n")[0].split(b"\r\n")[1:]
    pairs = [line.partition(b": ") for line in lines]
    return Request("POST", [(name, value) for name, _, value in pairs]).wait_s


@pytest.mark.parametrize("ask", [ask_anthropic, ask_openai, ask_gemini])
def test_a_call_waits_less_than_the_time_out_that_its_client_was_given(
    server: ScriptedServer, ask: Callable[[str, float], None]
) -> None:
    assert patience_s(server, lambda url: ask(url, TIMEOUT_S)) == pytest.approx(0.9 * TIMEOUT_S)


@pytest.mark.parametrize(
    ("ask", "several"),
    [
        (ask_anthropic, anthropic.Timeout(600, read=TIMEOUT_S)),
        (ask_openai, openai.Timeout(600, read=TIMEOUT_S)),
    ],
)
def test_the_time_out_of_reading_is_the_one_that_counts(
    server: ScriptedServer, ask: Callable[[str, object], None], several: object
) -> None:
    assert patience_s(server, lambda url: ask(url, several)) == pytest.approx(0.9 * TIMEOUT_S)


@pytest.mark.parametrize(
    ("ask", "expected_s"),
    [(ask_anthropic, LONGEST_WAIT_S), (ask_openai, LONGEST_WAIT_S), (ask_gemini, WAIT_S)],
)
def test_a_client_as_it_comes_lets_a_call_wait_for_minutes(
    server: ScriptedServer, ask: Callable[[str, None], None], expected_s: float
) -> None:
    assert patience_s(server, lambda url: ask(url, None)) == expected_s


def test_a_client_in_javascript_gives_up_before_the_time_out_that_it_tells_of() -> None:
    headers = [(b"X-Stainless-Timeout", b"600"), (b"X-Stainless-Lang", b"js")]
    assert Request("POST", headers).wait_s == WAIT_S


@pytest.mark.parametrize("said", [b"NOT_GIVEN", b"", b"nan", b"-1", b"0"])
def test_a_time_out_that_means_nothing_is_none(said: bytes) -> None:
    assert Request("POST", [(b"x-stainless-timeout", said)]).wait_s == WAIT_S
