"""One further agent on a trip: a stage in the task's worktree, or a reviewer beside it.

It comes through the same doors as the task's own agent: a place in the run's width, a slot of the pool under
the name ``task/stage``, a run folder, a keeper. Its process is in the ledger before it may do anything, and
what it cost is in the ledger as soon as it is gone.

An errand keeps no state that is worth going on with: after the engine was killed, one that still lives is
ended and its step is done again. A limit is waited out, as often in a row as the task's own budget of limits
allows, and uses up nothing else. A drain lets an errand that runs finish and starts no further one; a stop
ends it. Either way its trip stays where it is, and the next run goes on from there.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from flyball.core.budget.limits import Refusal
from flyball.core.pool.model import Outcome
from flyball.core.tasks.model_routing import Route
from flyball.core.tasks.next_step import Action, Decision, after_limit
from flyball.core.tasks.task import Task
from flyball.core.tasks.task_run import RunPhase, Step, TaskRunState
from flyball.errors import AgentError
from flyball.factory.agents.process import Process
from flyball.factory.agents.watcher import AgentWatcher
from flyball.factory.budget.ledger_usage import API_KEY
from flyball.factory.run import agent_attempt
from flyball.factory.run.agent_attempt import LaunchSpec, read_all, spent
from flyball.factory.run.context import GIT_COMMANDS, RunContext
from flyball.factory.run.waiting import Waits
from flyball.factory.state import run_folders
from flyball.factory.state.threads import off_loop
from flyball.governor.ask import AskRequest
from flyball.governor.lease import Lease
from flyball.runtimes.port import Assignment, End, Ending
from flyball.runtimes.registry import TELLING


@dataclass(frozen=True, slots=True, kw_only=True)
class HelperTask:
    """What a further agent is to do."""

    step: Step
    stage: str
    prompt: str
    tree: Path
    max_s: float
    max_s_key: str
    """Where a person finds that."""
    effort: str = ""
    variables: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Completed:
    ending: Ending
    folder: Path

    @property
    def finished(self) -> bool:
        return self.ending.end is End.FINISHED


class Stopped(Exception):  # noqa: N818 - an answer on its way out, not an error
    """The trip is left as it stands."""

    def __init__(self, step: Decision) -> None:
        super().__init__(step.why)
        self.step = step


@dataclass(slots=True, kw_only=True)
class HelperAgents:
    """The further agents of one trip, one after the other."""

    shop: RunContext
    task: Task
    resources: Mapping[str, int]
    waits: Waits
    changed: Callable[[], None]
    agent: AgentWatcher | None = None
    launching: bool = False

    @property
    def slot(self) -> TaskRunState:
        return self.shop.ledger.slots[self.task.id]

    async def run(self, errand: HelperTask) -> Completed:
        """To its end, limits waited out. Raises Cut where the trip is to be left, AgentError where it cannot
        be paid for."""
        limits = 0
        while True:
            ran = await self._once(errand)
            ending = ran.ending
            if self.waits.stopping and ending.end is End.KILLED:
                raise Stopped(Decision(move=Action.LEAVE))
            if ending.end is not End.LIMITED:
                return ran
            again = after_limit(
                self.shop.budgets_for(self.task), limits=limits, reason=ending.reason, signal=ending.signal
            )
            if again.pause:
                raise Stopped(Decision(move=Action.LEAVE, pause=again.pause))
            if again.move is not Action.AGAIN:
                return Completed(replace(ending, reason=again.why), ran.folder)
            limits += 1
            await self.waits.until(time.time() + again.wait_s, f"{errand.stage}: {again.why}")

    async def _once(self, errand: HelperTask) -> Completed:
        if self.waits.leaving:
            raise Stopped(Decision(move=Action.LEAVE))
        if overspent := await self.waits.paid_for(lambda: self._admitted(errand), purpose=errand.stage):
            raise AgentError(overspent)
        cost_usd: float | None = None
        try:
            await self.waits.take_place(purpose=errand.stage)
            lease = await self.waits.slot_of_pool(self._asking(errand), purpose=errand.stage)
            process, folder = await self._launched(errand, lease)
            ending = await self._followed(errand, process, lease)
            cost_usd = ending.progress.cost_usd
        finally:
            self.waits.give_place_back()
            self.shop.purse.ended(self.task.id, cost_usd)
        self._note(errand.step, errand.stage, ending)
        run_folders.write_summary(
            folder, task=self.task.id, stage=errand.stage, attempt=self.slot.attempt, **spent(ending)
        )
        return Completed(ending, folder)

    def _admitted(self, errand: HelperTask) -> Refusal | None:
        """Paid for out of what the task may cost; no window holds up what is done but for this."""
        return self.shop.purse.admit(self.task.id, errand.stage, self._route(errand).model, finishing=True)

    def _asking(self, errand: HelperTask) -> AskRequest:
        return AskRequest(
            pool=self.shop.pool,
            project=self.shop.project,
            name=f"{self.task.id}/{errand.stage}",
            priority=self.shop.config.run.priority,
            resources=self.resources,
            model=self._route(errand).model,
            pid=os.getpid(),
            unread=self.shop.runtime.name not in TELLING,
        )

    def _route(self, errand: HelperTask) -> Route:
        return self.shop.route_for(self.task, errand.stage)

    # -- one agent --------------------------------------------------------------------------------------

    async def _launched(self, errand: HelperTask, lease: Lease) -> tuple[Process, Path]:
        """Under the lease, which is given back where this fails."""
        try:
            await self.shop.staggered()
            self.launching = True
            folder = await off_loop(run_folders.new_folder, self.shop.state, self.task.id)
            charged = self.shop.purse.charged(errand.stage, self._route(errand).model)
            order = self._order(errand, folder, charged)
            billing = API_KEY if charged else None
            return await agent_attempt.start(
                self.shop, order, lease, lambda process: self._written(errand, process, folder, billing)
            ), folder
        except BaseException:
            await self.shop.governor.release_async(lease, Outcome.ABANDONED)
            raise
        finally:
            self.launching = False

    def _order(self, errand: HelperTask, folder: Path, charged: Mapping[str, str]) -> LaunchSpec:
        agent, route = self.shop.config.agent, self._route(errand)
        assignment = Assignment(
            program=agent.command,
            model=route.model,
            args=agent.args,
            max_turns=agent.max_turns,
            max_cost_usd=self.shop.ceilings(self.task.id).max_cost_usd,
            effort=errand.effort,
            commands=self.shop.terms.gate,
            command_beginnings=GIT_COMMANDS,
        )
        told = {"FLYBALL_ATTEMPT": str(self.slot.attempt), "FLYBALL_STAGE": errand.stage}
        return LaunchSpec(
            task=self.task.id,
            prompt=errand.prompt,
            assignment=assignment,
            tree=errand.tree,
            folder=folder,
            variables={**told, **errand.variables, **charged},
        )

    def _written(self, errand: HelperTask, process: Process, folder: Path, billing: str | None) -> None:
        route = self._route(errand)
        self.shop.ledger.note(
            self.task.id,
            errand.step,
            RunPhase.BEGUN,
            stage=errand.stage,
            errand=process.holder,
            errand_keeper=process.keeper,
            errand_folder=str(folder),
            errand_model=route.model,
            errand_rationale=route.rationale,
            identity=self.shop.account.words,
            billing=billing,
        )

    async def _followed(self, errand: HelperTask, process: Process, lease: Lease) -> Ending:
        ceilings = replace(self.shop.ceilings(self.task.id), max_s=errand.max_s, max_s_key=errand.max_s_key)
        self.agent = agent_attempt.watched(
            self.shop, process, lease, ceilings=ceilings, started=time.time(), changed=self.changed
        )
        self.waits.say(errand.stage)
        self.changed()
        try:
            return await agent_attempt.follow(self.shop, self.agent, lease)
        finally:
            self.agent = None

    def _note(self, step: Step, stage: str, ending: Ending) -> None:
        """It is gone, and has cost this; what comes of it is decided by whoever sent it."""
        progress = ending.progress
        self.shop.ledger.note(
            self.task.id,
            step,
            RunPhase.BEGUN,
            stage=stage,
            tokens=progress.tokens.total if progress.tokens else None,
            cost_usd=progress.cost_usd,
            ended=ending.end.value,
            ended_why=ending.reason,
            denials=list(progress.denials) or None,
        )

    # -- after the engine was gone ------------------------------------------------------------------------

    async def end_leftover(self) -> None:
        """End one that outlived its engine: its step is done again, and two would meet in one worktree."""
        slot = self.slot
        if slot.errand is None or slot.errand_keeper is None:
            return
        folder = Path(slot.errand_folder)
        process = Process(folder, slot.errand, slot.errand_keeper)
        await process.stop(self.shop.watch, grace_s=self.shop.config.agent.grace_s)
        await process.over(self.shop.watch)
        # Its slot comes back now, not when somebody needs it.
        await off_loop(self.shop.governor.reap)
        ending = await off_loop(read_all, self.shop.runtime.reader(), folder)
        self._note(Step.STAGE, "", ending)
