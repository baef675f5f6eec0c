"""Branches that wait to land, and several of them behind one run of the gate.

A branch that comes alone is taken up at once. Those that come while another lands wait in the queue, and go
together as soon as it is over. The landing belongs to none of them: where one is stopped, those that were
with it begin again without it.

The branches of a batch are put on top of each other, each with its task closed in its own commit, and the
gate sees the whole stack. Green: the default branch moves to its top, once. Red: half of them are tried, and
so on, until the ones that are red by themselves are found:

    a b c d e f g h   red
    a b c d           green: they land
            e f       red
            e         green: it lands
              f       red by itself, on top of all that has landed: refused
              g h     green: they land

So only trees that the gate saw green ever become the default branch's tip; the commits below the top of a
batch are in it untested, as the earlier commits of any branch are. A branch is refused only by a gate that
ran on its work alone: what one red batch says about the next only decides how many are tried together, and a
gate that errs now and then costs time and no work.

A branch that clashes with those before it waits for the next stack; if it clashes with the default branch
itself, it is refused. A default branch that moved meanwhile means starting over with what is left.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from pathlib import Path

from flyball.core.tasks.task import Task
from flyball.core.tasks.task_run import LandingResult, RunPhase, Step
from flyball.errors import GitError, SourceError
from flyball.factory.git.git import format_paths
from flyball.factory.landing.default_branch import DefaultBranch, RuledOut
from flyball.factory.landing.gate import GateFailure, GateRunner, named_in
from flyball.factory.landing.rebase import LandingWorktree, Rebaser
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


@dataclass(slots=True, kw_only=True)
class LandingBatch:
    """Lands its members. Made under the landing's lock."""

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
        """Land all of them; each has its result in ``done`` at the end."""
        self._waiting, moved = list(members), 0
        while self._waiting:
            size = max(1, self._suspects // 2) if self._suspects else len(self._waiting)
            trial = self._waiting[: 1 if self._one_by_one else size]
            old, base = await run_in_thread(self.branch.fetch_base, self.notes)
            stack = await self._stack(trial, base)
            if not stack:
                continue
            red = await self.rebaser.prepare(base)
            if red is None:
                tasks = [each.task for each in stack]
                red = await self.rebaser.worktree.run_gate(self.gate, tasks, stack[0].folder)
            if red is not None:
                self._halve(stack, await gate_refusal(red, self.rebaser.worktree, base))
            elif await finish(self._advance(stack, old)):
                moved = 0
            elif (moved := moved + 1) == TRIES:
                why = f"{self.branch.name} moved {TRIES} times while this was being landed; try again"
                raise Refused(LandingResult.ERROR, why)

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
                # Its own failure. What it left half done is below no other branch.
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

    def _halve(self, stack: Sequence[BatchMember], refused: Landed) -> None:
        """Together they cannot land; one that is alone cannot at all."""
        self._suspects = len(stack) if len(stack) > 1 else 0
        if len(stack) == 1:
            self._finish(stack[0], refused)

    async def _advance(self, stack: Sequence[BatchMember], old: str) -> bool:
        """Move the default branch; False if it is no longer where it stood before the gate. Being cancelled
        waits for its end, so each branch that has landed is told so."""
        new, names = stack[-1].new, ", ".join(each.task.id for each in stack)
        await run_in_thread(self.branch.prepare, old=old, new=new)
        for member in stack:
            self.ledger.note(member.task.id, Step.ADVANCE, RunPhase.BEGUN, old=old, new=member.new)
        try:
            if not await run_in_thread(self.branch.move, names, old=old, new=new):
                return False
        except RuledOut as refused:
            self._one_by_one = True
            self._halve(stack, refused.landed)
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


@dataclass(slots=True, kw_only=True)
class LandingQueue:
    lock: Callable[[str, Callable[[], None]], AbstractAsyncContextManager[None]]
    """Holds the landing's lock, in this process and in all others, for a task; tells if it has to wait."""
    land: Callable[[Sequence[BatchMember]], Awaitable[None]]
    """Tells each of them how it ended, or raises."""
    most: int = 1
    _waiting: list[BatchMember] = field(default_factory=list)
    _landing: list[BatchMember] = field(default_factory=list)
    _runner: asyncio.Task[None] | None = None

    async def join(self, member: BatchMember) -> Landed:
        """Wait for its turn and its end; how it ended."""
        if self._runner is not None:
            member.say(WAITS)
        self._waiting.append(member)
        self._go_on()
        try:
            return await member.done
        except asyncio.CancelledError:
            await self._without(member)
            raise

    def _go_on(self) -> None:
        if self._waiting and self._runner is None:
            self._runner = asyncio.create_task(self._run(), name="landing")

    async def _without(self, member: BatchMember) -> None:
        waited = member in self._waiting
        if waited:
            self._waiting.remove(member)
        needless = not self._waiting and not self._landing if waited else member in self._landing
        if needless and self._runner is not None:
            runner = self._runner
            # Once: it may be busy ending a gate, and a second time would have it leave that behind.
            if not runner.cancelling():
                runner.cancel()
            await asyncio.wait({runner})

    async def _run(self) -> None:
        try:
            while self._waiting:
                async with self.lock(self._waiting[0].task.id, self._tell_waiting):
                    await self._next()
        except Exception as error:
            self._landing, self._waiting = [*self._landing, *self._waiting], []
            self._fail_all(error)
        finally:
            self._waiting = [*self._unfinished(), *self._waiting]
            self._landing, self._runner = [], None
            self._go_on()

    def _tell_waiting(self) -> None:
        for member in self._waiting:
            member.say(WAITS)

    async def _next(self) -> None:
        self._landing, self._waiting = self._waiting[: self.most], self._waiting[self.most :]
        try:
            await self.land(self._landing)
        except Refused as refused:
            self._tell_all(refused.landed)
        except GitError as error:
            self._tell_all(Landed(result=LandingResult.ERROR, why=str(error), detail=error.output))
        except Exception as error:
            self._fail_all(error)
        self._landing = []

    def _tell_all(self, landed: Landed) -> None:
        for member in self._unfinished():
            member.done.set_result(landed)

    def _fail_all(self, error: Exception) -> None:
        for member in self._unfinished():
            member.done.set_exception(error)

    def _unfinished(self) -> list[BatchMember]:
        return [member for member in self._landing if not member.done.done()]
