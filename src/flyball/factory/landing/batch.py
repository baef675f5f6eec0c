"""Several finished branches behind one run of the gate.

They are put on top of each other, each with its task closed in its own commit, and the gate sees the whole
stack. Green: the default branch moves to its top, once. Red: half of them are tried, and so on, until the
ones that are red by themselves are found:

    a b c d e f g h   red
    a b c d           green: they land
            e f       red
            e         green: it lands
              f       red by itself, on top of all that has landed: refused
              g h     green: they land

So only trees that the gate saw green ever become the default branch's tip; the commits below the top of a
batch are in it untested, as the earlier commits of any branch are. Nobody is refused but by a gate that ran
on their work alone: what one red batch says about the next only decides how many are tried together, and a
gate that errs now and then costs time, and nobody's work.

A branch that clashes with those before it waits for the next stack; if it clashes with the default branch
itself, it is refused. A default branch that moved meanwhile means starting over with what is left.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from flyball.core.tasks.task import Task
from flyball.core.tasks.task_run import LandingResult, RunPhase, Step
from flyball.errors import GitError, SourceError
from flyball.factory.git.git import format_paths
from flyball.factory.git.repository import BRANCHES
from flyball.factory.git.worktree_setup import BootstrapError
from flyball.factory.landing.default_branch import DefaultBranch, Eligibility, RuledOut
from flyball.factory.landing.gate import GateFailure, GateRunner, named_in
from flyball.factory.landing.landing_worktree import LandingWorktree
from flyball.factory.landing.result import Landed, Refused
from flyball.factory.state.blocking_calls import run_in_thread
from flyball.factory.state.ledger import Ledger
from flyball.host.off_loop import finish

WAITS = "waits for another landing"
TRIES = 5
"""How often the default branch may move under us before we give up."""


@dataclass(slots=True, kw_only=True, eq=False)
class BatchMember:
    """One branch that is to land."""

    task: Task
    tip: str
    folder: Path
    """Takes the gate's output, where it runs for this one first of all."""
    say: Callable[[str], None]
    done: asyncio.Future[Landed] = field(default_factory=lambda: asyncio.get_running_loop().create_future())
    new: str = ""
    """Its own commit in the stack."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rebaser:
    """Puts the work of tasks into the landing's worktree, step by step in the ledger."""

    worktree: LandingWorktree
    ledger: Ledger
    eligibility: Eligibility
    squash: bool = False

    async def rebase(
        self, task: Task, tip: str, base: str, *, first: bool = True, known: str = "", seen: str = ""
    ) -> tuple[list[str] | None, str]:
        """What clashes, None if nothing does; and the commit that is to land. Refused if it must not.

        ``known``: what the branch has from there is not its own; empty: from ``base``. ``seen``: what was
        found fit before.
        """
        self.ledger.note(task.id, Step.REBASE, RunPhase.BEGUN, onto=base)
        repository, recorded = self.worktree.repository, self.ledger.slots[task.id].base
        since = await run_in_thread(repository.own_since, tip, known=known or base, recorded=recorded)
        clashing = await run_in_thread(
            self.worktree.rebase if first else self.worktree.rebase_on_top, tip, base, since
        )
        if clashing is not None:
            return clashing, ""
        laid, branch = await run_in_thread(self.worktree.head), f"{BRANCHES}{task.id}"
        await run_in_thread(self.eligibility.check_rebased, branch, base, laid, seen=seen)
        if self.squash:
            await run_in_thread(self.worktree.squash, task, base)
        self.ledger.note(task.id, Step.REBASE)
        self.ledger.note(task.id, Step.CLOSE, RunPhase.BEGUN)
        _, new = await run_in_thread(self.worktree.close_task, task.id, base)
        self.ledger.note(task.id, Step.CLOSE)
        return None, new

    async def prepare(self, base: str) -> GateFailure | None:
        """Before the gate. Where it fails and the work changed nothing about it, the work is not at fault."""
        try:
            await run_in_thread(self.worktree.prepare)
        except BootstrapError as error:
            preparation, head = self.worktree.worktrees.preparation, await run_in_thread(self.worktree.head)
            as_before = await run_in_thread(preparation.same_inputs, base, head)
            return GateFailure(str(error), str(error), unrunnable=as_before)
        return None


@dataclass(slots=True, kw_only=True)
class LandingBatch:
    """Lands its members. Whoever holds the landing's lock has one."""

    branch: DefaultBranch
    rebaser: Rebaser
    gate: GateRunner
    ledger: Ledger
    notes: list[str] = field(default_factory=list)
    _waiting: list[BatchMember] = field(default_factory=list)
    _suspects: int = 0
    """So many of the first that wait are red together, as far as we know."""
    _one_by_one: bool = False

    async def land(self, members: Sequence[BatchMember]) -> None:
        """Until each of them has been told how it ended."""
        self._waiting, moved = list(members), 0
        while self._waiting:
            trial = self._waiting[: self._size()]
            old, base = await run_in_thread(self.branch.fetch_base, self.notes)
            stack = await self._stack(trial, base)
            if not stack:
                continue
            red = await self.rebaser.prepare(base)
            if red is None:
                tasks = [each.task for each in stack]
                red = await self.rebaser.worktree.run_gate(self.gate, tasks, stack[0].folder)
            if red is not None:
                self._halved(stack, await gate_refusal(red, self.rebaser.worktree, base))
            elif await finish(self._advance(stack, old)):
                moved = 0
            elif (moved := moved + 1) == TRIES:
                why = f"{self.branch.name} moved {TRIES} times while this was being landed; try again"
                raise Refused(LandingResult.ERROR, why)

    def _size(self) -> int:
        if self._one_by_one:
            return 1
        return max(1, self._suspects // 2) if self._suspects else len(self._waiting)

    # -- the stack --------------------------------------------------------------------------------------

    async def _stack(self, trial: Sequence[BatchMember], base: str) -> list[BatchMember]:
        """Those of the trial that go on top of each other. What clashes waits, or is refused; empty if that
        has to be begun anew."""
        stack: list[BatchMember] = []
        for member in trial:
            on = stack[-1].new if stack else base
            try:
                clashing, member.new = await self.rebaser.rebase(member.task, member.tip, on, first=not stack)
            except (GitError, SourceError, Refused) as error:
                # Its own failure. Whatever it left half done is below nobody else.
                self._suspects = 0
                failed = Landed(result=LandingResult.ERROR, why=str(error))
                self._finish(member, error.landed if isinstance(error, Refused) else failed)
                return []
            if clashing is None:
                stack.append(member)
            elif stack:
                self._waiting.remove(member)
                self._waiting.append(member)
            else:
                self._finish(member, conflict(clashing, self.branch.base_name(base)))
        if len(stack) < len(trial):
            self._suspects = 0
        for member in self._waiting:
            others = [each.task.id for each in stack if each is not member]
            together = f"lands together with {', '.join(others)}" if others else ""
            member.say(together if member in stack else WAITS)
        return stack

    # -- its end ----------------------------------------------------------------------------------------

    def _halved(self, stack: Sequence[BatchMember], refused: Landed) -> None:
        """Together they cannot land; one that is alone cannot at all."""
        self._suspects = len(stack) if len(stack) > 1 else 0
        if len(stack) == 1:
            self._finish(stack[0], refused)

    async def _advance(self, stack: Sequence[BatchMember], old: str) -> bool:
        """Move the default branch; False if it is no longer where it stood before the gate. Being cancelled
        waits for its end: whoever has landed is told so."""
        new, names = stack[-1].new, ", ".join(each.task.id for each in stack)
        await run_in_thread(self.branch.prepare, old=old, new=new)
        for member in stack:
            self.ledger.note(member.task.id, Step.ADVANCE, RunPhase.BEGUN, old=old, new=member.new)
        try:
            if not await run_in_thread(self.branch.move, names, old=old, new=new):
                return False
        except RuledOut as refused:
            self._one_by_one = True
            self._halved(stack, refused.landed)
            return True
        for member in stack:
            self.ledger.note(member.task.id, Step.ADVANCE)
        await self._follow(stack)
        self._suspects = max(0, self._suspects - len(stack))
        return True

    async def _follow(self, stack: Sequence[BatchMember]) -> None:
        """They have landed."""
        for member in stack:
            self.ledger.note(member.task.id, Step.CHECKOUT, RunPhase.BEGUN)
        followed = await run_in_thread(self.branch.follow)
        notes = tuple(filter(None, (*self.notes, followed)))
        for member in stack:
            self.ledger.note(member.task.id, Step.CHECKOUT)
            self._finish(member, Landed(result=LandingResult.MERGED, commit=member.new, notes=notes))

    def _finish(self, member: BatchMember, landed: Landed) -> None:
        self._waiting.remove(member)
        if not member.done.done():
            member.done.set_result(landed)


async def gate_refusal(red: GateFailure, place: LandingWorktree, base: str) -> Landed:
    """What a gate that is not green comes to. A command that cannot be run is its owner's to mend, unless the
    work itself changed the very file that it names."""
    if red.unrunnable and not await run_in_thread(place.has_changed, named_in(red.command), base):
        which = "gate.commands" if red.command else "worktree.bootstrap"
        way_out = f"put right {which} in flyball.toml, or install what is missing"
        return Landed(result=LandingResult.GATE_BROKEN, why=f"{red.why}; {way_out}", detail=red.detail)
    return Landed(result=LandingResult.GATE_FAILED, why=red.why, detail=red.detail)


def conflict(clashing: Sequence[str], onto: str) -> Landed:
    paths = format_paths(clashing) or "its commits"
    return Landed(
        result=LandingResult.CONFLICT,
        why=f"{paths} clashes with {onto}",
        detail=f"git rebase {onto} in the worktree shows it: {paths}",
    )
