"""A finished branch becomes part of the default branch, behind the project's gate.

One landing at a time per repository, in a worktree of its own, never in the user's checkout:

    may it land (default_branch.py) -> fetch -> rebase -> close the task -> gate -> advance -> checkout ->
    tell the source -> clean

Up to *advance* nothing but the landing's own worktree has changed: whatever stops us there, we start
over. *advance* is one compare-and-swap of the branch, from the commit that the gate saw to that commit
plus the work. So the default branch only ever moves forward, to trees that were green, and a landing that
was interrupted after it is finished by looking whether the branch already contains it.

Branches that wait go together, behind one run of the gate (batch.py); the ledger of each says which
of the commits is its own, so each is gone on with by itself.

A task that lives in the repository is closed by the work's own commit. One that lives elsewhere is closed
after it, and where that fails it has landed all the same: the ledger remembers that its source is untold, and
the next run tells it again.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

from flyball.core.tasks.next_step import MERGE
from flyball.core.tasks.task import Task
from flyball.core.tasks.task_run import LandingResult, RunPhase, Step, TaskRecord
from flyball.errors import FlyballError, GitError
from flyball.factory.git.repository import BRANCHES, Repository
from flyball.factory.git.workspace import Workspaces
from flyball.factory.landing.batch import BatchMember, LandingBatch, LandingQueue
from flyball.factory.landing.default_branch import DefaultBranch, Eligibility
from flyball.factory.landing.gate import GateRunner
from flyball.factory.landing.rebase import Rebaser
from flyball.factory.landing.result import Landed, Refused
from flyball.factory.state.blocking_calls import run_in_thread
from flyball.factory.state.ledger import Ledger
from flyball.factory.state.locks import RunLock
from flyball.factory.tasks.port import TaskSource

LOCK = "landing.lock"


@dataclass(slots=True, kw_only=True)
class Landing:
    """Lands branches of one project."""

    repository: Repository
    workspaces: Workspaces
    source: TaskSource
    ledger: Ledger
    gate: GateRunner
    rebaser: Rebaser
    branch: DefaultBranch
    eligibility: Eligibility
    state: Path
    batch: int = 1
    """How many that wait go together."""
    _one_at_a_time: asyncio.Lock = field(default_factory=asyncio.Lock)
    _queue: LandingQueue = field(init=False)

    def __post_init__(self) -> None:
        self._queue = LandingQueue(lock=self.lock, land=self._land, most=self.batch)

    async def land(
        self, task: Task, folder: Path, say: Callable[[str], None] = lambda _: None, *, by_hand: bool = False
    ) -> Landed:
        """Land the task's branch, or say why not. ``folder`` takes the gate's output."""
        self.ledger.note(task.id, Step.LAND, RunPhase.BEGUN, way=MERGE)
        return await catch_refusal(self._land_task(task, folder, say, by_hand))

    async def _land_task(self, task: Task, folder: Path, say: Callable[[str], None], by_hand: bool) -> Landed:
        recorded = self.ledger.records[task.id].worktree.base
        tip = await run_in_thread(self.eligibility.landable_tip, task.id, recorded=recorded, by_hand=by_hand)
        landed = await self._queue.join(BatchMember(task=task, tip=tip, folder=folder, say=say))
        return landed if landed.result is not LandingResult.MERGED else await self.finish(task, tip, landed)

    async def _land(self, members: Sequence[BatchMember]) -> None:
        batch = LandingBatch(branch=self.branch, rebaser=self.rebaser, gate=self.gate, ledger=self.ledger)
        await batch.land(members)

    async def go_on(self, task: Task, record: TaskRecord, again: Callable[[], Awaitable[Landed]]) -> Landed:
        """A landing that another engine left behind: finish it if the branch has moved, else ``again``."""
        await self.gate.end_leftover(record)
        if not await run_in_thread(self.has_advanced, record):
            return await again()
        tip = await run_in_thread(self.repository.tip, f"{BRANCHES}{task.id}")
        async with self.lock(task.id):
            followed = await self.follow(task)
        return await self.finish(task, tip, self.merged_result(record.landing.new, followed))

    def merged_result(self, commit: str, *notes: str) -> Landed:
        return Landed(result=LandingResult.MERGED, commit=commit, notes=tuple(filter(None, notes)))

    async def tell_again(self, task_id: str) -> str:
        """Close a task that has landed and could not be closed then; words if that fails once more."""
        record = self.ledger.load_task(task_id)
        return await self._tell_source(task_id, record.landing.new) if record is not None else ""

    async def catch_up(self) -> None:
        """Bring along a checkout that was left behind, unless a landing is going on that will do it."""
        lock = RunLock(self.state / LOCK)
        if self._one_at_a_time.locked() or not lock.take():
            return
        try:
            await run_in_thread(self.branch.follow)
        finally:
            lock.release()

    def has_advanced(self, record: TaskRecord) -> bool:
        """Has the branch moved to what a landing wanted to move it to?"""
        new, tip = record.landing.new, self.repository.tip(self.repository.default)
        return bool(new and tip and self.repository.contains(tip, new))

    @asynccontextmanager
    async def lock(self, task_id: str, told: Callable[[], None] = lambda: None) -> AsyncIterator[None]:
        """One at a time, in this process and in all others."""
        if self._one_at_a_time.locked():
            told()
        async with self._one_at_a_time:
            lock = RunLock(self.state / LOCK)
            await lock.wait(told, task=task_id)
            try:
                yield
            finally:
                lock.release()

    # -- what follows once the branch has moved; all of it may be done twice --------------------------------

    async def follow(self, task: Task) -> str:
        """Bring the checkout along, under the lock; words about one that was left alone."""
        self.ledger.note(task.id, Step.CHECKOUT, RunPhase.BEGUN)
        followed = await run_in_thread(self.branch.follow)
        self.ledger.note(task.id, Step.CHECKOUT)
        return followed

    async def finish(self, task: Task, tip: str | None, landed: Landed) -> Landed:
        """Tell the source, and remove worktree and branch; that holds up no other landing."""
        told = await self._tell_source(task.id, landed.commit)
        self.ledger.note(task.id, Step.CLEAN, RunPhase.BEGUN)
        kept = await run_in_thread(self._clean, task, tip)
        self.ledger.note(task.id, Step.CLEAN)
        return replace(landed, notes=(*landed.notes, *filter(None, (told, kept))))

    async def _tell_source(self, task_id: str, new: str) -> str:
        """Words if it could not be told."""
        self.ledger.note(task_id, Step.TELL, RunPhase.BEGUN)
        try:
            await run_in_thread(self.source.close, task_id, commit=new)
        except FlyballError as error:
            words = f"{task_id} has landed, and could not be closed: {error}"
            return f"{words}; the next run tries again, or close it by hand"
        self.ledger.note(task_id, Step.TELL)
        return ""

    def _clean(self, task: Task, tip: str | None) -> str:
        """Words if something had to stay."""
        try:
            self.workspaces.remove(task.id)
            if tip is not None:
                self.repository.delete_branch(f"{BRANCHES}{task.id}", tip=tip)
        except GitError as error:
            return f"{task.id} has landed, and something of it stays: {error}"
        return ""


async def catch_refusal(landing: Awaitable[Landed]) -> Landed:
    """A refusal, or git's own failure, is an answer too."""
    try:
        return await landing
    except Refused as refused:
        return refused.landed
    except GitError as error:
        return Landed(result=LandingResult.ERROR, why=str(error), detail=error.output)
