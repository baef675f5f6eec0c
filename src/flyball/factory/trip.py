"""One task's trip: worktree, slot, agent, landing, and again if need be.

The order of things is here; what to do next is decided in ``core/recovery.py`` and every step is in the
ledger before it happens. A trip ends merged, parked or blocked; or it is left where it stands, to be gone on
with by the next run.

    place in the run's width -> worktree -> slot of the pool -> agent -> how it ended
        -> land -> merged
        -> again: after a pause, with its session or fresh, through admission like everyone
        -> blocked, parked
"""

from __future__ import annotations

import asyncio
import errno
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path

from flyball.core.ready import Item
from flyball.core.recovery import NO_RETRIES, Move, Next, after_end, after_landing, on_resume
from flyball.core.slotrun import Cause, Mark, SlotRun, State, Step
from flyball.core.verdict import CLOSED_REASONS, Verdict, span_words
from flyball.errors import AccountError, FlyballError, InvariantError, StoreError, StoreFullError
from flyball.factory import runs
from flyball.factory.agent import AgentWatch
from flyball.factory.attempt import Attempts, spent
from flyball.factory.git import full_words
from flyball.factory.landing import Landed, Result
from flyball.factory.threads import off_loop
from flyball.factory.workshop import Workshop
from flyball.factory.worktree import Worktree
from flyball.governor.kept import exit_code, refusal
from flyball.governor.lease import Lease
from flyball.host.process import alive
from flyball.runtimes.port import End, Ending

_OVER = {Move.MERGED: Step.MERGED, Move.PARK: Step.PARK, Move.BLOCK: Step.BLOCK}
_STOPPED = "the run was stopped"


class Trip:
    def __init__(
        self,
        shop: Workshop,
        item: Item,
        *,
        changed: Callable[[], None],
        nudges: Callable[[str], list[str]] = lambda _: [],
    ) -> None:
        self.shop, self.task, self.item = shop, item.task, item
        self.attempts = Attempts(
            shop=shop, task=item.task, resources=item.resources, nudges=nudges, changed=changed
        )
        self.first = Next(move=Move.PREPARE)
        self.by_hand = False
        """A person said to land it, whatever the policy."""
        self.doing = ""
        """What it waits for or does beside what its state says, in words."""
        self.parked_in_pool = False
        self.shut_out = ""
        """Why the pool admits nobody, while it does not."""
        self.wants_place = True
        self.paused = ""
        """Why the whole run cannot go on: only a person changes that, or time that nobody can tell."""
        self.notes: list[str] = []
        self._changed = changed
        self._leaving = self._stopping = self._interrupted = False
        self._has_place = False
        self._task: asyncio.Task[None] | None = None

    @property
    def slot(self) -> SlotRun:
        return self.shop.ledger.slots[self.task.id]

    @property
    def agent(self) -> AgentWatch | None:
        return self.attempts.agent

    def start(self) -> asyncio.Task[None]:
        self.wants_place = self.first.move is Move.PREPARE
        self._task = asyncio.create_task(self._go(self.first), name=self.task.id)
        return self._task

    # -- being told from outside ----------------------------------------------------------------------

    def leave(self) -> None:
        """Drain: let the agent finish and land, and start none."""
        self._leaving = True
        if self.slot.state in (State.CLAIMED, State.READY) and not self.attempts.launching and self._task:
            self._task.cancel()

    def stop(self) -> None:
        """Pause: end the agent, keep everything it has done."""
        self._leaving = self._stopping = True
        if self.agent is not None:
            self.agent.stop(_STOPPED)
        elif not self.attempts.launching and self._task is not None:
            self._task.cancel()

    def interrupt(self) -> None:
        """Have the agent take up a message at once."""
        if self.agent is not None:
            self._interrupted = True
            self.agent.stop("interrupted for a message")

    def _agent_changed(self) -> None:
        if self._stopping and self.agent is not None:
            self.agent.stop(_STOPPED)
        self._changed()

    # -- the story --------------------------------------------------------------------------------------

    async def _go(self, step: Next) -> None:
        self.attempts.changed = self._agent_changed
        try:
            while step.move is not Move.LEAVE and step.move not in _OVER:
                step = await self._one(step)
            await self._over(step)
        except asyncio.CancelledError:
            if not self._leaving:
                raise
        except (StoreError, InvariantError):
            raise
        except AccountError as error:
            # Nobody may go on under this account; the task stays where it stands.
            self.paused = str(error)
        except (FlyballError, OSError) as error:
            if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
                raise StoreFullError(full_words(Path(error.filename or self.shop.state))) from error
            await self._over(Next(move=Move.BLOCK, why=str(error)))
        finally:
            self._give_place_back()
            self._say("")

    async def _one(self, step: Next) -> Next:
        if step.move in (Move.PREPARE, Move.AGAIN):
            return await self._attempt(step)
        if step.move is Move.REATTACH:
            return await self._reattached()
        if step.move is Move.JUDGE:
            return await self._judged_from_files()
        if step.move is Move.CHECK:
            return Next(move=Move.LAND)
        if step.move is Move.LAND_ON:
            return await self._landed(self.shop.landing.go_on(self.task, self.slot, self._folder()))
        return await self._land()

    async def _over(self, step: Next) -> None:
        if step.move in _OVER:
            self.shop.ledger.note(self.task.id, _OVER[step.move], reason=step.why)
        if step.move is Move.BLOCK:
            await self._tell_source(self.shop.source.unclaim)

    async def _tell_source(self, tell: Callable[[str], None]) -> None:
        """The ledger is what counts; a source that cannot be told now is no reason to stop."""
        with suppress(FlyballError):
            await off_loop(tell, self.task.id)

    # -- an attempt -------------------------------------------------------------------------------------

    async def _attempt(self, step: Next) -> Next:
        """From wherever it stands to the end of one agent."""
        if step.move is Move.AGAIN:
            self._sent_back(step)
            self.paused = step.pause
        if self._leaving or step.pause:
            return Next(move=Move.LEAVE)
        self.wants_place = False
        await self._until(self.slot.until)
        self.wants_place = True
        await self._take_place()
        try:
            tree = await self._worktree()
            lease = await self._slot_of_pool()
            self._say("")
            ending = await self.attempts.run(tree.path, lease)
        finally:
            self._give_place_back()
        return await self._judged(ending)

    def _sent_back(self, step: Next) -> None:
        self.shop.ledger.note(
            self.task.id,
            Step.BACK,
            cause=(step.cause or Cause.FAILED).value,
            reason=step.why,
            detail=step.detail,
            until=time.time() + step.wait_s if step.wait_s else 0.0,
            fresh=step.fresh,
        )

    async def _until(self, wall: float) -> None:
        """A pause, the time of a sleeping machine counted."""
        while (left_s := wall - time.time()) > 0:
            self._say(f"again in {span_words(left_s)}: {self.slot.reason}")
            await asyncio.sleep(min(left_s, 30.0))

    async def _take_place(self) -> None:
        if not self._has_place:
            self._say("waits for a place in this run's width")
            await self.shop.places.take()
            self._has_place = True

    def _give_place_back(self) -> None:
        self.wants_place = False
        if self._has_place:
            self._has_place = False
            self.shop.places.give_back()

    async def _worktree(self) -> Worktree:
        self._say("makes its worktree")
        again = self.slot.launches > 0
        if not again:
            await self._tell_source(self.shop.source.claim)
        self.shop.ledger.note(self.task.id, Step.WORKTREE, Mark.BEGUN)
        tree = await off_loop(self.shop.worktrees.ensure, self.task.id)
        if again:
            tree = await off_loop(self.shop.worktrees.refresh, tree)
        self.shop.ledger.note(
            self.task.id, Step.WORKTREE, worktree=str(tree.path), branch=tree.branch, base=tree.base
        )
        return tree

    async def _slot_of_pool(self) -> Lease:
        def told(verdict: Verdict) -> None:
            words = verdict.words().removeprefix("waiting: ")
            self.parked_in_pool = True
            self.shut_out = words if verdict.reason in CLOSED_REASONS else ""
            self._say(words)
            self.shop.places.told()

        self._say("asks for a slot")
        try:
            return await self.attempts.slot_of_pool(told)
        finally:
            self.shut_out = ""
            if self.parked_in_pool:
                self.parked_in_pool = False
                self.shop.places.told()

    # -- the agent's end --------------------------------------------------------------------------------

    async def _judged(self, ending: Ending) -> Next:
        """Write the end down, keep what was done, and say what is next."""
        signal = ending.signal
        self.shop.ledger.note(
            self.task.id,
            Step.END,
            **spent(ending),
            signal=signal.kind.value if signal else None,
            retry_after_s=signal.retry_after_s if signal else None,
        )
        if refused := refusal(Path(self.slot.folder)):
            return Next(move=Move.BLOCK, why=f"{refused}; see agent.command in flyball.toml")
        if self._interrupted:
            self._interrupted = False
            return Next(move=Move.AGAIN, cause=Cause.NUDGED, why="a message from a person")
        if ending.session_gone and self.slot.session is not None:
            return Next(move=Move.AGAIN, cause=Cause.INTERRUPTED, why=ending.reason, fresh=True)
        if self._stopping and ending.end is End.KILLED:
            return Next(move=Move.AGAIN, cause=Cause.INTERRUPTED, why=ending.reason)
        return await self._next_after(ending)

    async def _next_after(self, ending: Ending) -> Next:
        """Commit what lies around in a finished worktree, and decide."""
        self._say("keeps what the agent did")
        self.shop.ledger.note(self.task.id, Step.KEEP, Mark.BEGUN)
        message = f"{self.task.title}\n\nTask: {self.task.id}"
        finished = ending.end is End.FINISHED
        commits = await off_loop(
            self.shop.worktrees.gather, self.task.id, message, base=self.slot.base, commit=finished
        )
        self.shop.ledger.note(self.task.id, Step.KEEP)
        return after_end(
            self.slot,
            self.shop.budgets_for(self.task),
            end=ending.end.value,
            reason=ending.reason,
            signal=ending.signal,
            commits=commits,
        )

    # -- landing ------------------------------------------------------------------------------------------

    async def _land(self) -> Next:
        if self.shop.policy_for(self.task) == "manual" and not self.by_hand:
            return Next(move=Move.PARK, why=f"finished work waits for you: flyball merge {self.task.id}")
        self._say("")
        landing = self.shop.landing.land(
            self.task,
            self._folder(),
            lambda: self._say("waits for another landing"),
            by_hand=self.by_hand,
        )
        return await self._landed(landing)

    async def _landed(self, landing: Awaitable[Landed]) -> Next:
        landed = await landing
        self.notes += landed.notes
        # Whoever lands by hand looks at what came of it; no agent is set to work behind their back.
        budgets = NO_RETRIES if self.by_hand else self.shop.budgets_for(self.task)
        return after_landing(
            self.slot,
            budgets,
            result=landed.result.value,
            why=landed.commit[:12] if landed.result is Result.MERGED else landed.why,
            detail=landed.detail,
        )

    def _folder(self) -> Path:
        known = self.slot.folder
        return Path(known) if known else runs.new_folder(self.shop.state, self.task.id)

    # -- after the engine was gone ------------------------------------------------------------------------

    async def recovered(self, *, known: bool) -> Next:
        """What to do with a trip that another engine left behind. ``known``: its task is still there."""
        slot = self.slot
        if not known and slot.state in (State.CLAIMED, State.READY):
            return Next(move=Move.BLOCK, why="its task is gone; its branch is kept")
        running = slot.state is State.RUNNING
        commits = await off_loop(self.shop.worktrees.has_commits, self.task.id, slot.base)
        return on_resume(
            slot,
            self.shop.budgets_for(self.task),
            alive=running and self._lives(slot),
            ended_on_file=running and exit_code(Path(slot.folder)) is not None,
            commits=commits,
        )

    def _lives(self, slot: SlotRun) -> bool:
        """The agent, or the keeper that is about to write down how it ended."""
        return any(each is not None and alive(each) is not False for each in (slot.holder, slot.keeper))

    async def _reattached(self) -> Next:
        """It runs already, so it has its place, whatever the width."""
        self.shop.places.taken += 1
        self._has_place = self.wants_place = True
        try:
            ending = await self.attempts.reattach()
        finally:
            self._give_place_back()
        return await self._judged(ending)

    async def _judged_from_files(self) -> Next:
        """It ended while nobody looked: read what it left."""
        slot = self.slot
        if slot.state is State.RUNNING:
            return await self._judged(await self.attempts.read_from_files())
        if slot.end == End.FINISHED.value:
            return await self._next_after(Ending(end=End.FINISHED, reason=slot.reason))
        why = slot.reason or "the run ended before this was judged"
        return Next(move=Move.AGAIN, cause=Cause.INTERRUPTED, why=why)

    def _say(self, words: str) -> None:
        self.doing = words
        self._changed()
