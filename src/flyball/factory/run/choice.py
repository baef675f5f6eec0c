"""Which tasks start now, and why each other one waits: one chooser for a run, ``--dry-run`` and ``task why``.

A run gives it what is under way. Where none is going on, ``leftovers`` says what a run that begins now
would go on with and hold back. So a task waits for the same reason wherever it is asked about.

A task that cannot be paid for now is not a task without room. It is told apart, because the run must
neither end over it nor start it; others that can be paid for go first meanwhile.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass, field, replace
from types import MappingProxyType

from flyball.core.budget.limits import Refusal
from flyball.core.tasks.labels import MANUAL
from flyball.core.tasks.next_step import lands_again, may_let_go
from flyball.core.tasks.readiness import DeferReason, ReadyTask, TaskIndex
from flyball.core.tasks.scheduler import RunningTask, Selection, choose
from flyball.core.tasks.task import Task, TaskStatus
from flyball.core.tasks.task_run import State, TaskRecord
from flyball.errors import StoreError, UsageError
from flyball.factory.budget.guard import BudgetGuard
from flyball.factory.run.options import RunRequest
from flyball.factory.run.policy import RunPolicy
from flyball.factory.state.ledger import Ledger
from flyball.stores.port import Store

_NONE: Mapping[str, str] = MappingProxyType({})
_LANDING_BACKLOG = 4
"""So many times the width may be waiting to land before no more is started."""
_ROUNDS = 8
"""So often others are looked for in the place of those that cannot be paid for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Chooser:
    """The tasks, and everything that decides which of them may start."""

    index: TaskIndex
    request: RunRequest
    capacity: Mapping[str, int]
    """Machine-wide resources, and how much there is of each."""
    merged: Collection[str]
    active: Sequence[ReadyTask]
    """What is under way, or would be gone on with."""
    parked: Mapping[str, str] = field(default_factory=dict)
    blocked: Mapping[str, str] = field(default_factory=dict)
    left: Mapping[str, str] = field(default_factory=dict)
    """By task, why it is not started again now."""
    passed: Mapping[str, int] = field(default_factory=dict)

    def choose(self, room: int, unpaid: Mapping[str, str] = _NONE) -> Selection:
        return choose(
            self.index,
            active=[RunningTask(each.task.id, each.footprint, each.resources) for each in self.active],
            room=room,
            capacity=self.capacity,
            held={**unpaid, **self.left, **self.parked, **self.blocked},
            merged=self.merged,
            ours={each.task.id for each in self.active} | self.blocked.keys() | self.left.keys(),
            only=self.request.only or None,
            parent=self.request.parent,
            passed=self.passed,
        )

    def choose_paid(
        self, room: int, budget: BudgetGuard, policy: RunPolicy
    ) -> tuple[Selection, Refusal | None]:
        """The choice among those that can be paid for; why something that is ready is not, if so."""
        hold = budget.hold if room else None
        if hold is not None:
            choice = self.choose(0)
            deferrals = tuple(
                each._replace(reason=DeferReason.BUDGET, words=hold.words)
                if each.reason is DeferReason.ROOM
                else each
                for each in choice.deferrals
            )
            held = any(each.reason is DeferReason.BUDGET for each in deferrals)
            return replace(choice, deferrals=deferrals), hold if held else None
        unpaid: dict[str, str] = {}
        short: Refusal | None = None
        for _ in range(_ROUNDS):
            choice = self.choose(room, unpaid)
            refused = _refusals([item.task for item in choice.items], budget, policy)
            if not refused:
                break
            short = next(iter(refused.values()))
            unpaid |= {task: why.words for task, why in refused.items()}
        deferrals = tuple(
            each._replace(reason=DeferReason.BUDGET)
            if each.reason is DeferReason.HELD and each.task_id in unpaid
            else each
            for each in choice.deferrals
        )
        items = tuple(item for item in choice.items if item.task.id not in unpaid)
        return replace(choice, items=items, deferrals=deferrals), short


def _refusals(tasks: Sequence[Task], budget: BudgetGuard, policy: RunPolicy) -> dict[str, Refusal]:
    """Those that do not fit beside the ones before them."""
    beside_usd, refused = 0.0, {}
    for task in tasks if budget.enforces else ():
        try:
            model = policy.route_for(task).model
        except UsageError:
            # Its task run says what is wrong with it.
            continue
        why = budget.refusal(task.id, task.type, model, beside_usd=beside_usd)
        if why is None:
            beside_usd += budget.estimate(task.type, model).cost_usd.p50
        else:
            refused[task.id] = why
    return refused


def room_beside(usable: int, *, starting: int, under_way: int) -> int:
    """How many more may start, where ``starting`` have or want an agent and all others only land."""
    return max(0, min(usable - starting, (1 + _LANDING_BACKLOG) * usable - under_way))


def item_for(index: TaskIndex, task_id: str) -> ReadyTask:
    """A task that may be gone meanwhile: then nothing is known of what it touches."""
    return index.items.get(task_id) or ReadyTask(Task(id=task_id, title=task_id), None)


def machine_resources(opened: Callable[[], AbstractContextManager[Store]]) -> Mapping[str, int]:
    """How much there is of each; empty if the state cannot be read."""
    with suppress(StoreError), opened() as store:
        return dict(store.machine().resources)
    return {}


@dataclass(frozen=True, slots=True, kw_only=True)
class Leftovers:
    """What earlier runs left behind, sorted by what a run that begins now does with it. By task."""

    resumed: Mapping[str, TaskRecord]
    """Cut short, and gone on with."""
    closed: Mapping[str, TaskRecord]
    """Cut short, and closed by a person meanwhile: let go."""
    left_out: Mapping[str, TaskRecord]
    """Cut short, and not what this run was asked for."""
    landed_again: Mapping[str, TaskRecord]
    """Only something outside kept it from landing: a new run is a person's word that this was mended."""
    parked: Mapping[str, str]
    blocked: Mapping[str, str]
    """Blocked earlier in the very run that is gone on with. Otherwise a new run tries it again."""


def leftovers(
    ledger: Ledger,
    tasks: Mapping[str, Task],
    request: RunRequest,
    policy: RunPolicy,
) -> Leftovers:
    resumed, closed, left_out = {}, {}, {}
    for task_id, record in ledger.records.items():
        task = tasks.get(task_id) or Task(id=task_id, title=task_id)
        if record.final:
            continue
        if task.status is TaskStatus.CLOSED and may_let_go(record):
            closed[task_id] = record
        elif request.wants(task, tasks):
            resumed[task_id] = record
        else:
            left_out[task_id] = record
    again, parked = {}, {}
    still_open = {name: task for name, task in tasks.items() if task.status is not TaskStatus.CLOSED}
    for task_id, record in ledger.runs_in(State.PARKED).items():
        if task_id not in still_open:
            continue
        task = still_open[task_id]
        if (
            lands_again(record)
            and request.wants(task, tasks)
            and policy.landing_policy(task, tasks).name != MANUAL
        ):
            again[task_id] = record
        else:
            parked[task_id] = record.reason
    blocked = {
        task_id: record.reason
        for task_id, record in ledger.runs_in(State.BLOCKED).items()
        if task_id in still_open and record.run == ledger.run
    }
    return Leftovers(
        resumed=resumed,
        closed=closed,
        left_out=left_out,
        landed_again=again,
        parked=parked,
        blocked=blocked,
    )
