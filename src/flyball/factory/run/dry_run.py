"""What a run would do now, found out without doing anything.

The run's own chooser is asked (``choice.py``), about what a run that begins now would find. Beside that it
says what would be in the way later: a landing that needs a host which cannot be asked.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from flyball.core.budget.limits import BudgetAction
from flyball.core.pool.settings import Counting, PoolChanges
from flyball.core.tasks.labels import AUTO, PR
from flyball.core.tasks.readiness import TaskIndex
from flyball.core.tasks.task import TaskStatus
from flyball.core.tasks.task_run import State
from flyball.errors import GitError
from flyball.factory.accounts.account import open_account
from flyball.factory.budget.api_key import api_key_for
from flyball.factory.budget.guard import BudgetGuard
from flyball.factory.budget.monitor import UsageMonitor
from flyball.factory.budget.port import billing_account
from flyball.factory.budget.shared_windows import windows_to_read
from flyball.factory.budget.unmeasurable import unmeasurable
from flyball.factory.git.git import Git
from flyball.factory.git.repository import Repository
from flyball.factory.landing.hosts.port import PullError
from flyball.factory.landing.hosts.registry import find_host
from flyball.factory.project.config import ProjectConfig
from flyball.factory.run.choice import (
    Chooser,
    Leftovers,
    item_for,
    leftovers,
    machine_resources,
    room_beside,
)
from flyball.factory.run.options import RunOptions, RunRequest
from flyball.factory.run.policy import RunPolicy, agent_command, pool_for
from flyball.factory.run.task_view import landed_tasks
from flyball.factory.state.ledger import Ledger
from flyball.factory.state.run_folders import STATE
from flyball.factory.tasks.registry import open_source
from flyball.gateway.agent_calls import NotCounted, choose_counting
from flyball.gateway.agents_pool import agents_pool
from flyball.governor.state_url import home, open_reader, resolve

_NAMED = 5
_WITH_AGENT = frozenset({State.CLAIMED, State.READY, State.RUNNING})
"""A task run that was cut short here takes a place in the width at once."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Start:
    task: str
    title: str
    priority: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Wait:
    task: str
    reason: str
    words: str
    blocker: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class DryRun:
    project: str
    pool: str
    mode: str
    width: int
    resumes: dict[str, str] = field(default_factory=dict)
    """Cut short earlier, with the state in which each was left."""
    starts: list[Start] = field(default_factory=list)
    waits: list[Wait] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    """What would keep work from being started or landed: money, a host that cannot be asked."""


def plan_run(
    root: Path, config: ProjectConfig, request: RunRequest, options: RunOptions | None = None
) -> DryRun:
    with _ledger_to_read(root) as ledger:
        return _Planner(root, config, request, options or RunOptions(), ledger).plan()


@contextmanager
def _ledger_to_read(root: Path) -> Iterator[Ledger]:
    """The ledger, to read; an empty one where no run has ever written any."""
    try:
        ledger = Ledger(root / STATE, read_only=True)
    except FileNotFoundError:
        ledger = Ledger(None)
    try:
        ledger.load()
        # What was cut short is gone on with under its own name, and pays from its own budget.
        ledger.run = next(reversed(ledger.records.values())).run if ledger.records else "new"
        yield ledger
    finally:
        ledger.close()


class _Planner:
    def __init__(
        self, root: Path, config: ProjectConfig, request: RunRequest, options: RunOptions, ledger: Ledger
    ) -> None:
        self._root, self._config, self._request, self._options, self._ledger = (
            root,
            config,
            request,
            options,
            ledger,
        )
        self._policy = RunPolicy(config=config, model=options.model, default_model=options.default_model)
        self._source = open_source(config, root)
        self._loaded = self._source.load()
        self._tasks = {task.id: task for task in self._loaded.tasks}

    def plan(self) -> DryRun:
        config, budget = self._config, self._budget_now()
        width = self._options.width or config.run.width
        found = leftovers(self._ledger, self._tasks, self._request, self._policy)
        resumed = {task: record.state.value for task, record in found.resumed.items()}
        resumed |= dict.fromkeys(found.landed_again, "finished and not landed")
        # Where the money allows no agent, the task that would be first is told why.
        room = room_beside(
            min(width, max(1, budget.width(width))),
            starting=sum(record.state in _WITH_AGENT for record in found.resumed.values()),
            under_way=len(resumed),
        )
        choice, _ = self._chooser(found).choose_paid(room, budget, self._policy)
        unmeasured = unmeasurable(config, home())
        under_way = [*resumed, *(item.task.id for item in choice.items)]
        return DryRun(
            project=config.project.id,
            pool=self._pool(),
            mode=self._request.mode,
            width=width,
            resumes=resumed,
            starts=[
                Start(task=item.task.id, title=item.task.title, priority=item.task.priority)
                for item in choice.items
            ],
            waits=[
                Wait(task=each.task_id, reason=each.reason.value, words=each.words, blocker=each.blocker)
                for each in choice.deferrals
                if each.task_id not in under_way
            ],
            problems=[
                *(str(each) for each in unmeasured if each.refuses(budget.guard)),
                *(f"{each.where}: {each.words}" for each in self._loaded.problems),
            ],
            notes=[
                *(str(each) for each in unmeasured if not each.refuses(budget.guard)),
                *budget.notes(width),
                *self._hosts(under_way),
            ],
        )

    def _chooser(self, found: Leftovers) -> Chooser:
        index = TaskIndex(self._loaded.tasks, areas=self._config.areas)
        repository = Repository(self._root, default_branch=self._config.project.default_branch)
        still_open = {task.id for task in self._tasks.values() if task.status is not TaskStatus.CLOSED}
        return Chooser(
            index=index,
            request=self._request,
            capacity=machine_resources(lambda: closing(open_reader(resolve()))),
            merged=landed_tasks(self._ledger, self._source, repository, still_open),
            active=[item_for(index, task_id) for task_id in (*found.resumed, *found.landed_again)],
            parked=found.parked,
            blocked=found.blocked,
        )

    # -- the money ------------------------------------------------------------------------------------------

    def _budget_now(self) -> BudgetGuard:
        """As a run would find it now. What it finds out is kept nowhere."""
        config, options = self._config, self._options
        payer = billing_account(open_account(config, home()))
        budget = BudgetGuard(
            payer=payer,
            budget=config.budget,
            ledger=self._ledger,
            monitor=None,
            guard=options.guard,
            api_key=api_key_for(config, payer, wanted=options.allow_api_spend),
        )
        if budget.guard is not BudgetAction.OFF:
            shared = windows_to_read(pool_for(config), payer.name)
            monitor = UsageMonitor(payer, home(), own=self._root / STATE, shared=shared)
            if monitor.has_limits:
                monitor.refresh_now()
            budget.standings = monitor.standings
        return budget

    # -- where agents hold a slot ---------------------------------------------------------------------------

    def _pool(self) -> str:
        config, pool = self._config, pool_for(self._config)
        with closing(open_reader(resolve())) as reader:
            named = reader.named_settings().get(pool, PoolChanges())
        counted = choose_counting(
            Counting(named.get("counts", Counting.AUTO.value)),
            runtime=config.agent.runtime,
            argv=agent_command(config),
            env=open_account(config, home()).environment({}),
            folder=self._root,
        )
        return pool if isinstance(counted, NotCounted) else agents_pool(resolve())

    # -- where it would land --------------------------------------------------------------------------------

    def _hosts(self, task_ids: Iterable[str]) -> Iterator[str]:
        """Whose work would be finished, and then could not go where it is to go."""
        config = self._config
        tasks = [self._tasks[each] for each in task_ids if each in self._tasks]
        policies = {task.id: self._policy.landing_policy(task, self._tasks).name for task in tasks}
        if pulled := [task for task, policy in policies.items() if policy == PR]:
            try:
                find_host(self._root, config.merge.host)
            except (PullError, GitError) as error:
                yield f"no pull request could be opened for {_names(pulled)}: {error}"
        pushed = [task for task, policy in policies.items() if policy == AUTO and config.merge.push]
        if pushed and not Git(self._root).run("remote", "get-url", "origin").ok:
            words = f"merge.push is on, and there is no remote called origin to push {_names(pushed)} to"
            yield f"{words}; git remote add origin ADDRESS"


def _names(tasks: Sequence[str]) -> str:
    return ", ".join(tasks[:_NAMED]) + (f" and {len(tasks) - _NAMED} more" if len(tasks) > _NAMED else "")
