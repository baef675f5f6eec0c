"""From finished work to its landing: its stages, its review, then as a person said or as the policy does.

    check: stages, review -> land
                               merge   into the default branch, behind the gate
                               pr      pushed, and opened as a pull request
                               manual  it waits for a person

Stages run in the order in which ``flyball.toml`` has them, each in the task's own worktree. What one leaves
uncommitted is committed, and it is done: it is not repeated after a restart, nor after the work was sent
back and came again as it was. Commits that were added since make every stage look again. A stage that fails
sends the work back to its agent if it is ``required``. Otherwise that is noted, and the branch is put back
to where it stood before: half a stage is not kept.

Where reviews are on, work lands by itself only as it was when it passed. What a person says to land, lands
whatever a review said, and comes back to them whatever comes of it.
"""

from __future__ import annotations

from collections.abc import Awaitable
from dataclasses import dataclass, field
from pathlib import Path

from flyball.core.tasks.labels import MANUAL, PR
from flyball.core.tasks.next_step import (
    NO_RETRIES,
    Action,
    Decision,
    after_landing,
    after_stage,
    pull_words,
)
from flyball.core.tasks.task import Task
from flyball.core.tasks.task_run import LandingResult, RunPhase, Step, TaskRecord
from flyball.errors import GitError
from flyball.factory.agents.personas import find_persona
from flyball.factory.agents.prompt import compile_stage
from flyball.factory.git.repository import BRANCHES
from flyball.factory.landing.result import Landed, Refused
from flyball.factory.project.config import StagePart
from flyball.factory.run.agent_run import AgentJob, AgentRuns, Instructions, Purpose, Stopped
from flyball.factory.run.context import LandingTools, ProjectState
from flyball.factory.run.options import ManualMove
from flyball.factory.run.policy import RunPolicy
from flyball.factory.run.review import Reviewing, why_unreviewed
from flyball.factory.run.waiting import Waits
from flyball.factory.state import run_folders
from flyball.factory.state.blocking_calls import run_in_thread
from flyball.governor.launch.supervised_child import refusal


@dataclass(slots=True, kw_only=True)
class Finish:
    """Leads the finished work of one task run to its landing."""

    policy: RunPolicy
    project: ProjectState
    landings: LandingTools
    task: Task
    agents: AgentRuns
    waits: Waits
    move: ManualMove | None = None
    """How a person said to land it; None: as the policy says."""
    notes: list[str] = field(default_factory=list)
    """Said to the user, though the work goes on."""
    result: str | None = None
    """What its landing came to."""

    @property
    def record(self) -> TaskRecord:
        return self.project.ledger.records[self.task.id]

    @property
    def by_hand(self) -> bool:
        return self.move is not None

    # -- checks -----------------------------------------------------------------------------------------

    async def check(self) -> Decision:
        """Everything that is still to be done before the landing; what is next."""
        stages, review = self.policy.config.stages, self.policy.config.review
        try:
            if (stages or review.on) and (refused := await self._refusal()):
                return refused
            for name, part in stages.items():
                if name not in self.record.checks.stages and (not part.types or self.task.type in part.types):
                    step = await self._stage(name, part)
                    if step.move is not Action.CHECK:
                        return step
            return await self._reviewing().review() if review.on else Decision(move=Action.LAND)
        except Stopped as stopped:
            return stopped.step
        finally:
            self.waits.give_place_back()

    def _reviewing(self) -> Reviewing:
        return Reviewing(
            policy=self.policy, project=self.project, task=self.task, agents=self.agents, notes=self.notes
        )

    async def _refusal(self) -> Decision | None:
        """What cannot land anyway is not worth another agent."""
        try:
            await run_in_thread(
                self.landings.landing.eligibility.landable_tip,
                self.task.id,
                recorded=self.record.worktree.base,
            )
        except Refused as refused:
            landed, budgets = refused.landed, self.policy.budgets_for(self.task)
            return after_landing(self.record, budgets, result=landed.result, why=landed.why)
        return None

    async def _stage(self, name: str, part: StagePart) -> Decision:
        self.waits.show(None, stage=name)
        persona = find_persona(self.project.root, part.persona or name)
        self.project.ledger.note(self.task.id, Step.STAGE, RunPhase.BEGUN, stage=name)
        tree = await run_in_thread(self.project.workspaces.ensure, self.task.id)
        before = await self._tip()
        job = AgentJob(
            purpose=Purpose.STAGE,
            stage=name,
            route=self.policy.route_for(self.task, name),
            max_s=part.max_s,
            max_s_key=f"stages.{name}.max_s",
        )
        prompt = compile_stage(
            self.project.terms,
            self.task,
            persona=persona.text,
            stage=name,
            told=part.prompt,
            base=self.record.worktree.base or self.project.repository.default,
        )
        instructions = Instructions(prompt=prompt, tree=tree.path, effort=persona.effort)
        ran = await self.agents.run_to_end(job, lambda: instructions)
        if refused := refusal(ran.folder):
            return Decision(move=Action.BLOCK, why=f"{refused}; see agent.command in flyball.toml")
        message = f"{self.task.title}: {name}\n\nTask: {self.task.id}"
        await run_in_thread(
            self.project.workspaces.gather,
            self.task.id,
            message,
            base=self.record.worktree.base,
            commit=ran.finished,
        )
        step = after_stage(
            self.record,
            self.policy.budgets_for(self.task),
            stage=name,
            required=part.required,
            end=ran.ending.end,
            reason=ran.ending.reason,
            signal=ran.ending.signal,
        )
        if step.move is Action.CHECK:
            if not ran.finished:
                how = ran.ending.reason or ran.ending.end.value
                self.notes.append(f"{self.task.id}: the stage {name} failed and is not required: {how}")
                if before is not None:
                    await run_in_thread(self.project.workspaces.put_back, self.task.id, before)
            self.project.ledger.note(self.task.id, Step.STAGE, stage=name, tip=await self._tip())
        return step

    async def _tip(self) -> str | None:
        return await run_in_thread(self.project.repository.tip, f"{BRANCHES}{self.task.id}")

    # -- the landing ------------------------------------------------------------------------------------

    async def land(self) -> Decision:
        if self.move is ManualMove.REVIEW:
            return await self._review_pull()
        on = self.policy.config.review.on and not self.by_hand
        if on and (why := await run_in_thread(why_unreviewed, self.project.repository, self.record)):
            return Decision(move=Action.PARK, why=why)
        policy = self.policy.landing_policy(self.task, self.project.tasks)
        if policy.name == MANUAL and not self.by_hand:
            doubt = f"the label {policy.unknown} names no policy, so " if policy.unknown else ""
            why = f"{doubt}finished work waits for you: flyball merge {self.task.id}"
            return Decision(move=Action.PARK, why=why)
        self.waits.show(None)
        return await self._decide_after(self._landing())

    async def land_on(self) -> Decision:
        """A landing that was cut short. If it began without a review, a person had said so."""
        landing, record = self.landings.landing, self.record
        bound = (
            record.checks.passed
            and not self.by_hand
            and not await run_in_thread(landing.has_advanced, record)
        )
        if bound and (why := await run_in_thread(why_unreviewed, self.project.repository, record)):
            await landing.gate.end_leftover(record)
            return Decision(move=Action.PARK, why=why)
        return await self._decide_after(landing.go_on(self.task, record, self._landing))

    def _landing(self) -> Awaitable[Landed]:
        """As a person said, or the policy does."""
        task, pulls, say = self.task, self.landings.pulls, self.waits.show_landing
        known = self.record.agent.process.folder
        folder = Path(known) if known else run_folders.new_folder(self.project.state, task.id)
        by_pull = self.policy.landing_policy(task, self.project.tasks).name == PR
        if self.move is ManualMove.PULL_REQUEST or (self.move is None and by_pull):
            return pulls.open(task, folder, say)
        if self.move in (ManualMove.LAND_APPROVED, ManualMove.LAND_UNAPPROVED):
            return pulls.land(task, folder, say, unapproved=self.move is ManualMove.LAND_UNAPPROVED)
        return self.landings.landing.land(task, folder, say, by_hand=self.by_hand)

    async def _decide_after(self, landing: Awaitable[Landed]) -> Decision:
        landed = await landing
        self.notes += landed.notes
        self.result = landed.result.value
        # A person who lands by hand looks at what came of it; no agent is set to work behind their back.
        budgets = NO_RETRIES if self.by_hand else self.policy.budgets_for(self.task)
        return after_landing(
            self.record,
            budgets,
            result=landed.result,
            why=landed.commit[:12] if landed.result is LandingResult.MERGED else landed.why,
            detail=landed.detail,
            waits=landed.waits,
        )

    async def _review_pull(self) -> Decision:
        """A person wants to know what a reviewer says; its pull request stays open whatever that is."""
        self.result = LandingResult.PR_OPENED.value
        self.project.ledger.note(self.task.id, Step.REVIEW, RunPhase.BEGUN)
        try:
            head = await run_in_thread(self.landings.pulls.fetch_head, self.task.id)
            found = await self._reviewing().review_pull(head)
            why = f"unreviewed: {found}" if isinstance(found, str) else found.why()
        except Stopped as stopped:
            return stopped.step
        except GitError as error:
            why = str(error)
        finally:
            self.waits.give_place_back()
        return Decision(move=Action.PARK, why=f"{pull_words(self.record)}; {why}")
