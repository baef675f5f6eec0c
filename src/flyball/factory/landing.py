"""A finished branch becomes part of the default branch, behind the project's gate.

One at a time per repository, in a worktree of its own, never in the user's checkout:

    protected paths -> has commits -> fetch -> rebase -> close the task -> gate -> advance -> checkout ->
    tell the source -> clean

Up to *advance* nothing but the landing's own worktree has changed: whatever stops us there, we start
over. *advance* is one compare-and-swap of the branch, from the commit that the gate saw to that commit
plus the work. So the default branch only ever moves forward, to trees that were green, and a landing that
was interrupted after it is finished by looking whether the branch already contains it.

A task that lives in the repository is closed by the work's own commit. One that lives elsewhere is closed
after it, and where that fails it has landed all the same: the ledger remembers that its source is untold, and
the next run tells it again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from pathlib import Path

from flyball.core.protect import protected_among
from flyball.core.slotrun import Mark, SlotRun, Step
from flyball.core.task import Task
from flyball.errors import FlyballError, GitError, invariant
from flyball.factory.checkout import UserCheckout
from flyball.factory.gate import Gate
from flyball.factory.git import Git, named
from flyball.factory.landing_place import LandingPlace
from flyball.factory.ledger import Ledger
from flyball.factory.locks import LongLock
from flyball.factory.repository import BRANCHES, Repository
from flyball.factory.tasks.port import TaskSource
from flyball.factory.threads import off_loop
from flyball.factory.worktree import Worktrees

LOCK = "landing.lock"
_TRIES = 5
"""How often the default branch may move under us before we give up."""


class Result(Enum):
    MERGED = "merged"
    CONFLICT = "conflict"
    GATE_FAILED = "gate-failed"
    PROTECTED = "protected"
    DIRTY = "dirty"
    NO_CHANGES = "no-changes"
    NO_REMOTE = "no-remote"
    ERROR = "error"


@dataclass(frozen=True, slots=True, kw_only=True)
class Landed:
    result: Result
    why: str = ""
    """What happened and the next step, in words."""
    detail: str = ""
    """What there is to see: the end of the gate's output, the paths that clash."""
    commit: str = ""
    notes: tuple[str, ...] = ()
    """Said to the user, though the landing went well."""


@dataclass(slots=True, kw_only=True)
class Landing:
    """Lands branches of one project."""

    repository: Repository
    worktrees: Worktrees
    source: TaskSource
    ledger: Ledger
    gate: Gate
    place: LandingPlace
    checkout: UserCheckout
    state: Path
    protected: Sequence[str]
    push: bool = False
    _one_at_a_time: asyncio.Lock = field(default_factory=asyncio.Lock)

    async def land(
        self, task: Task, folder: Path, waits: Callable[[], None] = lambda: None, *, by_hand: bool = False
    ) -> Landed:
        """Land the task's branch, or say why not. ``folder`` takes the gate's output."""
        branch = f"{BRANCHES}{task.id}"
        self.ledger.note(task.id, Step.LAND, Mark.BEGUN)
        try:
            tip = await off_loop(self._fit, task, branch, by_hand)
            landed = await self._alone(task, waits, lambda: self._land(task, tip, folder))
            return await self._cleaned(task, tip, landed)
        except _Refused as refused:
            return refused.landed
        except GitError as error:
            return Landed(result=Result.ERROR, why=str(error), detail=error.output)

    async def go_on(self, task: Task, slot: SlotRun, folder: Path) -> Landed:
        """A landing that another engine left behind: finish it if the branch has moved, else start over."""
        await self.gate.end_leftover(slot)
        if not await off_loop(self.has_advanced, slot):
            return await self.land(task, folder)
        tip = await off_loop(self.repository.tip, f"{BRANCHES}{task.id}")
        landed = await self._alone(task, lambda: None, lambda: self._finished(task, slot.new))
        return await self._cleaned(task, tip, landed)

    async def tell_again(self, task_id: str) -> str:
        """Close a task that has landed and could not be closed then; words if that fails once more."""
        slot = self.ledger.load_task(task_id)
        return await self._tell_source(task_id, slot.new) if slot is not None else ""

    async def catch_up(self) -> None:
        """Bring along a checkout that was left behind, unless somebody lands just now and will do that."""
        lock = LongLock(self.state / LOCK)
        if self._one_at_a_time.locked() or not lock.take():
            return
        try:
            await off_loop(self._follow)
        finally:
            lock.release()

    def has_advanced(self, slot: SlotRun) -> bool:
        """Has the branch moved to what a landing wanted to move it to?"""
        new, tip = slot.new, self.repository.tip(self.repository.default)
        return bool(new and tip and self.repository.contains(tip, new))

    async def _alone(
        self, task: Task, waits: Callable[[], None], work: Callable[[], Awaitable[Landed]]
    ) -> Landed:
        """One at a time, in this process and in all others."""
        if self._one_at_a_time.locked():
            waits()
        async with self._one_at_a_time:
            lock = LongLock(self.state / LOCK)
            await lock.wait(waits, task=task.id)
            try:
                return await work()
            finally:
                lock.release()

    async def _land(self, task: Task, tip: str, folder: Path) -> Landed:
        notes: list[str] = []
        for _ in range(_TRIES):
            old, base = await off_loop(self._fetched, notes)
            self.ledger.note(task.id, Step.REBASE, Mark.BEGUN, base=base)
            clashing = await off_loop(self.place.put, tip, base)
            if clashing is not None:
                raise _Refused(self._clash(clashing))
            self.ledger.note(task.id, Step.REBASE)
            self.ledger.note(task.id, Step.CLOSE, Mark.BEGUN)
            _, new = await off_loop(self.place.close, task.id, base)
            self.ledger.note(task.id, Step.CLOSE)
            red = await self.gate.run(task, self.place.path, folder)
            if red is not None:
                raise _Refused(Landed(result=Result.GATE_FAILED, why=red.why, detail=red.detail))
            if await self._advance(task, old, new):
                done = await self._finished(task, new)
                return replace(done, notes=(*notes, *done.notes))
        why = f"{self.repository.default} moved {_TRIES} times while this was being landed; try again"
        raise _Refused(Landed(result=Result.ERROR, why=why))

    # -- the steps --------------------------------------------------------------------------------------

    def _fit(self, task: Task, branch: str, by_hand: bool) -> str:
        """The commit to land, if it may land at all."""
        tips = self.repository.tips(branch)
        if tips.branch is None:
            raise _Refused(
                Landed(result=Result.ERROR, why=f"the branch {branch} is gone; flyball run starts anew")
            )
        changed = self.repository.changed(self.repository.base_among(tips), tips.branch)
        if not changed:
            words = "its branch changes nothing; make the task clearer, or close it"
            raise _Refused(Landed(result=Result.NO_CHANGES, why=words))
        found = protected_among(changed, self.protected, changed)
        if found:
            raise _Refused(self._touches(found, branch))
        path = self.worktrees.path(task.id)
        # An agent's end has just been gathered; what lies in a worktree that waited for a person is theirs.
        if (
            by_hand
            and path.exists()
            and Git(path).run("status", "--porcelain", "--untracked-files=no").out.strip()
        ):
            words = f"{path} has uncommitted changes; commit or drop them, then flyball merge {task.id}"
            raise _Refused(Landed(result=Result.DIRTY, why=words))
        return tips.branch

    def _touches(self, found: list[tuple[str, str]], branch: str) -> Landed:
        paths = named(path for path, _ in found[:5]) + (" and more" if len(found) > 5 else "")
        look = f"git diff {self.repository.default}...{branch} shows it; land it by hand or drop it"
        return Landed(result=Result.PROTECTED, why=f"it changes {paths} (protected: {found[0][1]}); {look}")

    def _clash(self, clashing: list[str]) -> Landed:
        paths = named(clashing) or "its commits"
        default = self.repository.default
        return Landed(
            result=Result.CONFLICT,
            why=f"{paths} clashes with {default}",
            detail=f"git rebase {default} in the worktree shows it: {paths}",
        )

    def _fetched(self, notes: list[str]) -> tuple[str, str]:
        """Where the default branch stands, and where the work goes: the same, or what origin has beyond
        it."""
        if self.repository.has_origin:
            try:
                self.repository.fetch()
            except GitError as error:
                if self.push:
                    raise _Refused(Landed(result=Result.NO_REMOTE, why=str(error))) from error
                words = f"could not fetch from origin ({error}); went on with what is here"
                if words not in notes:
                    notes.append(words)
        tips = self.repository.tips()
        base = self.repository.base_among(tips)
        return tips.local or base, base

    async def _advance(self, task: Task, old: str, new: str) -> bool:
        """Move the default branch; False if it is no longer where it stood before the gate."""
        forward = await off_loop(self.repository.contains, new, old)
        invariant(forward, f"{new} does not contain {old}: {self.repository.default} would be rewritten")
        await off_loop(self.checkout.before_moving, old)
        self.ledger.note(task.id, Step.ADVANCE, Mark.BEGUN, old=old, new=new)
        if self.push and not await off_loop(self._pushed, new):
            return False
        ref, why = f"refs/heads/{self.repository.default}", f"flyball: {task.id}"
        moved = await off_loop(self.repository.git.run, "update-ref", "-m", why, ref, new, old)
        if moved.ok:
            self.ledger.note(task.id, Step.ADVANCE)
        return moved.ok

    def _pushed(self, new: str) -> bool:
        """False where origin has moved on; any other failure is an error."""
        to = f"{new}:refs/heads/{self.repository.default}"
        done = self.repository.git.run("push", "--quiet", "origin", to)
        if done.ok:
            return True
        # "[remote rejected]" is a rule of theirs: trying again cannot help.
        if "[rejected]" in done.err or "cannot lock ref" in done.err:
            return False
        said = done.err.strip().splitlines() or ["it does not say why"]
        why = next((line.strip(" !") for line in said if "rejected]" in line), said[-1])
        raise _Refused(
            Landed(result=Result.NO_REMOTE, why=f"could not push to origin: {why}", detail=done.err)
        )

    async def _finished(self, task: Task, new: str) -> Landed:
        """What follows once the branch has moved. All of it may be done twice."""
        self.ledger.note(task.id, Step.CHECKOUT, Mark.BEGUN)
        followed = await off_loop(self._follow)
        self.ledger.note(task.id, Step.CHECKOUT)
        told = await self._tell_source(task.id, new)
        return Landed(result=Result.MERGED, commit=new, notes=tuple(filter(None, (followed, told))))

    def _follow(self) -> str:
        """It has landed. What goes wrong from here on is told, and is no reason to say otherwise."""
        try:
            return self.checkout.follow()
        except (GitError, OSError) as error:
            return f"the checkout of {self.repository.default} could not be brought along: {error}"

    async def _tell_source(self, task_id: str, new: str) -> str:
        """Words if it could not be told."""
        self.ledger.note(task_id, Step.TELL, Mark.BEGUN)
        try:
            await off_loop(self.source.close, task_id, commit=new)
        except FlyballError as error:
            words = f"{task_id} has landed, and could not be closed: {error}"
            return f"{words}; the next run tries again, or close it by hand"
        self.ledger.note(task_id, Step.TELL)
        return ""

    async def _cleaned(self, task: Task, tip: str | None, landed: Landed) -> Landed:
        """Remove worktree and branch; that holds up no other landing."""
        self.ledger.note(task.id, Step.CLEAN, Mark.BEGUN)
        kept = await off_loop(self._clean, task, tip)
        self.ledger.note(task.id, Step.CLEAN)
        return replace(landed, notes=(*landed.notes, kept)) if kept else landed

    def _clean(self, task: Task, tip: str | None) -> str:
        """Words if something had to stay."""
        try:
            self.worktrees.remove(task.id)
            if tip is not None:
                self.repository.delete_branch(f"{BRANCHES}{task.id}", tip=tip)
        except GitError as error:
            return f"{task.id} has landed, and something of it stays: {error}"
        return ""


class _Refused(Exception):  # noqa: N818 - an answer on its way out, not an error
    def __init__(self, landed: Landed) -> None:
        super().__init__(landed.why)
        self.landed = landed
