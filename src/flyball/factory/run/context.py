"""Everything one run of one project works with, opened in one place.

How many trips may have an agent at once: the width of a run, which a person may change while it goes
on.
"""

from __future__ import annotations

import asyncio
import os
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from flyball.core.budget.limits import BudgetAction, guard_of
from flyball.core.tasks.labels import PR, LandingPolicy, policy_of, retry_tier
from flyball.core.tasks.model_routing import IMPLEMENT, Route, Routing, resolve
from flyball.core.tasks.next_step import Budgets, budgets_for
from flyball.core.tasks.protected_paths import DEFAULT_PROTECTED
from flyball.core.tasks.task import Task, ancestors
from flyball.errors import UsageError
from flyball.factory.accounts.account import Account, open_account
from flyball.factory.accounts.environment import gate_environment
from flyball.factory.agents.process import ProcessWatch
from flyball.factory.agents.prompt import ProjectTerms
from flyball.factory.agents.watcher import AgentLimits
from flyball.factory.budget.api_key import api_key_for
from flyball.factory.budget.guard import BudgetGuard
from flyball.factory.budget.monitor import Lookout
from flyball.factory.budget.port import payer_of
from flyball.factory.git.repository import Repository
from flyball.factory.git.worktree import Worktrees
from flyball.factory.guards.guarded_launch import GuardedLauncher
from flyball.factory.guards.install import Guards
from flyball.factory.landing.base_gate import BaseGate
from flyball.factory.landing.batch import Rebaser
from flyball.factory.landing.default_branch import DefaultBranch, Fitness
from flyball.factory.landing.gate import GateRunner, files_named_in
from flyball.factory.landing.hosts.registry import host_of
from flyball.factory.landing.landing import Landing
from flyball.factory.landing.landing_worktree import LandingWorktree
from flyball.factory.landing.pull_requests import PullLanding
from flyball.factory.landing.user_checkout import UserCheckout
from flyball.factory.project.config import ProjectConfig
from flyball.factory.state.ledger import Ledger
from flyball.factory.state.run_folders import state_folder
from flyball.factory.tasks.port import TaskSource
from flyball.factory.tasks.registry import open_source
from flyball.governor.governor import Governor
from flyball.governor.state_url import home
from flyball.runtimes.port import Runtime
from flyball.runtimes.registry import load, pool_of


class RunSlots:
    """First come, first served. For one loop."""

    def __init__(self, width: int) -> None:
        self.width = width
        self.narrowed: int | None = None
        """How many of them may be used now; None: all. Money may allow fewer than a person asked for."""
        self.taken = 0
        self.told: Callable[[], None] = lambda: None
        """Called when somebody leaves."""
        self._line: deque[asyncio.Future[None]] = deque()

    @property
    def usable(self) -> int:
        return self.width if self.narrowed is None else min(self.width, max(1, self.narrowed))

    @property
    def room(self) -> int:
        """How many more could start now, those in line first."""
        return max(0, self.usable - self.taken - len(self._line))

    async def take(self) -> None:
        if self.taken < self.usable and not self._line:
            self.taken += 1
            return
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._line.append(turn)
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                self.give_back()
            elif turn in self._line:
                self._line.remove(turn)
            raise

    def give_back(self) -> None:
        self.taken -= 1
        self._hand_on()
        self.told()

    def resize(self, width: int) -> None:
        self.width = width
        self._hand_on()

    def narrow(self, usable: int | None) -> None:
        self.narrowed = usable
        self._hand_on()

    def _hand_on(self) -> None:
        while self._line and self.taken < self.usable:
            turn = self._line.popleft()
            if not turn.done():
                self.taken += 1
                turn.set_result(None)


GIT_COMMANDS = tuple(f"git {verb}" for verb in ("status", "diff", "log", "add", "commit", "rebase"))
"""What an agent needs to commit and to rebase in its own worktree."""


@dataclass(slots=True, kw_only=True)
class RunContext:
    config: ProjectConfig
    root: Path
    state: Path
    repository: Repository
    worktrees: Worktrees
    source: TaskSource
    ledger: Ledger
    governor: Governor
    runtime: Runtime
    pool: str
    terms: ProjectTerms
    watch: ProcessWatch
    landing: Landing
    base_gate: BaseGate
    pulls: PullLanding
    places: RunSlots
    purse: BudgetGuard
    account: Account
    fence: GuardedLauncher
    model: str = ""
    """For every task, whatever it says itself."""
    default_model: str = ""
    tasks: Mapping[str, Task] = field(default_factory=dict)
    """As they were read last."""
    said: Callable[[str], None] = lambda _: None
    """What the people around the run should know."""
    started_at: float = field(default=0.0)
    """Loop time of the last launch; starts are staggered from it."""

    @property
    def project(self) -> str:
        return self.config.project.id

    def route_for(self, task: Task, stage: str = IMPLEMENT, *, last_try: bool = False) -> Route:
        """Which model a launch for the task asks for; UsageError where the project does not allow it."""
        wished = {"flag": self.model, "run_default": self.default_model}
        return route_of(self.config, task, stage, last_try=last_try, **wished)

    def budgets_for(self, task: Task) -> Budgets:
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

    def policy_for(self, task: Task) -> LandingPolicy:
        """How green work lands: as its own label says, one of its parents, or the project."""
        lineage = (task, *ancestors(task, self.tasks))
        return policy_of(lineage, otherwise=self.config.merge.policy)

    def goes_by_pull(self, task: Task) -> bool:
        """Is its work to become a pull request?"""
        return self.policy_for(task).name == PR

    def ceilings(self, task: str | None = None) -> AgentLimits:
        """Of one agent; for a task also what its budget and the run's leave it."""
        agent = self.config.agent
        own, left = agent.max_cost_usd, self.purse.ceiling_for(task) if task is not None else None
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

    async def staggered(self) -> None:
        """Wait until the next agent may start."""
        loop = asyncio.get_running_loop()
        while (wait_s := self.started_at + self.config.run.stagger_s - loop.time()) > 0:
            await asyncio.sleep(wait_s)
        self.started_at = loop.time()

    def close(self) -> None:
        self.watch.close()
        self.ledger.close()
        self.governor.close()


def route_of(
    config: ProjectConfig,
    task: Task,
    stage: str = IMPLEMENT,
    *,
    flag: str = "",
    run_default: str = "",
    last_try: bool = False,
) -> Route:
    """Which model a launch asks for, where a run says ``flag`` for all and ``run_default`` for the rest."""
    models, agent = config.models, config.agent
    own = {IMPLEMENT: agent.model} if agent.model else {}
    routing = Routing(
        runtime=agent.runtime,
        flag=flag,
        run_default=run_default,
        stages={**models.stages, **own},
        allowed=models.allowed,
        names=models.names.get(agent.runtime, {}),
        upgrade=models.upgrade,
    )
    return resolve(routing, stage, task.labels, last_try=last_try)


def open_workshop(
    root: Path,
    config: ProjectConfig,
    *,
    run: str,
    width: int | None = None,
    model: str = "",
    default_model: str = "",
    guard: str | None = None,
    allow_api_spend: bool = False,
    check_base: bool = True,
) -> RunContext:
    """Open a project for work, inside the running loop."""
    account = open_account(config, home())
    payer = payer_of(account)
    api_key = api_key_for(config, payer, wanted=allow_api_spend)
    quiet = guard_of(guard, config.budget.guard) is BudgetAction.OFF
    in_files = config.tasks.folder if config.tasks.source == "files" else None
    repository = Repository(root, default_branch=config.project.default_branch, tasks_folder=in_files)
    state = state_folder(root)
    environment = gate_environment(os.environ, names=config.gate.env)
    worktrees = Worktrees(
        repository=repository,
        folder=worktrees_folder(root, config),
        bootstrap=config.worktree.bootstrap,
        bootstrap_timeout_s=config.worktree.bootstrap_timeout_s,
        copy=config.worktree.copy,
        sandboxed=config.guard.sandbox == "bwrap",
        env=environment,
    )
    ledger, watch = Ledger(state, run=run), ProcessWatch()
    source = open_source(config, root)
    gate = GateRunner(
        commands=config.gate.commands or [],
        timeout_s=config.gate.timeout_s,
        env=environment,
        ledger=ledger,
        watch=watch,
        green=state / "green.json",
    )
    protected = protected_paths(config, root)
    fitness = Fitness(
        repository=repository,
        worktrees=worktrees,
        protected=protected,
        signed=config.merge.signed,
        submodules=config.merge.submodules,
    )
    landing = Landing(
        repository=repository,
        worktrees=worktrees,
        source=source,
        ledger=ledger,
        gate=gate,
        laying=Rebaser(
            place=LandingWorktree(repository, worktrees, source),
            ledger=ledger,
            fitness=fitness,
            squash=config.merge.squash,
        ),
        branch=DefaultBranch(
            repository,
            UserCheckout(repository, state, tasks_folder=in_files, worktrees=worktrees.folder),
            ledger,
            push=config.merge.push,
        ),
        fitness=fitness,
        state=state,
        batch=config.merge.batch,
    )
    return RunContext(
        config=config,
        root=root,
        state=state,
        repository=repository,
        worktrees=worktrees,
        source=source,
        ledger=ledger,
        governor=Governor(),
        runtime=load(config.agent.runtime),
        pool=pool_for(config),
        terms=ProjectTerms(
            id=config.project.id,
            default_branch=repository.default,
            gate=config.gate.commands or [],
            protected=protected,
            text=_prompt_text(root, config),
        ),
        watch=watch,
        landing=landing,
        base_gate=BaseGate(
            landing=landing, state=state, wanted=bool(gate.commands) and check_base and config.gate.check_base
        ),
        pulls=PullLanding(landing=landing, host=lambda: host_of(root, config.merge.host)),
        places=RunSlots(width or config.run.width),
        purse=BudgetGuard(
            payer=payer,
            budget=config.budget,
            ledger=ledger,
            lookout=None if quiet else Lookout(payer, home(), own=state),
            guard=guard,
            api_key=api_key,
        ),
        account=account,
        fence=GuardedLauncher(
            guards=Guards(home()),
            part=config.guard,
            repository=repository,
            state=state,
            runtime=config.agent.runtime,
            config_dir=account.profile.folder if account.profile is not None else None,
        ),
        model=model,
        default_model=default_model,
    )


def worktrees_folder(root: Path, config: ProjectConfig) -> Path:
    """Outside the checkout: tools that look for their configuration upwards must not find the user's."""
    named = config.worktree.folder
    return (root / Path(named).expanduser()).resolve() if named else home() / "worktrees" / config.project.id


def protected_paths(config: ProjectConfig, root: Path) -> tuple[str, ...]:
    gate = files_named_in(config.gate.commands or (), root) if config.gate.protect else ()
    named = (*DEFAULT_PROTECTED, f"{config.tasks.folder.rstrip('/')}/", *config.merge.protected, *gate)
    return tuple(dict.fromkeys(named))


def pool_for(config: ProjectConfig) -> str:
    agent = config.agent
    models: Mapping[str, list[str]] = {"opencode": ["--model", agent.model]} if agent.model else {}
    return agent.pool or pool_of([agent.runtime, *models.get(agent.runtime, [])], agent.runtime)


def _prompt_text(root: Path, config: ProjectConfig) -> str:
    if not config.prompt.file:
        return config.prompt.text
    try:
        return (root / config.prompt.file).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"cannot read prompt.file {config.prompt.file} ({error})") from error
