"""The official anthropic and openai packages, governed, against the bundled provider over HTTP.

The provider's clock is ours: it opens when the client has slept long enough, and no test really sleeps.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import anthropic
import httpx
import openai
import pytest

import flyball
from flyball import Governor, Pool, RetryBudget, RetryPolicy
from flyball.core.signals import SignalKind
from flyball.sim.provider.capacity import Capacity
from flyball.sim.provider.server import Manner, Provider
from flyball.testing import ManualClock
from tests.integrations.kit import Listener, Night, pool_of

PATIENT = RetryPolicy(budget=RetryBudget(least=1000))
ASK: Any = [{"role": "user", "content": "hello"}]


@contextmanager
def provider_of(capacity: str, clock: ManualClock | None = None) -> Iterator[Provider]:
    """Serves at once. Its waits are too short for the governor to close the pool for long."""
    manner = Manner(retry_after_s=0.001)
    with Provider(
        Capacity.parse(capacity), manner, clock=clock or ManualClock(), sleep=lambda _: None
    ) as found:
        yield found


def anthropic_of(provider: Provider, http_client: Any) -> anthropic.Anthropic:
    return anthropic.Anthropic(api_key="k", base_url=provider.url, http_client=http_client, max_retries=0)


def openai_of(provider: Provider, http_client: Any) -> openai.OpenAI:
    return openai.OpenAI(api_key="k", base_url=f"{provider.url}/v1", http_client=http_client, max_retries=0)


def ask_anthropic(provider: Provider, http_client: Any) -> str:
    said = anthropic_of(provider, http_client).messages.create(model="m", max_tokens=8, messages=ASK)
    return said.content[0].text  # type: ignore[union-attr]


def ask_chat(provider: Provider, http_client: Any) -> str:
    said = openai_of(provider, http_client).chat.completions.create(model="m", messages=ASK)
    return said.choices[0].message.content or ""


def ask_responses(provider: Provider, http_client: Any) -> str:
    return openai_of(provider, http_client).responses.create(model="m", input="hello").output_text


def ask_anthropic_async(provider: Provider, http_client: Any) -> str:
    async def ask() -> str:
        async with anthropic.AsyncAnthropic(
            api_key="k", base_url=provider.url, http_client=http_client, max_retries=0
        ) as client:
            said = await client.messages.create(model="m", max_tokens=8, messages=ASK)
            return said.content[0].text  # type: ignore[union-attr]

    return asyncio.run(ask())


def ask_chat_async(provider: Provider, http_client: Any) -> str:
    async def ask() -> str:
        async with openai.AsyncOpenAI(
            api_key="k", base_url=f"{provider.url}/v1", http_client=http_client, max_retries=0
        ) as client:
            said = await client.chat.completions.create(model="m", messages=ASK)
            return said.choices[0].message.content or ""

    return asyncio.run(ask())


Ask = Callable[[Provider, Any], str]
SYNC: list[Ask] = [ask_anthropic, ask_chat, ask_responses]
ASYNC: list[Ask] = [ask_anthropic_async, ask_chat_async]


@pytest.mark.parametrize("ask", [*SYNC, *ASYNC])
def test_a_throttled_call_is_served_in_the_end_and_told_once(ask: Ask, gov: Governor) -> None:
    clock, gate, in_use = ManualClock(), Listener(Pool(gov, "p")), []

    def asleep(for_s: float) -> None:
        in_use.append(pool_of(gov).in_use)
        clock.advance(for_s)

    night, is_async = Night(asleep), ask in ASYNC
    with provider_of("0,0.7:1", clock) as provider:
        make: Any = flyball.httpx_async_client if is_async else flyball.httpx_client
        world = night.world_async if is_async else night.world
        assert ask(provider, make(gate, retry=PATIENT, environment=world)) == "Done."
        tally = provider.tally()
    assert (tally.accepted, tally.rejected) == (1, 2)
    assert gate.kinds == [SignalKind.THROTTLED, SignalKind.OK]
    assert in_use == [0, 0]
    assert (pool_of(gov).in_use, pool_of(gov).throttle_count) == (0, 1)


def test_openai_takes_the_older_library_too(gov: Governor) -> None:
    with provider_of("1") as provider:
        client = flyball.httpx_client(Pool(gov, "p"), library="httpx")
        assert isinstance(client, httpx.Client)
        assert ask_chat(provider, client) == "Done."
    assert pool_of(gov).in_use == 0


@pytest.mark.parametrize("ask", [ask_anthropic, ask_chat])
def test_a_throttle_that_stays_is_the_sdks_own_error(ask: Ask, gov: Governor, night: Night) -> None:
    gate, sdk = Listener(Pool(gov, "p")), anthropic if ask is ask_anthropic else openai
    with provider_of("0") as provider, pytest.raises(sdk.RateLimitError, match="ate limit"):
        ask(provider, flyball.httpx_client(gate, retry=PATIENT, environment=night.world))
    assert (gate.kinds, len(night.slept)) == ([SignalKind.THROTTLED], 4)
    assert pool_of(gov).in_use == 0


def test_an_sdk_that_retries_by_itself_is_told_once_as_well(gov: Governor, monkeypatch: Any) -> None:
    gate = Listener(Pool(gov, "p"))
    with provider_of("0") as provider:
        client = anthropic.Anthropic(
            api_key="k", base_url=provider.url, http_client=flyball.httpx_client(gate, retry=None)
        )
        with pytest.raises(anthropic.RateLimitError):
            client.with_options(max_retries=2).messages.create(model="m", max_tokens=8, messages=ASK)
        assert provider.tally().rejected == 3
    assert gate.kinds == [SignalKind.THROTTLED]


def test_a_provider_that_is_not_there_is_a_timeout(gov: Governor, night: Night) -> None:
    with provider_of("1") as provider:
        pass
    gate = Listener(Pool(gov, "p"))
    with pytest.raises(anthropic.APIConnectionError):
        ask_anthropic(provider, flyball.httpx_client(gate, retry=PATIENT, environment=night.world))
    assert (gate.kinds, len(night.slept)) == ([SignalKind.TIMEOUT], 4)
    assert pool_of(gov).in_use == 0


def test_streams_hold_their_slot_until_they_are_over(gov: Governor) -> None:
    http_client = flyball.httpx_client(Pool(gov, "p"))
    with provider_of("1") as provider:
        claude, gpt = anthropic_of(provider, http_client), openai_of(provider, http_client)
        with claude.messages.stream(model="m", max_tokens=8, messages=ASK) as said:
            assert pool_of(gov).in_use == 1
            assert "".join(said.text_stream) == "Done."
        assert pool_of(gov).in_use == 0
        with gpt.chat.completions.create(model="m", messages=ASK, stream=True) as chunks:
            next(chunks)
            assert pool_of(gov).in_use == 1
        assert pool_of(gov).in_use == 0
        with gpt.responses.create(model="m", input="hello", stream=True) as events:
            assert [event.type for event in events][-1] == "response.completed"
        assert pool_of(gov).in_use == 0


def test_streams_on_an_event_loop_do_too(gov: Governor) -> None:
    async def main(provider: Provider) -> None:
        http_client = flyball.httpx_async_client(Pool(gov, "p"))
        async with anthropic.AsyncAnthropic(
            api_key="k", base_url=provider.url, http_client=http_client, max_retries=0
        ) as client:
            async with client.messages.stream(model="m", max_tokens=8, messages=ASK) as said:
                assert pool_of(gov).in_use == 1
                assert [text async for text in said.text_stream] == ["Done."]
            assert pool_of(gov).in_use == 0

    with provider_of("1") as provider:
        asyncio.run(main(provider))


def test_threads_never_pass_the_cap(gov: Governor) -> None:
    gov.set_pool("p", cap=3, adaptive=False)
    with provider_of("3") as provider, flyball.httpx_client(Pool(gov, "p")) as http_client:
        client = anthropic_of(provider, http_client)

        def ask(_: int) -> str:
            said = client.messages.create(model="m", max_tokens=8, messages=ASK)
            return said.content[0].text  # type: ignore[union-attr]

        with ThreadPoolExecutor(12) as threads:
            assert list(threads.map(ask, range(60))) == ["Done."] * 60
        tally = provider.tally()
    assert (tally.accepted, tally.rejected) == (60, 0)
    assert tally.peak_open <= 3
    assert pool_of(gov).in_use == 0
