"""What ``flyball.toml`` and the command line say about a run: models, tries, landings, limits of an agent.

Settings alone: nothing here is opened and nothing changes. A dry run asks the same values as a run.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from flyball.core.tasks.labels import LandingPolicy, landing_policy, retry_tier
from flyball.core.tasks.model_routing import IMPLEMENT, ModelRoute, Routing, resolve
from flyball.core.tasks.next_step import Budgets, budgets_for
from flyball.core.tasks.task import Task, ancestors
from flyball.factory.agents.watcher import AgentLimits
from flyball.factory.budget.guard import Left
from flyball.factory.project.config import ProjectConfig
from flyball.runtimes.registry import pool_of


@dataclass(frozen=True, slots=True, kw_only=True)
class RunPolicy:
    config: ProjectConfig
    model: str = ""
    """For every task, whatever it says itself."""
    default_model: str = ""
    """For every task that names none."""

    def route_for(self, task: Task, stage: str = IMPLEMENT, *, last_try: bool = False) -> ModelRoute:
        """Which model a launch for the task asks for; UsageError where the project does not allow it."""
        models, agent = self.config.models, self.config.agent
        own = {IMPLEMENT: agent.model} if agent.model else {}
        routing = Routing(
            runtime=agent.runtime,
            flag=self.model,
            run_default=self.default_model,
            stages={**models.stages, **own},
            allowed=models.allowed,
            names=models.names.get(agent.runtime, {}),
            upgrade=models.upgrade,
        )
        return resolve(routing, stage, task.labels, last_try=last_try)

    def budgets_for(self, task: Task) -> Budgets:
        """How often it is tried."""
        run = self.config.run
        labelled = retry_tier(task.labels)
        return budgets_for(
            run.tier if labelled is None else labelled,
            attempts=run.attempts,
            limited=run.limited_retries,
            gate=run.gate_retries,
            conflict=run.conflict_retries,
            review=self.config.review.rounds,
            backoff_s=run.backoff_s,
        )

    def landing_policy(self, task: Task, tasks: Mapping[str, Task]) -> LandingPolicy:
        """How green work lands: as its own label says, one of its parents, or the project."""
        lineage = (task, *ancestors(task, tasks))
        return landing_policy(lineage, otherwise=self.config.merge.policy)

    def agent_limits(self, left: Left | None) -> AgentLimits:
        """Of one agent. ``left``: what the budgets of its task and of the run leave it."""
        agent = self.config.agent
        own = agent.max_cost_usd
        tighter = left is not None and (own is None or left.usd < own)
        return AgentLimits(
            max_s=agent.max_s,
            max_turns=agent.max_turns,
            max_cost_usd=left.usd if left is not None and tighter else own,
            cost_key=left.key if left is not None and tighter else "agent.max_cost_usd",
            silence_s=agent.silence_s or None,
            stuck_s=agent.stuck_s,
            grace_s=agent.grace_s,
        )


def pool_for(config: ProjectConfig) -> str:
    """The pool whose slots the project's agents take."""
    agent = config.agent
    models: Mapping[str, list[str]] = {"opencode": ["--model", agent.model]} if agent.model else {}
    return agent.pool or pool_of([agent.runtime, *models.get(agent.runtime, [])], agent.runtime)


def agent_command(config: ProjectConfig) -> list[str]:
    """The command line of the project's agents, as far as it is the same for all of them."""
    agent = config.agent
    return [*(agent.command or (agent.runtime,)), *agent.args]
