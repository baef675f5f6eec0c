"""What is done with finished work before it lands: its stages, then its review.

Stages run in the order in which ``flyball.toml`` has them, each in the task's own worktree. What one leaves
uncommitted is committed, and it is done: it is not repeated after a restart, nor after the work was sent back
and came again as it was. Commits that were added since make every stage look again.

A stage that fails sends the work back to its agent if it is ``required``. Otherwise that is noted, and
the branch is put back to where it stood before: half a stage is nobody's work.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from flyball.core.tasks.next_step import Action, Decision, after_landing, after_stage
from flyball.core.tasks.task import Task
from flyball.core.tasks.task_run import RunPhase, Step, TaskRunState
from flyball.factory.agents.personas import Persona, find_persona
from flyball.factory.agents.prompt import compile_stage
from flyball.factory.git.repository import BRANCHES
from flyball.factory.landing.result import Refused
from flyball.factory.project.config import StagePart
from flyball.factory.run.context import RunContext
from flyball.factory.run.helper_agent import Completed, HelperAgents, HelperTask, Stopped
from flyball.factory.run.review import Reviewing
from flyball.factory.state.threads import off_loop
from flyball.governor.launch.supervised_child import refusal
from flyball.runtimes.port import End


@dataclass(slots=True, kw_only=True)
class Checking:
    """The checks of one trip."""

    shop: RunContext
    task: Task
    errands: HelperAgents
    notes: list[str] = field(default_factory=list)
    """Said to the user, though the work goes on."""

    @property
    def slot(self) -> TaskRunState:
        return self.shop.ledger.slots[self.task.id]

    async def check(self) -> Decision:
        """Everything that is still to be done before the landing; what is next."""
        if refused := await self._refused():
            return refused
        try:
            for name, part in self._stages():
                step = await self._stage(name, part)
                if step.move is not Action.CHECK:
                    return step
            if not self.shop.config.review.on:
                return Decision(move=Action.LAND)
            reviewing = Reviewing(shop=self.shop, task=self.task, errands=self.errands, notes=self.notes)
            return await reviewing.review()
        except Stopped as cut:
            return cut.step

    async def _refused(self) -> Decision | None:
        """What cannot land anyway is not worth another agent."""
        if not (self.shop.config.stages or self.shop.config.review.on):
            return None
        try:
            await off_loop(self.shop.landing.fitness.tip_of, self.task.id, recorded=self.slot.base)
        except Refused as refused:
            landed, budgets = refused.landed, self.shop.budgets_for(self.task)
            return after_landing(self.slot, budgets, result=landed.result.value, why=landed.why)
        return None

    def _stages(self) -> Iterator[tuple[str, StagePart]]:
        done = self.slot.stages
        for name, part in self.shop.config.stages.items():
            if name not in done and (not part.types or self.task.type in part.types):
                yield name, part

    async def _stage(self, name: str, part: StagePart) -> Decision:
        self.errands.waits.say(name)
        persona = find_persona(self.shop.root, part.persona or name)
        self.shop.ledger.note(self.task.id, Step.STAGE, RunPhase.BEGUN, stage=name)
        tree = await off_loop(self.shop.worktrees.ensure, self.task.id)
        before = await self._tip()
        ran = await self.errands.run(self._errand(name, part, persona, tree.path))
        if refused := refusal(ran.folder):
            return Decision(move=Action.BLOCK, why=f"{refused}; see agent.command in flyball.toml")
        await self._gathered(name, ran)
        step = after_stage(
            self.slot,
            self.shop.budgets_for(self.task),
            stage=name,
            required=part.required,
            end=ran.ending.end.value,
            reason=ran.ending.reason,
            signal=ran.ending.signal,
        )
        if step.move is Action.CHECK:
            await self._done(name, ran, before)
        return step

    def _errand(self, name: str, part: StagePart, persona: Persona, tree: Path) -> HelperTask:
        return HelperTask(
            step=Step.STAGE,
            stage=name,
            prompt=compile_stage(
                self.shop.terms,
                self.task,
                persona=persona.text,
                stage=name,
                told=part.prompt,
                base=self.slot.base or self.shop.repository.default,
            ),
            tree=tree,
            max_s=part.max_s,
            max_s_key=f"stages.{name}.max_s",
            effort=persona.effort,
        )

    async def _gathered(self, name: str, ran: Completed) -> None:
        """Commit what it left, if it got to its end."""
        message = f"{self.task.title}: {name}\n\nTask: {self.task.id}"
        await off_loop(
            self.shop.worktrees.gather, self.task.id, message, base=self.slot.base, commit=ran.finished
        )

    async def _done(self, name: str, ran: Completed, before: str | None) -> None:
        if not ran.finished:
            self.notes.append(f"{self.task.id}: the stage {name} failed and is not required: {_how(ran)}")
            if before is not None:
                await off_loop(self.shop.worktrees.put_back, self.task.id, before)
        self.shop.ledger.note(self.task.id, Step.STAGE, stage=name, tip=await self._tip())

    async def _tip(self) -> str | None:
        return await off_loop(self.shop.repository.tip, f"{BRANCHES}{self.task.id}")


def _how(ran: Completed) -> str:
    return ran.ending.reason or End(ran.ending.end).value
