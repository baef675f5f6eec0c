"""What one run of one project works with, in values that say what a function needs.

    RunPolicy        what flyball.toml and the command line say              ``policy.py``
    ProjectState     the project: its repository, workspaces, tasks, ledger
    AgentLauncher    what an agent is started with and watched by
    LandingTools     how finished work gets into the default branch, or becomes a pull request
    RunSlots         the places in the run's width                           ``waiting.py``
    BudgetGuard      what may be spent                                       ``factory/budget``

``open_run`` makes them all. Only what puts a run together is given all of them, as a ``RunContext``.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from flyball.core.budget.limits import BudgetAction, budget_action
from flyball.core.pool.settings import PoolSettings
from flyball.core.tasks.protected_paths import DEFAULT_PROTECTED
from flyball.core.tasks.task import Task
from flyball.errors import UsageError
from flyball.factory.accounts.account import Account, open_account
from flyball.factory.accounts.environment import gate_environment
from flyball.factory.agents.process import ProcessWatch
from flyball.factory.agents.prompt import ProjectTerms
from flyball.factory.budget.api_key import api_key_for
from flyball.factory.budget.guard import BudgetGuard
from flyball.factory.budget.monitor import UsageMonitor
from flyball.factory.budget.port import billing_account
from flyball.factory.budget.shared_windows import windows_of_governor
from flyball.factory.git.repository import Repository
from flyball.factory.git.workspace import Workspaces, open_to_all
from flyball.factory.guards.guarded_launch import GuardedLauncher
from flyball.factory.guards.install import Guards
from flyball.factory.guards.sandbox import BWRAP, SandboxedCommands, writable_folders
from flyball.factory.landing.base_gate import BaseGate
from flyball.factory.landing.default_branch import DefaultBranch, Eligibility
from flyball.factory.landing.gate import GateRunner, named_files
from flyball.factory.landing.hosts.registry import find_host
from flyball.factory.landing.landing import Landing
from flyball.factory.landing.pull_requests import PullLanding
from flyball.factory.landing.rebase import LandingWorktree, Rebaser
from flyball.factory.landing.user_checkout import UserCheckout
from flyball.factory.project.config import ProjectConfig
from flyball.factory.run.options import RunOptions
from flyball.factory.run.policy import RunPolicy, agent_command, pool_for
from flyball.factory.run.waiting import RunSlots
from flyball.factory.state.ledger import Ledger
from flyball.factory.state.run_folders import state_folder
from flyball.factory.tasks.port import TaskSource
from flyball.factory.tasks.registry import open_source
from flyball.gateway.agent_calls import AgentCalls, NotCounted, open_agent_calls
from flyball.gateway.agent_route import NoRoute, find_route
from flyball.gateway.lifetime import GatewayConnection
from flyball.governor.governor import Governor
from flyball.governor.state_url import home
from flyball.hooks.native_limit import bound_variables
from flyball.runtimes.launch_arguments import with_options
from flyball.runtimes.port import Runtime
from flyball.runtimes.registry import load


@dataclass(slots=True, kw_only=True)
class ProjectState:
    """The project, where its work is kept, and its tasks."""

    id: str
    root: Path
    state: Path
    repository: Repository
    workspaces: Workspaces
    source: TaskSource
    ledger: Ledger
    terms: ProjectTerms
    tasks: Mapping[str, Task] = field(default_factory=dict)
    """As they were read last."""


def open_project_state(root: Path, config: ProjectConfig, *, run: str) -> ProjectState:
    repository = Repository(
        root, default_branch=config.project.default_branch, tasks_folder=_in_files(config)
    )
    return ProjectState(
        id=config.project.id,
        root=root,
        state=state_folder(root),
        repository=repository,
        workspaces=open_workspaces(root, config, repository),
        source=open_source(config, root),
        ledger=Ledger(state_folder(root), run=run),
        terms=ProjectTerms(
            id=config.project.id,
            default_branch=repository.default,
            gate=config.gate.commands or [],
            protected=protected_paths(config, root),
            text=_prompt_text(root, config),
        ),
    )


def open_workspaces(root: Path, config: ProjectConfig, repository: Repository) -> Workspaces:
    """Where agents work, and what keeps in what is run there."""
    walled = config.guard.sandbox == BWRAP
    wall = _wall(root, repository, config.guard.writable)
    return Workspaces(
        repository=repository,
        folder=workspaces_folder(root, config),
        bootstrap=config.worktree.bootstrap,
        bootstrap_timeout_s=config.worktree.bootstrap_timeout_s,
        copy=config.worktree.copy,
        env=gate_environment(os.environ, names=config.gate.env),
        enclose=wall.of_git if walled else open_to_all,
        enclose_bootstrap=wall.of_bootstrap if walled else open_to_all,
    )


def _wall(root: Path, repository: Repository, writable: Sequence[str]) -> SandboxedCommands:
    return SandboxedCommands(
        objects=repository.common, home=home(), writable=writable_folders(writable, root)
    )


def _in_files(config: ProjectConfig) -> str | None:
    return config.tasks.folder if config.tasks.source == "files" else None


def workspaces_folder(root: Path, config: ProjectConfig) -> Path:
    """Outside the checkout: tools that look for their configuration upwards must not find the user's."""
    named = config.worktree.folder
    return (root / Path(named).expanduser()).resolve() if named else home() / "worktrees" / config.project.id


def protected_paths(config: ProjectConfig, root: Path) -> tuple[str, ...]:
    gate = named_files(config.gate.commands or (), root) if config.gate.protect else ()
    named = (*DEFAULT_PROTECTED, f"{config.tasks.folder.rstrip('/')}/", *config.merge.protected, *gate)
    return tuple(dict.fromkeys(named))


def _prompt_text(root: Path, config: ProjectConfig) -> str:
    if not config.prompt.file:
        return config.prompt.text
    try:
        return (root / config.prompt.file).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"cannot read prompt.file {config.prompt.file} ({error})") from error


@dataclass(slots=True, kw_only=True)
class AgentLauncher:
    """What an agent is started with and watched by."""

    governor: Governor
    pool: str
    """Where each agent holds a slot."""
    calls: AgentCalls | None
    """How the calls of its agents are counted one by one; None: the agents are."""
    subagents: int
    """How many an agent may have at once whose calls are not counted."""
    runtime: Runtime
    account: Account
    guards: GuardedLauncher
    watch: ProcessWatch
    stagger_s: float
    note: Callable[[str], None] = lambda _: None
    """Called with what the user should know."""
    gateway_connection: GatewayConnection | None = None
    """The gateway stays, or comes back, as long as the run goes on."""
    _started_at: float = 0.0

    async def wait_turn(self) -> None:
        """Wait until the next agent may start: starts are staggered."""
        loop = asyncio.get_running_loop()
        while (wait_s := self._started_at + self.stagger_s - loop.time()) > 0:
            await asyncio.sleep(wait_s)
        self._started_at = loop.time()

    def lead_calls(
        self, argv: Sequence[str], env: Mapping[str, str], *, folder: Path, project: str, name: str
    ) -> tuple[list[str], dict[str, str]]:
        """The launch of one agent with its calls led through the gateway, where they are counted. What its
        environment or its settings say may differ from those of the run: then they are not, and a note
        says so."""
        if self.calls is None:
            return list(argv), self.bound_subagents(env)
        route = find_route(self.runtime.name, argv, env, folder=folder)
        if isinstance(route, NoRoute):
            self.note(f"{name}: its calls are not counted: {route.value}")
            return list(argv), self.bound_subagents(env)
        change = replace(self.calls, route=route).change(project=project, name=name)
        return with_options(argv, change.options), {**env, **change.variables}

    def bound_subagents(self, env: Mapping[str, str]) -> dict[str, str]:
        """The environment of an agent whose calls are not counted. In its sandbox hooks cannot reach the
        state, so they do not count its subagents either."""
        return {**env, **bound_variables(self.runtime.name, self.subagents, env)}


def open_launcher(config: ProjectConfig, project: ProjectState, account: Account) -> AgentLauncher:
    governor = Governor()
    counted = open_agent_calls(
        governor,
        pool_for(config),
        runtime=config.agent.runtime,
        argv=agent_command(config),
        env=account.environment({}),
        folder=project.root,
    )
    calls = counted if isinstance(counted, AgentCalls) else None
    gateway_connection = calls.gateway_connection() if calls is not None else None
    if gateway_connection is not None:
        gateway_connection.watch()
    return AgentLauncher(
        governor=governor,
        pool=calls.pool if calls is not None else pool_for(config),
        calls=calls,
        subagents=counted.subagents if isinstance(counted, NotCounted) else PoolSettings().subagents,
        runtime=load(config.agent.runtime),
        account=account,
        guards=GuardedLauncher(
            guards=Guards(home()),
            part=config.guard,
            repository=project.repository,
            state=project.state,
            runtime=config.agent.runtime,
            config_dir=account.profile.folder if account.profile is not None else None,
        ),
        watch=ProcessWatch(),
        stagger_s=config.run.stagger_s,
        gateway_connection=gateway_connection,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class LandingTools:
    """How finished work lands, and whether the base is fit to work on."""

    landing: Landing
    pulls: PullLanding
    base_gate: BaseGate


def open_landing_tools(
    config: ProjectConfig, project: ProjectState, watch: ProcessWatch, *, check_base: bool
) -> LandingTools:
    repository, workspaces, ledger, state = (
        project.repository,
        project.workspaces,
        project.ledger,
        project.state,
    )
    gate = GateRunner(
        commands=config.gate.commands or [],
        timeout_s=config.gate.timeout_s,
        env=gate_environment(os.environ, names=config.gate.env),
        ledger=ledger,
        watch=watch,
        green=state / "green.json",
    )
    walled = config.guard.sandbox == BWRAP and config.gate.sandbox
    wall = _wall(project.root, repository, config.gate.writable) if walled else None
    fitness = Eligibility(
        repository=repository,
        workspaces=workspaces,
        protected=tuple(project.terms.protected),
        signed=config.merge.signed,
        submodules=config.merge.submodules,
    )
    landing = Landing(
        repository=repository,
        workspaces=workspaces,
        source=project.source,
        ledger=ledger,
        gate=gate,
        rebaser=Rebaser(
            worktree=LandingWorktree(
                repository,
                replace(workspaces, enclose_bootstrap=wall.of_bootstrap if wall else open_to_all),
                project.source,
                wall,
            ),
            ledger=ledger,
            eligibility=fitness,
            squash=config.merge.squash,
        ),
        branch=DefaultBranch(
            repository,
            UserCheckout(repository, state, tasks_folder=_in_files(config), worktrees=workspaces.folder),
            ledger,
            push=config.merge.push,
        ),
        eligibility=fitness,
        state=state,
        batch=config.merge.batch,
    )
    wanted = bool(gate.commands) and check_base and config.gate.check_base
    return LandingTools(
        landing=landing,
        pulls=PullLanding(landing=landing, host=lambda: find_host(project.root, config.merge.host)),
        base_gate=BaseGate(landing=landing, state=state, wanted=wanted),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class RunContext:
    policy: RunPolicy
    project: ProjectState
    launcher: AgentLauncher
    landings: LandingTools
    places: RunSlots
    budget: BudgetGuard

    def close(self) -> None:
        if self.launcher.gateway_connection is not None:
            self.launcher.gateway_connection.close()
        self.launcher.watch.close()
        self.project.ledger.close()
        self.launcher.governor.close()


def open_run(root: Path, config: ProjectConfig, options: RunOptions, *, run: str) -> RunContext:
    """Open a project for work, inside the running loop."""
    account = open_account(config, home())
    payer = billing_account(account)
    api_key = api_key_for(config, payer, wanted=options.allow_api_spend)
    quiet = budget_action(options.guard, config.budget.guard) is BudgetAction.OFF
    project = open_project_state(root, config, run=run)
    launcher = open_launcher(config, project, account)
    # Agents whose calls are counted one by one hold slots elsewhere; the account is the provider's pool's.
    shared = windows_of_governor(launcher.governor, pool_for(config), payer.name)
    return RunContext(
        policy=RunPolicy(config=config, model=options.model, default_model=options.default_model),
        project=project,
        launcher=launcher,
        landings=open_landing_tools(config, project, launcher.watch, check_base=options.check_base),
        places=RunSlots(options.width or config.run.width),
        budget=BudgetGuard(
            payer=payer,
            budget=config.budget,
            ledger=project.ledger,
            monitor=None if quiet else UsageMonitor(payer, home(), own=project.state, shared=shared),
            guard=options.guard,
            api_key=api_key,
        ),
    )
