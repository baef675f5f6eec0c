"""An agent whose calls take the slots, instead of the agent as long as it lives.

``choose_counting`` decides it from the pool's ``counts`` setting and from what is known of the agent, and
changes nothing; ``open_agent_calls`` also starts the gateway if that is needed. ``exec`` and the factory
launch such an agent with a slot of the agents' pool and the change that leads its calls through the gateway.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from flyball.core.pool.settings import Counting, PoolSettings
from flyball.errors import StoreError
from flyball.gateway.agent_route import AgentRoute, LaunchChange, NoRoute, find_route
from flyball.gateway.agents_pool import ensure_agents_pool
from flyball.gateway.lifetime import Gateway, GatewayConnection, ensure_gateway
from flyball.governor.governor import Governor
from flyball.governor.internals import internals


@dataclass(frozen=True, slots=True)
class AgentCalls:
    """How one agent's calls are counted."""

    pool: str
    """Where the agent itself holds a slot."""
    calls_pool: str | None
    """Where its calls do; None: by the host that each goes to."""
    route: AgentRoute
    gateway: Gateway

    def change(self, *, project: str, name: str, priority: int = 0) -> LaunchChange:
        return self.route.change(
            self.gateway.address, project=project, name=name, pool=self.calls_pool, priority=priority
        )

    def gateway_connection(self) -> GatewayConnection:
        """Keeps the gateway there as long as it is held."""
        return GatewayConnection(self.gateway)


@dataclass(frozen=True, slots=True)
class NotCounted:
    """The agent holds a slot of its provider's pool as long as it lives."""

    why: str
    asked_for: bool
    """A person wanted the calls counted."""
    subagents: int = PoolSettings().subagents
    """How many it may have at once, where nothing counts these either."""


def choose_counting(
    counts: Counting, *, runtime: str, argv: Sequence[str], env: Mapping[str, str], folder: Path | None = None
) -> AgentRoute | NotCounted:
    """How to lead its calls through the gateway, where they are to be counted and can be."""
    asked_for = counts is Counting.CALLS
    if counts is Counting.AGENTS:
        return NotCounted("the pool counts agents", asked_for)
    route = find_route(runtime, argv, env, folder=folder)
    return NotCounted(route.value, asked_for) if isinstance(route, NoRoute) else route


def open_agent_calls(
    governor: Governor,
    pool: str,
    *,
    runtime: str,
    argv: Sequence[str],
    env: Mapping[str, str],
    folder: Path | None = None,
) -> AgentCalls | NotCounted:
    """``pool``: where it would hold a slot by itself. Raises StoreError where the state cannot be read."""
    named = internals(governor).named_settings(pool)
    counts = Counting(named.get("counts", Counting.AUTO.value))
    subagents = named.get("subagents", PoolSettings().subagents)
    route = choose_counting(counts, runtime=runtime, argv=argv, env=env, folder=folder)
    if isinstance(route, NotCounted):
        return replace(route, subagents=subagents)
    try:
        gateway = ensure_gateway()
    except (OSError, StoreError) as error:
        return NotCounted(f"the gateway does not run: {error}", True, subagents)
    calls_pool = pool if len(route.bases) == 1 else None
    return AgentCalls(ensure_agents_pool(governor), calls_pool, route, gateway)
