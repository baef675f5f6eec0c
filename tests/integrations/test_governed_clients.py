"""``govern`` of the clients of SDKs, over HTTP against the bundled provider: one text for all of them.

Each is asked in one way, and given back the same answer. The provider's clock is ours where it refuses.
"""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import aiohttp
import anthropic
import boto3
import botocore.config
import httpx
import httpx2
import openai
import pytest
import requests
from google import genai

import flyball
from flyball import Governor, Limiter, Pool, RetryBudget, RetryPolicy, UsageError
from flyball.core.signals import SignalKind
from flyball.sim.provider.capacity import Capacity
from flyball.sim.provider.server import Manner, Provider
from flyball.testing import ManualClock
from tests.integrations.kit import Listener, Night, drop, pool_of

pytestmark = pytest.mark.filterwarnings("ignore:Inheritance class AiohttpClientSession:DeprecationWarning")
PATIENT = RetryPolicy(budget=RetryBudget(least=1000))
ASK: Any = [{"role": "user", "content": "hello"}]
BODY = {"model": "claude-opus-4-5", "max_tokens": 8, "messages": ASK}
STREAM = {**BODY, "stream": True}
OPUS = "claude-opus-4-5"


@contextmanager
def provider_of(
    capacity: str = "8", *, clock: ManualClock | None = None, on_request: Callable[[Any], None] | None = None
) -> Iterator[Provider]:
    manner, clock = Manner(retry_after_s=0.001), clock or ManualClock()
    with Provider(
        Capacity.parse(capacity), manner, clock=clock, sleep=lambda _: None, on_request=on_request
    ) as found:
        yield found


@dataclass(frozen=True)
class Sdk:
    """How one SDK is made, asked and streamed. ``ask`` and ``begin`` are coroutines where it is async."""

    name: str
    make: Callable[[Provider], Any]
    ask: Callable[[Any, Provider], Any]
    begin: Callable[[Any, Provider], Any]
    """Starts a stream: what reads its next part, and what closes it."""
    is_async: bool = False
    error: Callable[[], type[Exception]] = field(default=lambda: Exception)
    """What a throttle that stays is. Asked for by a test: to name it loads its library."""
    held: bool = field(default=True)
    """A stream that is not read yet holds a slot: it was begun, and its end is not there."""

    def __str__(self) -> str:
        return self.name


def _anthropic(provider: Provider) -> anthropic.Anthropic:
    return anthropic.Anthropic(api_key="k", base_url=provider.url)


def _openai(provider: Provider) -> openai.OpenAI:
    return openai.OpenAI(api_key="k", base_url=f"{provider.url}/v1")


def _google(provider: Provider) -> genai.Client:
    return genai.Client(api_key="k", http_options={"base_url": provider.url})


def _bedrock(provider: Provider) -> Any:
    return boto3.client(
        "bedrock-runtime",
        region_name="us-east-1",
        endpoint_url=provider.url,
        aws_access_key_id="k",
        aws_secret_access_key="s",
        config=botocore.config.Config(proxies={}),
    )


def _converse(client: Any, provider: Provider) -> str:
    said = client.converse(modelId=OPUS, messages=[{"role": "user", "content": [{"text": "hello"}]}])
    return str(said["output"]["message"]["content"][0]["text"])


def _converse_stream(client: Any, provider: Provider) -> tuple[Callable[[], Any], Callable[[], Any]]:
    said = client.converse_stream(modelId=OPUS, messages=[{"role": "user", "content": [{"text": "hello"}]}])
    return _reading(said["stream"])


def _reading(
    stream: Any, close: Callable[[], Any] | None = None
) -> tuple[Callable[[], Any], Callable[[], Any]]:
    parts = iter(stream)
    return (lambda: next(parts, None)), (close or stream.close)


def _requests_stream(session: Any, provider: Provider) -> Any:
    answer = session.post(f"{provider.url}/v1/messages", json=STREAM, stream=True)
    return _reading(answer.iter_lines(chunk_size=1), answer.close)


def _httpx_stream(client: Any, provider: Provider) -> Any:
    answer = client.send(
        client.build_request("POST", f"{provider.url}/v1/messages", json=STREAM), stream=True
    )
    return _reading(answer.iter_raw(), answer.close)


def _text_of(answer: Any) -> str:
    return str(answer.json()["content"][0]["text"])


async def _anthropic_ask(client: Any, provider: Provider) -> str:
    return str((await client.messages.create(**BODY)).content[0].text)


async def _anthropic_begin(client: Any, provider: Provider) -> Any:
    stream = await client.messages.create(**STREAM)
    return _reading_async(stream), stream.close


def _reading_async(stream: Any) -> Callable[[], Awaitable[Any]]:
    parts = aiter(stream)

    async def read() -> Any:
        return await anext(parts, None)

    return read


async def _openai_ask(client: Any, provider: Provider) -> str:
    return str((await client.responses.create(model=OPUS, input="hello")).output_text)


async def _openai_begin(client: Any, provider: Provider) -> Any:
    stream = await client.chat.completions.create(model=OPUS, messages=ASK, stream=True)
    return _reading_async(stream), stream.close


async def _google_ask(client: Any, provider: Provider) -> str:
    return str((await client.aio.models.generate_content(model=OPUS, contents="hello")).text)


async def _google_begin(client: Any, provider: Provider) -> Any:
    stream = await client.aio.models.generate_content_stream(model=OPUS, contents="hello")
    return _reading_async(stream), stream.aclose


async def _aiohttp_ask(session: Any, provider: Provider) -> str:
    async with session.post(f"{provider.url}/v1/messages", json=BODY) as answer:
        answer.raise_for_status()
        return str((await answer.json())["content"][0]["text"])


async def _aiohttp_begin(session: Any, provider: Provider) -> Any:
    answer = await session.post(f"{provider.url}/v1/messages", json=STREAM)

    async def close() -> None:
        answer.release()
        await answer.wait_for_close()

    return _reading_async(answer.content.iter_any()), close


async def _httpx_ask(client: Any, provider: Provider) -> str:
    return _text_of((await client.post(f"{provider.url}/v1/messages", json=BODY)).raise_for_status())


async def _httpx_begin(client: Any, provider: Provider) -> Any:
    request = client.build_request("POST", f"{provider.url}/v1/messages", json=STREAM)
    answer = await client.send(request, stream=True)
    return _reading_async(answer.aiter_raw()), answer.aclose


SDKS = [
    Sdk(
        "anthropic",
        _anthropic,
        lambda client, _: client.messages.create(**BODY).content[0].text,
        lambda client, _: _reading(client.messages.create(**STREAM)),
        error=lambda: anthropic.RateLimitError,
    ),
    Sdk(
        "openai",
        _openai,
        lambda client, _: client.responses.create(model=OPUS, input="hello").output_text,
        lambda client, _: _reading(client.chat.completions.create(model=OPUS, messages=ASK, stream=True)),
        error=lambda: openai.RateLimitError,
    ),
    Sdk(
        "google-genai",
        _google,
        lambda client, _: client.models.generate_content(model=OPUS, contents="hello").text,
        lambda client, _: _reading(client.models.generate_content_stream(model=OPUS, contents="hello")),
        error=lambda: genai.errors.ClientError,
        held=False,
    ),
    Sdk("boto3", _bedrock, _converse, _converse_stream),
    Sdk(
        "requests",
        lambda _: requests.Session(),
        lambda session, at: _text_of(_good(session.post(f"{at.url}/v1/messages", json=BODY))),
        _requests_stream,
        error=lambda: requests.HTTPError,
    ),
    Sdk(
        "httpx",
        lambda _: httpx.Client(),
        lambda client, at: _text_of(client.post(f"{at.url}/v1/messages", json=BODY).raise_for_status()),
        _httpx_stream,
        error=lambda: httpx.HTTPStatusError,
    ),
    Sdk(
        "httpx2",
        lambda _: httpx2.Client(),
        lambda client, at: _text_of(client.post(f"{at.url}/v1/messages", json=BODY).raise_for_status()),
        _httpx_stream,
        error=lambda: httpx2.HTTPStatusError,
    ),
    Sdk(
        "anthropic-async",
        lambda at: anthropic.AsyncAnthropic(api_key="k", base_url=at.url),
        _anthropic_ask,
        _anthropic_begin,
        is_async=True,
        error=lambda: anthropic.RateLimitError,
    ),
    Sdk(
        "openai-async",
        lambda at: openai.AsyncOpenAI(api_key="k", base_url=f"{at.url}/v1"),
        _openai_ask,
        _openai_begin,
        is_async=True,
        error=lambda: openai.RateLimitError,
    ),
    Sdk(
        "google-genai-async",
        _google,
        _google_ask,
        _google_begin,
        is_async=True,
        error=lambda: genai.errors.ClientError,
        held=False,
    ),
    Sdk(
        "aiohttp",
        lambda _: aiohttp.ClientSession(),
        _aiohttp_ask,
        _aiohttp_begin,
        is_async=True,
        error=lambda: aiohttp.ClientResponseError,
        held=False,
    ),
    Sdk(
        "httpx-async",
        lambda _: httpx.AsyncClient(),
        _httpx_ask,
        _httpx_begin,
        is_async=True,
        error=lambda: httpx.HTTPStatusError,
    ),
]


def _good(answer: requests.Response) -> requests.Response:
    answer.raise_for_status()
    return answer


async def _result(found: Any) -> Any:
    return await found if hasattr(found, "__await__") else found


async def _closed(client: Any) -> None:
    """As far as it can be closed."""
    aio = getattr(client, "aio", None)
    for each in (client, aio):
        for name in ("aclose", "close"):
            close = getattr(each, name, None)
            if close is not None:
                await _result(close())
                break


async def free(gate: Listener) -> None:
    """Where an event loop feeds the answers, the slot ends a few rounds of the loop after the last byte."""
    async with asyncio.timeout(60):
        while gate.in_use:
            await asyncio.sleep(0)


def play(
    sdk: Sdk, provider: Provider, gate: Any, story: Callable[[Any], Awaitable[Any]], **rules: Any
) -> Any:
    """A story with a governed client, on an event loop of its own whichever kind it is."""

    async def main() -> Any:
        client = sdk.make(provider)
        assert flyball.govern(client, gate, **rules) is client
        try:
            return await story(client)
        finally:
            await _closed(client)

    return asyncio.run(main())


@pytest.fixture(params=SDKS, ids=str)
def sdk(request: pytest.FixtureRequest) -> Sdk:
    found: Sdk = request.param
    return found


def test_a_throttled_call_is_served_in_the_end_and_told_once(sdk: Sdk, gov: Governor) -> None:
    clock, gate, in_use = ManualClock(), Listener(Pool(gov, "p")), []

    def asleep(for_s: float) -> None:
        in_use.append(pool_of(gov).in_use)
        clock.advance(for_s)

    night = Night(asleep)
    world = night.world_async if sdk.is_async else night.world
    with provider_of("0,0.7:1", clock=clock) as provider:
        said = play(
            sdk,
            provider,
            gate,
            lambda client: _result(sdk.ask(client, provider)),
            retry=PATIENT,
            environment=world,
        )
        tally = provider.tally()
    assert (said, tally.accepted, tally.rejected) == ("Done.", 1, 2)
    assert gate.kinds == [SignalKind.THROTTLED, SignalKind.OK]
    assert in_use == [0, 0]
    assert (pool_of(gov).in_use, pool_of(gov).throttle_count) == (0, 1)


def test_a_throttle_that_stays_is_the_sdks_own_error(sdk: Sdk, gov: Governor) -> None:
    night, gate = Night(), Listener(Pool(gov, "p"))
    world = night.world_async if sdk.is_async else night.world
    with provider_of("0") as provider, pytest.raises(sdk.error()) as caught:
        play(
            sdk,
            provider,
            gate,
            lambda client: _result(sdk.ask(client, provider)),
            retry=PATIENT,
            environment=world,
        )
    assert "429" in str(caught.value) or "Throttling" in str(caught.value)
    assert (gate.kinds, len(night.slept)) == ([SignalKind.THROTTLED], 4)
    assert provider.tally().rejected == 5
    assert (gate.in_use, pool_of(gov).in_use) == (0, 0)


def test_a_stream_that_is_read_to_its_end_gives_its_slot_back(sdk: Sdk) -> None:
    gate = Listener()

    async def story(client: Any) -> None:
        read, close = await _result(sdk.begin(client, provider))
        if sdk.held:
            assert gate.in_use == 1
        while await _result(read()) is not None:
            pass
        await free(gate)
        await _result(close())

    with provider_of() as provider:
        play(sdk, provider, gate, story)
    assert (gate.kinds, gate.ends) == ([SignalKind.OK], [""])


def test_a_stream_that_is_left_early_gives_its_slot_back(sdk: Sdk) -> None:
    gate = Listener()

    async def story(client: Any) -> None:
        read, close = await _result(sdk.begin(client, provider))
        assert await _result(read()) is not None
        await _result(close())
        drop([read, close])
        await free(gate)

    with provider_of() as provider:
        play(sdk, provider, gate, story)
    assert len(gate.ends) == 1


def test_what_an_answer_used_settles_what_its_call_reserved(sdk: Sdk) -> None:
    limiter = Limiter(windows={"tokens": "1000/min"})

    async def story(client: Any) -> None:
        await _result(sdk.ask(client, provider))

    with provider_of() as provider:
        play(sdk, provider, limiter, story, estimate=lambda _: {"tokens": 900.0})
    left = limiter.stats().windows[0].left
    assert 700 < left < 950, "200 of input and at most 50 of output were used"


def test_a_call_through_the_gateway_takes_no_second_slot(sdk: Sdk, monkeypatch: pytest.MonkeyPatch) -> None:
    gate = Listener()

    class Led:
        """As the gateway's addresses look; what is asked for lies under it."""

        url = ""

    async def story(client: Any) -> None:
        with pytest.raises(Exception):  # noqa: B017, PT011 - nothing answers there; that is not the point
            await _result(sdk.ask(client, led))

    with provider_of() as provider:
        monkeypatch.setenv("FLYBALL_GATEWAY", "1")
        led: Any = Led()
        led.url = f"{provider.url}/token/+/blog/t-1/https/api.anthropic.com"
        play(sdk, led, gate, story, retry=None)
    assert (gate.told, gate.ends) == ([], [])


def test_models_that_have_a_pool_of_their_own_use_it(sdk: Sdk, gov: Governor) -> None:
    gov.set_pool("p", families={"opus": "claude-opus-*"})
    used: list[str] = []

    def look(_: object) -> None:
        used.extend(pool.name for pool in gov.status().pools if pool.in_use)

    with provider_of(on_request=look) as provider:
        play(sdk, provider, Pool(gov, "p"), lambda client: _result(sdk.ask(client, provider)))
    assert used == ["p:opus"]


def test_the_host_and_the_account_name_the_pool(sdk: Sdk) -> None:
    with provider_of() as provider:
        play(sdk, provider, None, lambda client: _result(sdk.ask(client, provider)), account="work")
    assert [pool.name for pool in Governor().status().pools] == ["127.0.0.1:work"]


def test_a_client_is_governed_once(sdk: Sdk) -> None:
    async def story(client: Any) -> None:
        with pytest.raises(UsageError, match="governed already"):
            flyball.govern(client, "p")

    with provider_of() as provider:
        play(sdk, provider, "p", story)


def test_a_model_that_shares_its_connections_leaves_the_others_alone() -> None:
    gate = Listener()
    with provider_of() as provider, httpx2.Client() as shared:
        ours = anthropic.Anthropic(api_key="k", base_url=provider.url, http_client=shared)
        other = anthropic.Anthropic(api_key="k", base_url=provider.url, http_client=shared)
        flyball.govern(ours, gate)
        other.messages.create(**BODY)
        assert gate.ends == []
        ours.messages.create(**BODY)
        assert gate.ends == [""]


def test_an_sdk_keeps_its_own_retries_where_flyball_has_none(sdk: Sdk) -> None:
    if not sdk.name.startswith(("anthropic", "openai")):
        pytest.skip("it does not say which calls are its retries")
    gate = Listener()

    async def story(client: Any) -> None:
        client.max_retries = 2
        flyball.govern(client, gate, retry=None)
        with pytest.raises(sdk.error()):
            await _result(sdk.ask(client, provider))
        await _closed(client)

    with provider_of("0") as provider:

        async def main() -> None:
            await story(sdk.make(provider))

        asyncio.run(main())
        assert provider.tally().rejected == 3
    assert (gate.kinds, gate.in_use) == ([SignalKind.THROTTLED], 0)


def test_boto3_does_not_try_again_beside_flyball(gov: Governor) -> None:
    with provider_of("0") as provider:
        client = flyball.govern(_bedrock(provider), Pool(gov, "p"), retry=None)
        with pytest.raises(client.exceptions.ThrottlingException):
            _converse(client, provider)
        client.close()
        assert provider.tally().rejected == 1


def test_an_error_in_the_middle_of_bedrocks_stream_is_told() -> None:
    from flyball.integrations.bedrock_stream import listener_for_answer
    from flyball.sim.provider.dialect_bedrock import dump_event

    listener = listener_for_answer({"content-type": "application/vnd.amazon.eventstream"})
    said = dump_event("throttlingException", {"message": "slow down"}, is_exception=True)
    begun = dump_event("messageStart", {"role": "assistant"})
    assert listener.hear(begun + said[:40]) is None
    told = listener.hear(said[40:])
    assert told is not None
    assert (told.kind, told.detail) == (SignalKind.THROTTLED, "mid-stream throttlingException")


def test_the_retries_of_a_requests_adapter_are_flyballs() -> None:
    session = requests.Session()
    session.mount("http://", requests.adapters.HTTPAdapter(max_retries=3))
    gate = Listener()
    with provider_of("0") as provider, flyball.govern(session, gate, retry=None):
        assert session.post(f"{provider.url}/v1/messages", json=BODY).status_code == 429
    assert gate.kinds == [SignalKind.THROTTLED]


def test_an_answer_of_requests_keeps_its_slot_until_it_is_closed(gov: Governor) -> None:
    with provider_of() as provider, flyball.govern(requests.Session(), Pool(gov, "p")) as session:
        with session.post(f"{provider.url}/v1/messages", data=json.dumps(BODY), stream=True) as answer:
            assert pool_of(gov).in_use == 1
            assert answer.raw.read(1) == b"{"
            assert pool_of(gov).in_use == 1
        assert pool_of(gov).in_use == 0


@pytest.mark.parametrize("sdk", [sdk for sdk in SDKS if sdk.is_async], ids=str)
def test_a_call_that_is_cancelled_gives_its_slot_back(sdk: Sdk) -> None:
    gate, go_on = Listener(), threading.Event()

    async def story(client: Any) -> None:
        asking = asyncio.ensure_future(sdk.ask(client, provider))
        async with asyncio.timeout(60):
            while not gate.in_use:
                await asyncio.sleep(0)
        asking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asking
        await free(gate)
        go_on.set()

    def until_told(_: float) -> None:
        go_on.wait(60)

    with Provider(Capacity.parse("8"), sleep=until_told) as provider:
        play(sdk, provider, gate, story)
    assert (gate.told, len(gate.ends)) == ([], 1)
