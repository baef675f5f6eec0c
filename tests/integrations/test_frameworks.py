"""Frameworks over the SDKs: LangChain, pydantic-ai and the Agents SDK, against the bundled provider."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import agents
import langchain_anthropic
import langchain_openai
import openai
import pydantic_ai
import pytest

import flyball
from flyball import UsageError
from flyball.core.signals import SignalKind
from flyball.sim.provider.capacity import Capacity
from flyball.sim.provider.server import Provider
from tests.integrations.kit import Listener


def provider_of(capacity: str = "8") -> Provider:
    return Provider(Capacity.parse(capacity), sleep=lambda _: None)


def chat_openai(at: Provider) -> Any:
    return langchain_openai.ChatOpenAI(model="gpt-5.5", api_key="k", base_url=f"{at.url}/v1")  # type: ignore[arg-type]


def chat_anthropic(at: Provider) -> Any:
    return langchain_anthropic.ChatAnthropic(model_name="claude-sonnet-5-5", api_key="k", base_url=at.url)  # type: ignore[arg-type, call-arg]


def anthropic_model(at: Provider) -> Any:
    from pydantic_ai.models.anthropic import AnthropicModel
    from pydantic_ai.providers.anthropic import AnthropicProvider

    return AnthropicModel("claude-sonnet-5-5", provider=AnthropicProvider(api_key="k", base_url=at.url))


def openai_model(at: Provider, **options: Any) -> Any:
    from pydantic_ai.models.openai import OpenAIChatModel
    from pydantic_ai.providers.openai import OpenAIProvider

    client = openai.AsyncOpenAI(api_key="k", base_url=f"{at.url}/v1", **options)
    return OpenAIChatModel("gpt-5.5", provider=OpenAIProvider(openai_client=client))


@pytest.mark.parametrize("make", [chat_openai, chat_anthropic])
def test_a_model_of_langchain(make: Callable[[Provider], Any]) -> None:
    gate = Listener()

    async def later(model: Any) -> tuple[str, str]:
        parts = [part.content async for part in model.astream("hello")]
        return (await model.ainvoke("hello")).content, "".join(
            part if isinstance(part, str) else "".join(each.get("text", "") for each in part)
            for part in parts
        )

    with provider_of() as provider:
        model = flyball.govern(make(provider), gate)
        assert model.invoke("hello").content == "Done."
        assert asyncio.run(later(model)) == ("Done.", "Done.")
        assert provider.tally().accepted == 3
    assert (gate.kinds, gate.in_use) == ([SignalKind.OK] * 3, 0)


@pytest.mark.parametrize("make", [anthropic_model, openai_model])
def test_a_model_of_pydantic_ai(make: Callable[[Provider], Any]) -> None:
    gate = Listener()
    with provider_of() as provider:
        agent = pydantic_ai.Agent(flyball.govern(make(provider), gate))
        assert asyncio.run(agent.run("hello")).output == "Done."
    assert (gate.kinds, gate.in_use) == ([SignalKind.OK], 0)


def limited_by(gate: Listener, model: Any) -> Any:
    from pydantic_ai.models.concurrency import ConcurrencyLimitedModel

    from flyball.integrations.pydantic_ai import PoolLimiter

    return ConcurrencyLimitedModel(model, limiter=PoolLimiter(gate))


def test_a_pool_as_the_limiter_of_pydantic_ai() -> None:
    gate = Listener()

    async def story(model: Any) -> None:
        limited = limited_by(gate, model)
        assert (await pydantic_ai.Agent(limited).run("hello")).output == "Done."
        async with pydantic_ai.Agent(limited).run_stream("hello") as said:
            assert gate.in_use == 1
            assert await said.get_output() == "Done."
        async with asyncio.timeout(60):
            while gate.in_use:
                await asyncio.sleep(0)

    with provider_of() as provider:
        asyncio.run(story(anthropic_model(provider)))
    assert gate.kinds == [SignalKind.OK, SignalKind.OK]


def test_a_limiter_of_pydantic_ai_hears_a_throttle() -> None:
    gate = Listener()

    async def story(provider: Provider) -> None:
        with pytest.raises(pydantic_ai.ModelHTTPError):
            await pydantic_ai.Agent(limited_by(gate, openai_model(provider, max_retries=0))).run("hello")
        async with asyncio.timeout(60):
            while gate.in_use:
                await asyncio.sleep(0)

    with provider_of("0") as provider:
        asyncio.run(story(provider))
    assert gate.kinds == [SignalKind.THROTTLED]


def test_the_agents_sdk_takes_a_governed_client() -> None:
    gate = Listener()
    with provider_of() as provider:
        client = openai.AsyncOpenAI(api_key="k", base_url=f"{provider.url}/v1")
        agents.set_tracing_disabled(True)
        agents.set_default_openai_client(flyball.govern(client, gate), use_for_tracing=False)
        agent = agents.Agent(name="greeter", model="gpt-5.5")
        said = asyncio.run(agents.Runner.run(agent, "hello"))
        assert said.final_output == "Done."
    assert (gate.kinds, gate.in_use) == ([SignalKind.OK], 0)


def test_a_model_without_a_client_that_is_known_is_told_so() -> None:
    from langchain_core.language_models.fake_chat_models import FakeListChatModel

    with pytest.raises(UsageError, match="FakeListChatModel shows no client that govern knows"):
        flyball.govern(FakeListChatModel(responses=["hello"]), "p")
