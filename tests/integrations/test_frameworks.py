"""Frameworks over the SDKs: LangChain, pydantic-ai and the Agents SDK, against the bundled provider."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import agents
import openai
import pytest
from langchain_anthropic import ChatAnthropic
from langchain_openai import ChatOpenAI
from pydantic_ai import Agent
from pydantic_ai.exceptions import ModelHTTPError
from pydantic_ai.models.anthropic import AnthropicModel
from pydantic_ai.models.concurrency import ConcurrencyLimitedModel
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.anthropic import AnthropicProvider
from pydantic_ai.providers.openai import OpenAIProvider

import flyball
from flyball import UsageError
from flyball.core.signals import SignalKind
from flyball.integrations.pydantic_ai import PoolLimiter
from flyball.sim.provider.capacity import Capacity
from flyball.sim.provider.server import Provider
from tests.integrations.kit import Listener


def provider_of(capacity: str = "8") -> Provider:
    return Provider(Capacity.parse(capacity), sleep=lambda _: None)


def chat_openai(at: Provider) -> Any:
    return ChatOpenAI(model="gpt-5.5", api_key="k", base_url=f"{at.url}/v1")  # type: ignore[arg-type]


def chat_anthropic(at: Provider) -> Any:
    return ChatAnthropic(model_name="claude-sonnet-5-5", api_key="k", base_url=at.url)  # type: ignore[arg-type, call-arg]


def anthropic_model(at: Provider) -> Any:
    return AnthropicModel("claude-sonnet-5-5", provider=AnthropicProvider(api_key="k", base_url=at.url))


def openai_model(at: Provider) -> Any:
    return OpenAIChatModel("gpt-5.5", provider=OpenAIProvider(api_key="k", base_url=f"{at.url}/v1"))


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
        agent = Agent(flyball.govern(make(provider), gate))
        assert asyncio.run(agent.run("hello")).output == "Done."
    assert (gate.kinds, gate.in_use) == ([SignalKind.OK], 0)


def test_a_pool_as_the_limiter_of_pydantic_ai() -> None:
    gate = Listener()

    async def story(model: Any) -> None:
        limited = ConcurrencyLimitedModel(model, limiter=PoolLimiter(gate))
        assert (await Agent(limited).run("hello")).output == "Done."
        async with Agent(limited).run_stream("hello") as said:
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
        client = openai.AsyncOpenAI(api_key="k", base_url=f"{provider.url}/v1", max_retries=0)
        model = OpenAIChatModel("gpt-5.5", provider=OpenAIProvider(openai_client=client))
        with pytest.raises(ModelHTTPError):
            await Agent(ConcurrencyLimitedModel(model, limiter=PoolLimiter(gate))).run("hello")
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
