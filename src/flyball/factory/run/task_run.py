"""One task's way through a run: worktree, slot, agent, checks, landing, and again if need be.

The order of things is here; what to do next is decided in ``core/tasks/next_step.py`` and every step is in
the ledger before it happens. A task run ends merged, parked or blocked; or it is left where it stands, and
the next run goes on with it.

    place in the run's width -> worktree -> slot of the pool -> agent -> how it ended
        -> check (stages, review) -> land -> merged                                    ``finish.py``
        -> again: after a pause, with its session or fresh, through admission like every launch
        -> blocked, parked
"""

from __future__ import annotations

import asyncio
import errno
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path

from flyball.core.signals import End
from flyball.core.tasks.labels import PR
from flyball.core.tasks.model_routing import IMPLEMENT
from flyball.core.tasks.next_step import Action, Decision, after_end, may_let_go, on_resume
from flyball.core.tasks.readiness import ReadyTask
from flyball.core.tasks.task_run import Cause, RunPhase, State, Step, TaskRecord
from flyball.errors import AccountError, FlyballError, GitError, InvariantError, StoreError, StoreFullError
from flyball.factory.agents.personas import IMPLEMENTER, find_persona
from flyball.factory.agents.prompt import News, compile_news, compile_prompt
from flyball.factory.agents.watcher import AgentWatcher
from flyball.factory.git.git import full_words
from flyball.factory.git.repository import BRANCHES
from flyball.factory.git.workspace import Workspace
from flyball.factory.landing.default_branch import MovedError
from flyball.factory.run.agent_run import AgentJob, AgentRuns, Instructions, Purpose, ending_fields
from flyball.factory.run.context import RunContext
from flyball.factory.run.finish import Finish
from flyball.factory.run.waiting import WaitKind, Waits
from flyball.factory.state.blocking_calls import run_in_thread
from flyball.governor.launch.supervised_child import exit_code, refusal
from flyball.host.process import alive
from flyball.runtimes.port import Ending
from flyball.runtimes.registry import COMMAND

_OPENINGS: Mapping[Cause | None, str] = {
    Cause.GATE: "The gate was red on your branch",
    Cause.CONFLICT: "Your branch clashes with {branch}: rebase it onto {branch} here, resolve the conflicts",
    Cause.FAILED: "The last try failed",
    Cause.REVIEW: "Your work was looked at and may not land like this",
    Cause.REJECTED: "A person looked at your work and sends it back",
}
_OVER = {Action.MERGED: Step.MERGED, Action.PARK: Step.PARK, Action.BLOCK: Step.BLOCK}
_STOPPED = "the run was stopped"


class TaskRun:
    def __init__(
        self,
        context: RunContext,
        item: ReadyTask,
        *,
        changed: Callable[[], None],
        nudges: Callable[[str], list[str]] = lambda _: [],
    ) -> None:
        self.policy, self.project, self.landings = context.policy, context.project, context.landings
        self.task, self.item, self._budget = item.task, item, context.budget
        self.runtime = context.launcher.runtime.name
        self.first = Decision(move=Action.PREPARE)
        self.waits = Waits(context.launcher.governor, context.places, context.budget, changed=changed)
        self.agents = AgentRuns(
            policy=context.policy,
            project=context.project,
            launcher=context.launcher,
            budget=context.budget,
            task=item.task,
            resources=item.resources,
            waits=self.waits,
            changed=self._agent_changed,
        )
        self.finish = Finish(
            policy=context.policy,
            project=context.project,
            landings=context.landings,
            task=item.task,
            agents=self.agents,
            waits=self.waits,
        )
        self.stopped = ""
        """Why its agent was ended and it is left where it stands."""
        self.dropped = False
        """A person closed its task: what it does is ended, and it is let go."""
        self.paused = ""
        """Why the whole run cannot go on: only a person changes that, or time that is not known."""
        self._changed, self._nudges = changed, nudges
        self._interrupted = False
        self._task: asyncio.Task[None] | None = None

    @property
    def record(self) -> TaskRecord:
        return self.project.ledger.records[self.task.id]

    @property
    def notes(self) -> list[str]:
        """Said to the user, though nothing went wrong."""
        return self.finish.notes

    @property
    def agent(self) -> AgentWatcher | None:
        """What runs for it now: an attempt, a stage, a reviewer."""
        return self.agents.agent

    @property
    def parked_in_pool(self) -> bool:
        return self.waits.parked_in_pool

    @property
    def shut_out(self) -> str:
        return self.waits.shut_out

    @property
    def wants_place(self) -> bool:
        return self.waits.wants_place

    @property
    def busy(self) -> bool:
        """It goes on by itself, and does not wait for others, a reset or money."""
        done = self.record.state in (State.ENDED, State.CHECKING, State.LANDING) and not self.waits.waiting
        return not self.shut_out and (self.waits.placed or done)

    def start(self) -> asyncio.Task[None]:
        self.waits.wants_place = self.first.move is Action.PREPARE
        self._task = asyncio.create_task(self._go(self.first), name=self.task.id)
        return self._task

    # -- being told from outside ----------------------------------------------------------------------

    def leave(self) -> None:
        """Drain: let the agent finish and land, and start none."""
        self.waits.leaving = True
        before = self.record.state in (State.CLAIMED, State.READY)
        waits = self.record.state is State.CHECKING and self.waits.waiting
        if (before or waits) and not self.agents.launching and self._task:
            self._task.cancel()

    def stop(self, why: str = _STOPPED) -> None:
        """Pause: end the agent, keep everything it has done."""
        self.waits.leaving = self.waits.stopping = True
        self.stopped = why
        if self.agent is not None:
            self.agent.stop(why)
        elif not self.agents.launching and self._task is not None:
            self._task.cancel()

    def drop(self) -> None:
        """Its task was closed by a person, who does not want its work to go on."""
        self.dropped = True
        self.stop("its task was closed")

    def interrupt(self) -> None:
        """Have an attempt take up a message at once; stages and reviews get none."""
        if self.agent is not None and self.agents.job is not None and self.agents.job.is_attempt:
            self._interrupted = True
            self.agent.stop("interrupted for a message")

    def _agent_changed(self) -> None:
        if self.agent is not None:
            progress = self.agent.progress
            self._budget.record_progress(self.task.id, progress.cost_usd, progress.windows)
        if self.waits.stopping and self.agent is not None:
            self.agent.stop(self.stopped)
        self._changed()

    # -- the story --------------------------------------------------------------------------------------

    async def _go(self, step: Decision) -> None:
        try:
            while not self.dropped and step.move is not Action.LEAVE and step.move not in _OVER:
                step = await self._take_step(step)
            await self._close(step if not self.dropped else Decision(move=Action.LEAVE))
        except asyncio.CancelledError:
            if not self.waits.leaving:
                raise
        except (StoreError, InvariantError):
            raise
        except (AccountError, MovedError) as error:
            # Nothing may go on under this account, or on top of that branch; the task stays where it stands.
            self.paused = str(error)
        except (FlyballError, OSError) as error:
            if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
                raise StoreFullError(full_words(Path(error.filename or self.project.state))) from error
            await self._close(Decision(move=Action.BLOCK, why=str(error)))
        finally:
            self.waits.give_place_back()
            self.waits.show(None)
        if self.dropped and may_let_go(self.record):
            self.notes.append(await self.let_go())

    async def _take_step(self, step: Decision) -> Decision:
        if step.move in (Action.PREPARE, Action.AGAIN):
            return await self._attempt(step)
        if step.move is Action.REATTACH:
            return await self._judge(await self.agents.reattach(self._job()), found_again=True)
        if step.move is Action.JUDGE:
            return await self._judge_from_files()
        finish = {Action.CHECK: self.finish.check, Action.LAND_ON: self.finish.land_on}
        found = await finish.get(step.move, self.finish.land)()
        self.paused = found.pause
        return found

    async def _close(self, step: Decision) -> None:
        if step.move in _OVER:
            fields = {"reason": step.why, "result": self.finish.result, "said": step.said}
            self.project.ledger.note(self.task.id, _OVER[step.move], **fields)
        if step.move is Action.BLOCK:
            await self._tell_source(self.project.source.unclaim)

    async def _tell_source(self, tell: Callable[[str], None]) -> None:
        """The ledger is what counts: a source that cannot be told now does not stop the task run."""
        with suppress(FlyballError):
            await run_in_thread(tell, self.task.id)

    # -- an attempt -------------------------------------------------------------------------------------

    async def _attempt(self, step: Decision) -> Decision:
        """From wherever it stands to the end of one agent."""
        if step.move is Action.AGAIN:
            self._send_back(step)
            self.paused = step.pause
        if self.waits.leaving or step.pause:
            return Decision(move=Action.LEAVE)
        self.waits.wants_place = False
        await self.waits.until(self.record.until, self.record.reason)
        if self.landings.base_gate.pending:
            self.waits.show(WaitKind.BASE_GATE)
        if await self.landings.base_gate.is_red():
            return Decision(move=Action.LEAVE)
        job = self._job()
        async with self.agents.place(job):
            tree = await self._worktree()
            ran = await self.agents.run(job, lambda: self._instructions(tree.path))
        return await self._judge(ran.ending)

    def _job(self) -> AgentJob:
        """The next attempt. A last try may ask for a larger model."""
        attempts = self.policy.budgets_for(self.task).attempts
        last_try = self.record.backs.failed > 0 and self.record.backs.failed + 1 >= attempts
        route = self.policy.route_for(self.task, last_try=last_try)
        return AgentJob(purpose=Purpose.ATTEMPT, stage=IMPLEMENT, route=route)

    def _instructions(self, tree: Path) -> Instructions:
        record, persona = self.record, find_persona(self.project.root, IMPLEMENTER)
        why_back = ""
        if record.lesson.words:
            opening = _OPENINGS.get(record.lesson.cause, "The last try was stopped")
            why_back = f"{opening.format(branch=self.project.repository.default)}: {record.lesson.words}"
        news = News(attempt=record.attempt, why_back=why_back, nudges=self._nudges(self.task.id))
        if record.agent.session is not None and self.runtime != COMMAND:
            prompt = compile_news(self.task, news)
        else:
            prompt = compile_prompt(self.project.terms, self.task, news, persona=persona.text)
        return Instructions(prompt=prompt, tree=tree, effort=persona.effort, session=record.agent.session)

    def _send_back(self, step: Decision) -> None:
        self.project.ledger.note(
            self.task.id,
            Step.BACK,
            cause=(step.cause or Cause.FAILED).value,
            reason=step.why,
            detail=step.detail,
            until=time.time() + step.wait_s if step.wait_s else 0.0,
            fresh=step.fresh,
        )

    async def _worktree(self) -> Workspace:
        self.waits.show(WaitKind.WORKTREE)
        if not self.record.launches or self.record.cause is Cause.REJECTED:
            await self._tell_source(self.project.source.claim)
        self.project.ledger.note(self.task.id, Step.WORKTREE, RunPhase.BEGUN)
        await run_in_thread(self.landings.landing.branch.check)
        trees, pull = (
            self.project.workspaces,
            self.policy.landing_policy(self.task, self.project.tasks).name == PR,
        )
        tree = await run_in_thread(trees.ensure, self.task.id, recorded=self.record.worktree.base, pull=pull)
        # However long ago a run worked here before: no agent works on a stale checkout.
        tree = await run_in_thread(trees.refresh, tree, pull=pull)
        self.project.ledger.note(
            self.task.id, Step.WORKTREE, worktree=str(tree.path), branch=tree.branch, base=tree.base
        )
        return tree

    # -- the agent's end --------------------------------------------------------------------------------

    async def _judge(self, ending: Ending, *, found_again: bool = False) -> Decision:
        """Write the end down, keep what was done, and say what is next."""
        signal = ending.signal
        self.project.ledger.note(
            self.task.id,
            Step.END,
            **ending_fields(ending),
            signal=signal.kind.value if signal else None,
            retry_after_s=signal.retry_after_s if signal else None,
        )
        if refused := refusal(Path(self.record.agent.process.folder)):
            return Decision(move=Action.BLOCK, why=f"{refused}; see agent.command in flyball.toml")
        # Its commits come over however it ended; what keeps them away is said where the work goes on.
        with suppress(GitError):
            await run_in_thread(self.project.workspaces.take_in, self.task.id)
        if self._interrupted:
            self._interrupted = False
            return Decision(move=Action.AGAIN, cause=Cause.NUDGED, why="a message from a person")
        if ending.session_gone and self.record.agent.session is not None:
            return Decision(move=Action.AGAIN, cause=Cause.INTERRUPTED, why=ending.reason, fresh=True)
        if self.waits.stopping and ending.end is End.KILLED:
            return Decision(move=Action.AGAIN, cause=Cause.INTERRUPTED, why=ending.reason)
        unrecorded = found_again and exit_code(Path(self.record.agent.process.folder)) is None
        return await self._next_after(ending, unrecorded=unrecorded)

    async def _next_after(self, ending: Ending, *, unrecorded: bool = False) -> Decision:
        """Commit what lies around in a finished worktree, and decide."""
        self.waits.show(WaitKind.COMMIT)
        self.project.ledger.note(self.task.id, Step.KEEP, RunPhase.BEGUN)
        message = f"{self.task.title}\n\nTask: {self.task.id}"
        finished = ending.end is End.FINISHED
        commits = await run_in_thread(
            self.project.workspaces.gather,
            self.task.id,
            message,
            base=self.record.worktree.base,
            commit=finished,
        )
        await run_in_thread(self.landings.landing.branch.check)
        branch, tip = f"{BRANCHES}{self.task.id}", None
        if self.record.checks.stages:
            tip = await run_in_thread(self.project.repository.tip, branch)
        self.project.ledger.note(self.task.id, Step.KEEP, tip=tip)
        return after_end(
            self.record,
            self.policy.budgets_for(self.task),
            end=ending.end,
            reason=ending.reason,
            signal=ending.signal,
            commits=commits,
            unrecorded=unrecorded,
        )

    # -- after the engine was gone ------------------------------------------------------------------------

    async def first_step(self, *, known: bool) -> Decision:
        """What to do with a task run that another engine left behind. ``known``: its task is still there."""
        await self.agents.end_leftover_check()
        record = self.record
        if not known and record.state in (State.CLAIMED, State.READY, State.CHECKING):
            return Decision(move=Action.BLOCK, why="its task is gone; its branch is kept")
        running, processes = (
            record.state is State.RUNNING,
            (record.agent.process.holder, record.agent.process.keeper),
        )
        trees = self.project.workspaces
        if record.worktree.path:
            await run_in_thread(trees.take_in, self.task.id)
        commits = await run_in_thread(trees.has_commits, self.task.id, record.worktree.base)
        return on_resume(
            record,
            self.policy.budgets_for(self.task),
            # The supervisor counts too: it is about to write down how the agent ended.
            alive=running and any(each is not None and alive(each) is not False for each in processes),
            ended_on_file=running and exit_code(Path(record.agent.process.folder)) is not None,
            commits=commits,
        )

    async def let_go(self) -> str:
        """Its task was closed meanwhile: end what still runs for it and keep its work; says so in words."""
        await self.agents.end_leftover_check()
        await self.agents.end_leftover_attempt()
        kept = f"; its branch {self.record.worktree.branch} is kept" if self.record.worktree.branch else ""
        await self._close(Decision(move=Action.BLOCK, why=f"its task was closed{kept}"))
        by_hand = f", flyball merge {self.task.id} lands what is there" if kept else ""
        return f"{self.task.id} was closed before it landed and is let go{kept}{by_hand}"

    async def _judge_from_files(self) -> Decision:
        """It ended while no engine looked: read what it left."""
        record = self.record
        if record.state is State.RUNNING:
            return await self._judge(await self.agents.read_from_files())
        if record.agent.end is End.FINISHED:
            return await self._next_after(Ending(end=End.FINISHED, reason=record.reason))
        why = record.reason or "the run ended before this was judged"
        return Decision(move=Action.AGAIN, cause=Cause.INTERRUPTED, why=why)
