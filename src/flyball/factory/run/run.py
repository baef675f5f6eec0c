"""The loop: ready tasks become task runs, as many at once as the width and the pool allow.

Nothing is polled. The loop sleeps until something happens: a task run moved, a task file changed, a person
asked for something. Then it takes up requests, looks at the tasks if they may have changed, chooses, and
starts what was chosen. Landings and gates run inside their task runs and hold up no other.

A run is over when nothing is ready and nothing is under way. What is left is named with its reason.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from contextlib import nullcontext

from flyball.core.tasks.next_step import Action, Decision
from flyball.core.tasks.readiness import DeferReason, ReadyTask
from flyball.core.tasks.scheduler import Selection
from flyball.core.tasks.task_run import State, Step, TaskRecord
from flyball.errors import UsageError
from flyball.factory.run.budget_stop import BudgetStop
from flyball.factory.run.choice import Chooser, Leftovers, item_for, leftovers, machine_resources, room_beside
from flyball.factory.run.context import RunContext
from flyball.factory.run.options import RunReport, RunRequest
from flyball.factory.run.pool_demand import PoolStanding
from flyball.factory.run.task_run import TaskRun
from flyball.factory.run.task_view import LOOK_EVERY_S, TaskView
from flyball.factory.state.blocking_calls import run_in_thread
from flyball.governor.internals import internals

_LOOK_AT_POOL_S = 5.0
_ASK_ORIGIN_S = 30.0
"""A run that begins waits no longer than this for an origin that does not answer."""
_PARKED_LIMIT = 2
"""Task runs that wait for a slot. More would only hold footprints that others could use."""
_DEAD_ENDS = frozenset(
    {DeferReason.NEEDS, DeferReason.CIRCLE, DeferReason.RESOURCE, DeferReason.FOOTPRINT, DeferReason.TURN}
)

_IN_THE_WAY = frozenset({DeferReason.FOOTPRINT, DeferReason.RESOURCE, DeferReason.TURN, DeferReason.BUDGET})


class Run:
    """One run of one project, on the running loop."""

    def __init__(self, context: RunContext, request: RunRequest) -> None:
        self.context, self.request = context, request
        self.policy, self.project, self.landings = context.policy, context.project, context.landings
        self.places, self.budget = context.places, context.budget
        self.task_runs: dict[str, TaskRun] = {}
        self.report = RunReport()
        self.choice = Selection((), ())
        self.pool = PoolStanding(context.launcher, context.project.id, context.places)
        self.budget_stop = BudgetStop(context)
        self.connect()
        self._wake = asyncio.Event()
        context.places.on_change = context.budget.told = self._wake.set
        context.launcher.note = self.report.note
        context.landings.base_gate.told = self._note_base
        self.view = TaskView(
            context.project,
            context.policy.config.areas,
            context.launcher.watch,
            changed=self.wake,
            note=self.report.note,
        )
        self._capacity: Mapping[str, int] = {}
        self._waves = 0
        self._shut_out_since: float | None = None
        self._failed: BaseException | None = None

    # -- from outside ---------------------------------------------------------------------------------

    def connect(
        self,
        *,
        changed: Callable[[], None] = lambda: None,
        requests: Callable[[Run], None] = lambda _: None,
        nudges: Callable[[str], list[str]] = lambda _: [],
    ) -> None:
        """Set what is called on a change, what takes up requests, and where messages for agents come from."""
        self._changed, self._requests, self._nudges = changed, requests, nudges

    def wake(self) -> None:
        self._wake.set()

    def drain(self, why: str) -> None:
        """Start nothing more; let what runs finish and land."""
        self.report.stopped = self.report.stopped or why
        for task_run in list(self.task_runs.values()):
            task_run.leave()
        self.wake()

    def stop(self, why: str) -> None:
        """Pause: end the agents and keep everything; the next run goes on from here."""
        self.report.stopped = why
        for task_run in list(self.task_runs.values()):
            task_run.stop()
        self.wake()

    def pause(self, why: str) -> None:
        """End the agents and keep everything; what is being landed may land."""
        self.report.paused = why
        for task_run in list(self.task_runs.values()):
            if task_run.record.state in (State.ENDED, State.LANDING):
                task_run.leave()
            else:
                task_run.stop()
        self.wake()

    def _note_base(self) -> None:
        """Where the gate is red before any work was added, no agent is started; what runs finishes and
        lands."""
        base = self.landings.base_gate
        if base.untried:
            self.report.note(f"the gate could not be tried on the base: {base.untried}")
        if base.red is not None:
            self.report.red_base = base.red
            for task_run in list(self.task_runs.values()):
                task_run.leave()
        self.wake()

    def resize(self, width: int) -> None:
        self.places.resize(width)
        self.wake()

    @property
    def ending(self) -> bool:
        report = self.report
        return bool(report.stopped or report.paused or report.red_base or self._failed)

    # -- the loop -------------------------------------------------------------------------------------

    async def go(self) -> RunReport:
        self._capacity = await run_in_thread(
            machine_resources, lambda: nullcontext(internals(self.context.launcher.governor).store)
        )
        try:
            await self.view.load()
            self._check_names()
            if loud := await self.budget_stop.open():
                self.report.note(loud)
            for words in await run_in_thread(self._ask_origin):
                self.report.note(words)
            await self._recover()
            while not await self._round():
                await self._sleep()
        finally:
            await self._close()
        if self._failed is not None:
            raise self._failed
        return self._complete_report()

    def _ask_origin(self) -> list[str]:
        """What others pushed is where work starts; says what the user should know of their own commits."""
        branch, notes = self.landings.landing.branch, list[str]()
        branch.fetch(notes, must=False, timeout_s=_ASK_ORIGIN_S)
        tips = branch.repository.tips()
        if branch.push and (own := branch.own_commits(tips.remote, tips.local)):
            notes.append(
                f"origin has not {own} of {branch.name}; merge.push is on, a landing pushes them too"
            )
        return notes

    def _check_names(self) -> None:
        known = {task.id for task in self.view.loaded.tasks}
        asked = (*self.request.only, *([self.request.parent] if self.request.parent else []))
        unknown = [name for name in asked if name not in known]
        if unknown:
            raise UsageError(f"there is no task {' or '.join(unknown)}; flyball task list shows them")

    async def _round(self) -> bool:
        """One look at everything; True when the run is over."""
        self._wake.clear()
        self._requests(self)
        await self.budget_stop.look()
        if not self.ending and (spent := self.budget.pause):
            self.pause(spent)
        if not self.ending:
            await self._start_more()
            self._lose_patience()
        self._changed()
        # Woken meanwhile: the last task run ended after the choice was made, which may be another one now.
        done = not self.choice.items and not self._wake.is_set() and self.budget_stop.short is None
        return not self.task_runs and (self.ending or done)

    def _lose_patience(self) -> None:
        """Pause where nothing has gone on for long but waiting for a closed pool or for money."""
        shut_out = [task_run.shut_out for task_run in self.task_runs.values() if task_run.shut_out]
        short = self.budget_stop.short
        shut_out += [short.words] if short is not None else []
        begins = bool(self.choice.items) and self.landings.base_gate.pending
        if begins or not shut_out or any(task_run.busy for task_run in self.task_runs.values()):
            self._shut_out_since = None
            return
        now, patience_s = asyncio.get_running_loop().time(), self.policy.config.run.patience_s
        self._shut_out_since = self._shut_out_since or now
        # A reset that is further away than that is not waited for at all.
        hopeless = self.budget_stop.beyond(patience_s)
        if hopeless or now - self._shut_out_since >= patience_s:
            self.report.paused = shut_out[0]
            self.drain(shut_out[0])

    async def _sleep(self) -> None:
        looks = (
            self.pool.refresh_in_s,
            self.budget.refresh_in_s,
            LOOK_EVERY_S if self.view.blind else None,
            _LOOK_AT_POOL_S if any(task_run.shut_out for task_run in self.task_runs.values()) else None,
        )
        due = [due_s for due_s in looks if due_s]
        try:
            await asyncio.wait_for(self._wake.wait(), min(due, default=None))
        except TimeoutError:
            self.view.stale |= self.view.blind

    async def _start_more(self) -> None:
        if self.view.stale:
            await self.view.load()
        if self.task_runs and self.request.mode == "wave":
            return
        room = 0 if self.request.once and self._waves else self._room()
        self.choice = self.budget_stop.choose(self._chooser(), room)
        if self.choice.items and self.landings.base_gate.pending:
            self.landings.base_gate.start()
            return
        await self.pool.demand(bool(self.choice.items or self.task_runs))
        for item in self.choice.items:
            self._begin(item)
        if self.choice.items:
            self._waves += 1
            await self.pool.look()
            # Once more, so that the tasks that wait say what they wait for now.
            self.wake()

    def _room(self) -> int:
        """How many more may start now."""
        task_runs = self.task_runs.values()
        if sum(task_run.parked_in_pool for task_run in task_runs) >= _PARKED_LIMIT:
            return 0
        starting = sum(task_run.wants_place for task_run in task_runs)
        return room_beside(self.places.usable, starting=starting, under_way=len(task_runs))

    def _chooser(self) -> Chooser:
        return Chooser(
            index=self.view.index,
            request=self.request,
            capacity=self._capacity,
            merged=self.view.merged,
            active=[task_run.item for task_run in self.task_runs.values()],
            parked=self.report.parked,
            blocked=self.report.blocked,
            left=self.report.left,
            passed=self.choice.passed,
        )

    # -- task runs ----------------------------------------------------------------------------------------

    def _begin(self, item: ReadyTask) -> None:
        task_id = item.task.id
        record = self.project.ledger.load_task(task_id)
        # Sent back by a person while this run goes on: it is claimed already, and knows what was said.
        if record is None or record.final:
            self.project.ledger.note(task_id, Step.CLAIM)
        self.start(TaskRun(self.context, item, changed=self._changed, nudges=self._nudges))

    def new_task_run(self, task_id: str) -> TaskRun:
        """A new task run for what a person wants of a task, which may be gone."""
        item = item_for(self.view.index, task_id)
        return TaskRun(self.context, item, changed=self._changed, nudges=self._nudges)

    def start(self, task_run: TaskRun) -> None:
        self.task_runs[task_run.task.id] = task_run
        if self.ending:
            task_run.leave()
        task_run.start().add_done_callback(lambda done: self._finish(task_run, done))

    def _finish(self, task_run: TaskRun, done: asyncio.Task[None]) -> None:
        del self.task_runs[task_run.task.id]
        for words in task_run.notes:
            self.report.note(words)
        failure = None if done.cancelled() else done.exception()
        if failure is not None:
            self._failed = self._failed or failure
            self.drain(str(failure) or type(failure).__name__)
        if task_run.paused:
            self.report.paused = task_run.paused
            self.drain(task_run.paused)
        if not task_run.dropped or task_run.record.state is State.MERGED:
            self._record(task_run.record, task_run.stopped)
        self.wake()

    def _record(self, record: TaskRecord, stopped: str) -> None:
        if record.denials:
            self.report.denials[record.task] = list(record.denials)
        if record.state is State.MERGED:
            self.report.merged.append(record.task)
            self.view.merged.add(record.task)
            self.view.stale = True
        elif record.state is State.PARKED:
            self.report.parked[record.task] = record.reason
        elif record.state is State.BLOCKED:
            self.report.blocked[record.task] = record.reason
        elif record.state is State.CHECKING:
            self.report.left[record.task] = "its work is done and still to be checked"
        else:
            self.report.left[record.task] = stopped or record.reason or f"it was {record.state.value}"

    async def _recover(self) -> None:
        """Go on with what an engine before us left behind."""
        # Slots of agents that died unseen come back now, not when an ask needs them.
        await run_in_thread(self.context.launcher.governor.reap)
        found = leftovers(self.project.ledger, self.project.tasks, self.request, self.policy)
        cut_short = {**found.closed, **found.left_out, **found.resumed}
        if self.request.resume and not cut_short:
            self.report.note("nothing was cut short; this is a new run")
        await self._clear_the_way(cut_short.values())
        await self._resume(found)
        self._hold_back(found)

    async def _clear_the_way(self, cut_short: Iterable[TaskRecord]) -> None:
        """Before anything lands: gates would meet in one worktree, and two that bring one checkout along put
        each other's files back. All gates at once: each may take its time."""
        gate = self.landings.landing.gate
        await asyncio.gather(*(gate.end_leftover(record) for record in cut_short))
        await self.landings.landing.catch_up()
        await self._close_landed()

    async def _resume(self, found: Leftovers) -> None:
        for task_id in found.closed:
            self.report.note(await self.new_task_run(task_id).let_go())
        for task_id, record in found.left_out.items():
            words = f"{task_id} was cut short earlier ({record.state.value}) and is left out of this run"
            self.report.note(words)
        for task_id in found.resumed:
            task_run = self.new_task_run(task_id)
            task_run.first = await task_run.first_step(known=task_id in self.project.tasks)
            self.start(task_run)

    def _hold_back(self, found: Leftovers) -> None:
        """What is over is not begun again, but may land again."""
        for task_id in found.landed_again:
            self.project.ledger.load_task(task_id)
            task_run = self.new_task_run(task_id)
            task_run.first = Decision(move=Action.LAND)
            self.start(task_run)
        self.report.parked |= found.parked
        self.report.blocked |= found.blocked

    async def _close_landed(self) -> None:
        """Close what has landed earlier and could not be closed then."""
        still_open = self.view.still_open
        known = {task.id for task in self.view.loaded.tasks}
        for task_id in sorted(self.project.ledger.unreported_tasks() & known):
            failed = await self.landings.landing.tell_again(task_id)
            if task_id in still_open:
                self.report.note(failed or f"{task_id} had landed, and is closed now")

    # -- one task, and nothing else -------------------------------------------------------------------

    async def go_alone(self, act: Callable[[Run], object]) -> RunReport:
        """Do with one task what a person asks for; nothing else is started."""
        try:
            await self.view.load()
            act(self)
            while self.task_runs:
                self._wake.clear()
                self._changed()
                await self._wake.wait()
        finally:
            await self._close()
        if self._failed is not None:
            raise self._failed
        return self.report

    # -- the end --------------------------------------------------------------------------------------

    async def _close(self) -> None:
        for task_run in list(self.task_runs.values()):
            task_run.stop()
        await self.landings.base_gate.close()
        while self.task_runs:
            await asyncio.sleep(0.02)
        await self.pool.demand(False)

    def _complete_report(self) -> RunReport:
        report = self.report
        report.problems = self.view.loaded.problems
        report.spend = self.budget.run_spend
        if self.ending:
            undone = self._chooser().choose(len(self.view.loaded.tasks))
            waits = [each.task_id for each in undone.deferrals if each.reason in _IN_THE_WAY]
            report.unstarted = [*(item.task.id for item in undone.items), *waits]
        else:
            report.waiting = [each for each in self.choice.deferrals if each.reason in _DEAD_ENDS]
        return report
