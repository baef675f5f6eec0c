"""One way to run an agent, whatever it is for: an attempt at the task, a stage of it, its review.

    money -> a place in the run's width -> its worktree -> a slot of the pool -> started -> followed

The start is one stretch that is not cut in two: a stop waits for it (``launching``). Before it nothing
runs; after it there is an agent to stop.

    the account is verified -> environment and guards -> the prompt is written to a file
    -> the process waits at its gate -> the lease is bound to it -> it is in the ledger -> the gate opens

What fails before the last of these leaves no agent behind. The lease is given back when the agent is gone,
with how it ended; what the provider said meanwhile went to the pool as it came.

An attempt is the task's own process: an engine that comes back follows it again. A stage or a review has no
state that is worth going on with: one that outlived its engine is ended, and its step is done again. It is
part of what runs, so no usage window holds it up; a limit is waited out here, as often in a row as the
task's budget of limits allows. A drain lets it finish and starts no further one. Then its task run stays
where it is, and the next run goes on from there.
"""

from __future__ import annotations

import os
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, field, replace
from enum import Enum
from functools import partial
from pathlib import Path

from flyball.core.budget.limits import Refusal
from flyball.core.pool.holder import Holder
from flyball.core.pool.model import Outcome
from flyball.core.signals import End, Signal
from flyball.core.tasks.model_routing import ModelRoute
from flyball.core.tasks.next_step import Action, Decision, after_limit
from flyball.core.tasks.task import Task
from flyball.core.tasks.task_run import RunPhase, State, Step, TaskRecord
from flyball.errors import AgentError, InvariantError, UsageError
from flyball.factory.agents.process import Process
from flyball.factory.agents.watcher import AgentLimits, AgentWatcher
from flyball.factory.budget.guard import BudgetGuard
from flyball.factory.budget.ledger_usage import API_KEY, expected_fields
from flyball.factory.git.repository import BRANCHES
from flyball.factory.run.context import AgentLauncher, ProjectState
from flyball.factory.run.policy import RunPolicy
from flyball.factory.run.waiting import Waits
from flyball.factory.state import run_folders
from flyball.factory.state.blocking_calls import run_in_thread
from flyball.governor import inherited_lease
from flyball.governor.ask import AskRequest
from flyball.governor.internals import internals
from flyball.governor.launch.supervised_child import exit_code
from flyball.governor.launch.supervisor import STDERR, STDOUT
from flyball.governor.lease import Lease, note_answer
from flyball.runtimes.outcome import outcome_of, report_ending, report_signal
from flyball.runtimes.port import Assignment, Ending, Progress
from flyball.runtimes.registry import COMMAND, TELLING

_GIT_COMMANDS = tuple(f"git {verb}" for verb in ("status", "diff", "log", "add", "commit", "rebase"))
"""What an agent needs to commit and to rebase in its own worktree."""


class Purpose(Enum):
    """What an agent is for, by the step that the ledger has of it."""

    ATTEMPT = Step.LAUNCH
    STAGE = Step.STAGE
    REVIEW = Step.REVIEW


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentJob:
    """One agent that is to run for a task."""

    purpose: Purpose
    stage: str
    """Names the model's tier, and the ask of a stage or a review."""
    route: ModelRoute
    max_s: float | None = None
    """None: as long as ``agent.max_s`` allows."""
    max_s_key: str = ""
    """The key of ``flyball.toml`` that says so."""

    @property
    def is_attempt(self) -> bool:
        return self.purpose is Purpose.ATTEMPT

    @property
    def label(self) -> str:
        """Named where a task run says what it waits for; an attempt needs no name beside its task."""
        return "" if self.is_attempt else self.stage


@dataclass(frozen=True, slots=True, kw_only=True)
class Instructions:
    """What an agent is told."""

    prompt: str
    tree: Path
    """Where it works."""
    effort: str = ""
    session: str | None = None
    """Go on with this one."""
    variables: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Completed:
    ending: Ending
    folder: Path

    @property
    def finished(self) -> bool:
        return self.ending.end is End.FINISHED


class Stopped(Exception):  # noqa: N818 - an answer on its way out, not an error
    """The task run is left as it stands."""

    def __init__(self, step: Decision) -> None:
        super().__init__(step.why)
        self.step = step


@dataclass(slots=True, kw_only=True)
class AgentRuns:
    """The agents of one task, one after the other."""

    policy: RunPolicy
    project: ProjectState
    launcher: AgentLauncher
    budget: BudgetGuard
    task: Task
    resources: Mapping[str, int]
    waits: Waits
    changed: Callable[[], None]
    agent: AgentWatcher | None = None
    job: AgentJob | None = None
    """What ``agent`` runs for."""
    launching: bool = False
    _cost_usd: float | None = None
    """Of the agent that has just ended, as far as it said."""

    @property
    def record(self) -> TaskRecord:
        return self.project.ledger.records[self.task.id]

    # -- an attempt -------------------------------------------------------------------------------------

    @asynccontextmanager
    async def place(self, job: AgentJob) -> AsyncIterator[None]:
        """In the block the job is paid for and has its place in the run's width. AgentError if no waiting
        helps to pay for it."""
        if overspent := await self.waits.pay(lambda: self._admit(job), stage=job.label):
            raise AgentError(overspent)
        with self._until_over():
            await self.waits.take_place(stage=job.label)
            yield

    @contextmanager
    def _until_over(self) -> Iterator[None]:
        self._cost_usd = None
        try:
            yield
        finally:
            self.waits.give_place_back()
            self.budget.release(self.task.id, self._cost_usd)

    def _admit(self, job: AgentJob) -> Refusal | None:
        """None: it may be paid for, and its cost is reserved until it is over. A stage or a review is paid
        out of what the task may cost; no window holds up work that lacks nothing else."""
        finishing = not job.is_attempt
        return self.budget.admit(self.task.id, self._kind(job), job.route.model, finishing=finishing)

    @property
    def _limits(self) -> AgentLimits:
        return self.policy.agent_limits(self.budget.ceiling_for(self.task.id))

    def _kind(self, job: AgentJob) -> str:
        """What its cost is estimated from: earlier agents of the same kind."""
        return self.task.type if job.is_attempt else job.stage

    def _ask(self, job: AgentJob) -> AskRequest:
        return AskRequest(
            pool=self.launcher.pool,
            project=self.project.id,
            name=f"{self.task.id}/{job.label}" if job.label else self.task.id,
            priority=self.policy.config.run.priority,
            resources=self.resources,
            model=job.route.model,
            pid=os.getpid(),
            unread=self.launcher.runtime.name not in TELLING,
        )

    async def run(self, job: AgentJob, instruct: Callable[[], Instructions]) -> Completed:
        """Wait for a slot, start the agent, follow it to its end. ``instruct`` is called when it starts:
        messages that came until then go with its prompt."""
        lease = await self.waits.take_slot(self._ask(job), stage=job.label)
        self.waits.show(None, stage=job.label)
        try:
            await self.launcher.wait_turn()
            self.launching = True
            process = await self._start(job, instruct, lease)
        except BaseException:
            await self.launcher.governor.release_async(lease, Outcome.ABANDONED)
            raise
        finally:
            self.launching = False
        return await self._follow(job, process, lease)

    async def run_to_end(self, job: AgentJob, instruct: Callable[[], Instructions]) -> Completed:
        """Run a stage or a review, limits waited out. Raises Stopped if the task run is to be left."""
        limits = 0
        while True:
            if self.waits.leaving:
                raise Stopped(Decision(move=Action.LEAVE))
            async with self.place(job):
                ran = await self.run(job, instruct)
            ending = ran.ending
            self._record_end(job.purpose.value, job.stage, ending)
            if self.waits.stopping and ending.end is End.KILLED:
                raise Stopped(Decision(move=Action.LEAVE))
            if ending.end is not End.LIMITED:
                return ran
            again = after_limit(
                self.policy.budgets_for(self.task), limits=limits, reason=ending.reason, signal=ending.signal
            )
            if again.pause:
                raise Stopped(Decision(move=Action.LEAVE, pause=again.pause))
            if again.move is not Action.AGAIN:
                return Completed(replace(ending, reason=again.why), ran.folder)
            limits += 1
            await self.waits.until(time.time() + again.wait_s, again.why, stage=job.label)

    # -- the start --------------------------------------------------------------------------------------

    async def _start(self, job: AgentJob, instruct: Callable[[], Instructions], lease: Lease) -> Process:
        """AccountError if the account is not (any more) the one that was named: nothing was started then."""
        project, launcher = self.project, self.launcher
        folder = await run_in_thread(run_folders.new_folder, project.state, self.task.id)
        if job.is_attempt:
            project.ledger.note(self.task.id, Step.LAUNCH, RunPhase.BEGUN, folder=str(folder))
        charged = self.budget.api_key_variables(self._kind(job), job.route.model)
        told = instruct()
        await run_in_thread(launcher.account.verify)
        prompt = folder / run_folders.PROMPT
        prompt.write_text(told.prompt, encoding="utf-8")
        launch = launcher.runtime.launch(self._assignment(job, told))
        env = {
            **launcher.account.environment(launch.env),
            "FLYBALL_ATTEMPT": str(self.record.attempt),
            "FLYBALL_STAGE": job.stage,
            **told.variables,
            **charged,
            "FLYBALL_TASK": self.task.id,
            # A rebase that goes on must not wait for an editor.
            "GIT_EDITOR": "true",
            "FLYBALL_PROMPT_FILE": str(prompt),
            "FLYBALL_RUN": f"{project.ledger.run}/{folder}",
            inherited_lease.VARIABLE: internals(launcher.governor).variable_value(lease),
        }
        branch = f"{BRANCHES}{self.task.id}"
        argv: Sequence[str] = launch.argv
        if self._counts_calls(lease):
            name = self._ask(job).name
            argv, env = launcher.lead_calls(argv, env, folder=told.tree, project=project.id, name=name)
        else:
            env = launcher.bound_subagents(env)
        fenced = await run_in_thread(
            launcher.guards.guard, argv, env, tree=told.tree, branch=branch, folder=folder
        )
        if fenced.mended:
            launcher.note(f"guards had been changed and were put right: {', '.join(fenced.mended)}")
        process = await run_in_thread(
            Process.start, fenced.argv, env=fenced.env, cwd=told.tree, folder=folder, stdin=prompt
        )
        try:
            if not await run_in_thread(internals(launcher.governor).rebind, lease, process.holder.pid):
                raise AgentError(f"the lease on {lease.pool} was taken away before the agent could start")
            self._record_start(job, process, lease, billing=API_KEY if charged else None)
        except BaseException:
            process.cancel()
            raise
        process.open_gate()
        return process

    def _assignment(self, job: AgentJob, told: Instructions) -> Assignment:
        agent = self.policy.config.agent
        return Assignment(
            program=agent.command,
            model=job.route.model,
            args=agent.args,
            max_turns=agent.max_turns,
            max_cost_usd=self._limits.max_cost_usd,
            session=told.session,
            effort=told.effort,
            commands=self.project.terms.gate,
            command_beginnings=_GIT_COMMANDS,
        )

    def _record_start(self, job: AgentJob, process: Process, lease: Lease, *, billing: str | None) -> None:
        """In the ledger before the agent may do anything."""
        route, paid = job.route, {"identity": self.launcher.account.words, "billing": billing}
        if job.is_attempt:
            self.project.ledger.note(
                self.task.id,
                Step.LAUNCH,
                holder=process.holder,
                keeper=process.keeper,
                claim_id=lease.id,
                pool=lease.pool,
                model=route.model,
                rationale=route.rationale,
                kind=self.task.type,
                account=self.budget.payer.name,
                **paid,
                **expected_fields(self.budget.estimate(self.task.type, route.model)),
            )
        else:
            self.project.ledger.note(
                self.task.id,
                job.purpose.value,
                RunPhase.BEGUN,
                stage=job.stage,
                errand=process.holder,
                errand_keeper=process.keeper,
                errand_folder=str(process.folder),
                errand_model=route.model,
                errand_rationale=route.rationale,
                **paid,
            )

    # -- following --------------------------------------------------------------------------------------

    async def _follow(
        self, job: AgentJob, process: Process, lease: Lease, *, found_again: bool = False
    ) -> Completed:
        """To its end; the lease is given back."""
        limits = self._limits
        if job.max_s is not None:
            limits = replace(limits, max_s=job.max_s, max_s_key=job.max_s_key)
        self.job = job
        self.agent = AgentWatcher(
            process,
            self.launcher.runtime.reader(),
            watch=self.launcher.watch,
            ceilings=limits,
            tell=self._tell(lease),
            session=self._record_session if job.is_attempt else lambda _: None,
            changed=self.changed,
            started=self.record.since if found_again else time.time(),
            found_again=found_again,
        )
        self.changed()
        try:
            ending = await self.agent.follow()
            await self._release(lease, ending)
        finally:
            self.agent = self.job = None
        self._cost_usd = ending.progress.cost_usd
        self._write_summary(process.folder, job.label, ending)
        return Completed(ending, process.folder)

    def _counts_calls(self, lease: Lease) -> bool:
        """The agent's calls take the provider's slots, and the gateway tells their pool of what was
        answered; the agent holds one of the machine's agents."""
        calls = self.launcher.calls
        return calls is not None and lease.pool == calls.pool

    def _tell(self, lease: Lease) -> Callable[[Signal, Progress], None]:
        if self._counts_calls(lease):
            return lambda _signal, _progress: None
        return partial(report_signal, lease, note_answer=note_answer)

    async def _release(self, lease: Lease, ending: Ending) -> None:
        self.budget.record_reports(ending.progress.windows)
        if self._counts_calls(lease):
            outcome = outcome_of(ending.end)
        else:
            outcome = report_ending(
                lease, ending, read=self.launcher.runtime.name != COMMAND, note_answer=note_answer
            )
        words = f"{ending.end.value}: {ending.reason}" if ending.reason else ending.end.value
        await self.launcher.governor.release_async(lease, outcome, words=words)

    def _record_session(self, session: str) -> None:
        if session != self.record.agent.session:
            self.project.ledger.note(self.task.id, Step.SESSION, session=session)

    def _record_end(self, step: Step, stage: str, ending: Ending) -> None:
        """A stage or a review is gone and has cost this; what comes of it is decided where it was needed."""
        fields = ending_fields(ending)
        self.project.ledger.note(
            self.task.id,
            step,
            RunPhase.BEGUN,
            stage=stage,
            ended=fields["end"],
            ended_why=fields["reason"],
            **{name: fields[name] for name in ("tokens", "cost_usd", "denials")},
        )

    def _write_summary(self, folder: Path, stage: str, ending: Ending) -> None:
        named = {"stage": stage} if stage else {}
        fields = ending_fields(ending)
        run_folders.write_summary(folder, task=self.task.id, **named, attempt=self.record.attempt, **fields)

    # -- after the engine was gone ------------------------------------------------------------------------

    async def reattach(self, job: AgentJob) -> Ending:
        """Follow an attempt that outlived the engine which launched it."""
        record = self.record
        if record.agent.process.holder is None or record.agent.process.keeper is None:
            raise InvariantError(f"{self.task.id} is alive, and its process is not in the ledger")
        self.waits.count_place()
        with self._until_over():
            self._admit(job)
            try:
                lease = await run_in_thread(
                    internals(self.launcher.governor).take_over,
                    record.agent.process.holder.pid,
                    replace(self._ask(job), pool=record.agent.pool or self.launcher.pool),
                    record.agent.claim_id,
                )
            except UsageError:
                # It has just ended; its supervisor still ends what it left behind, and needs no slot for it.
                await self.launcher.watch.death_of(record.agent.process.keeper)
                return await self.read_from_files()
            process = Process(
                Path(record.agent.process.folder), record.agent.process.holder, record.agent.process.keeper
            )
            return (await self._follow(job, process, lease, found_again=True)).ending

    async def read_from_files(self) -> Ending:
        """How an attempt ended that no engine followed."""
        folder = Path(self.record.agent.process.folder)
        ending = await self._read(folder)
        self._write_summary(folder, "", ending)
        return ending

    async def end_leftover_attempt(self) -> None:
        """End one that outlived its engine and is not wanted any more; what it cost is written down."""
        record = self.record
        if record.state is State.RUNNING:
            await self._end_process(
                record.agent.process.folder, record.agent.process.holder, record.agent.process.keeper
            )
            self.project.ledger.note(self.task.id, Step.END, **ending_fields(await self.read_from_files()))

    async def end_leftover_check(self) -> None:
        """End a stage or a review that outlived its engine: its step is done again, and two would meet in one
        worktree."""
        record = self.record
        if record.checks.agent.holder is not None and record.checks.agent.keeper is not None:
            await self._end_process(
                record.checks.agent.folder, record.checks.agent.holder, record.checks.agent.keeper
            )
            self._record_end(Step.STAGE, "", await self._read(Path(record.checks.agent.folder)))

    async def _end_process(self, folder: str, holder: Holder | None, keeper: Holder | None) -> None:
        if holder is None or keeper is None:
            return
        process = Process(Path(folder), holder, keeper)
        await process.stop(self.launcher.watch, grace_s=self.policy.config.agent.grace_s)
        await process.over(self.launcher.watch)
        # Its slot comes back now, not when another ask needs it.
        await run_in_thread(self.launcher.governor.reap)

    async def _read(self, folder: Path) -> Ending:
        """How an agent ended that left this behind."""
        reader = self.launcher.runtime.reader()

        def read() -> Ending:
            for name, feed in ((STDOUT, reader.feed), (STDERR, reader.feed_stderr)):
                with suppress(OSError), open(folder / name, "rb") as file:
                    while piece := file.read(1 << 18):
                        feed(piece, wall_s=time.time())
            return reader.finish(exit_code(folder), wall_s=time.time())

        return await run_in_thread(read)


def ending_fields(ending: Ending) -> dict[str, object]:
    """An ending as the ledger and the summary have it."""
    progress = ending.progress
    return {
        "end": ending.end.value,
        "reason": ending.reason,
        "session": progress.session,
        "model": progress.model,
        "tokens": progress.tokens.total if progress.tokens else None,
        "cost_usd": progress.cost_usd,
        "turns": progress.turns,
        "denials": list(progress.denials) or None,
    }
