"""One task's trip: worktree, slot, agent, landing, and again if need be.

The order of things is here; what to do next is decided in ``core/tasks/next_step.py`` and every step is in
the ledger before it happens. A trip ends merged, parked or blocked; or it is left where it stands, to be gone
on with by the next run.

    place in the run's width -> worktree -> slot of the pool -> agent -> how it ended
        -> check (stages, review) -> land -> merged
        -> again: after a pause, with its session or fresh, through admission like everyone
        -> blocked, parked

The last leg of a trip: finished work is looked at, and lands.

    check: its stages, its review -> land: as a person said, or as the policy does
                                       merge   into the default branch, behind the gate
                                       pr      pushed, and opened as a pull request
                                       manual  it waits for a person

Where reviews are on, work lands by itself only as it was when it passed. What a person says to land, lands
whatever a review said, and comes back to them whatever comes of it.
"""

from __future__ import annotations

import asyncio
import errno
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

from flyball.core.tasks.labels import MANUAL
from flyball.core.tasks.next_step import (
    NO_RETRIES,
    Action,
    Decision,
    after_end,
    after_landing,
    may_let_go,
    on_resume,
    pull_words,
)
from flyball.core.tasks.readiness import ReadyTask
from flyball.core.tasks.task import Task
from flyball.core.tasks.task_run import Cause, RunPhase, State, Step, TaskRunState
from flyball.errors import AccountError, FlyballError, GitError, InvariantError, StoreError, StoreFullError
from flyball.factory.agents.watcher import AgentWatcher
from flyball.factory.git.git import full_words
from flyball.factory.git.repository import BRANCHES
from flyball.factory.git.worktree import Worktree
from flyball.factory.landing.default_branch import MovedError
from flyball.factory.landing.result import Landed, LandingResult
from flyball.factory.run.agent_attempt import Attempts, spent
from flyball.factory.run.checks import Checking
from flyball.factory.run.context import RunContext
from flyball.factory.run.helper_agent import HelperAgents, Stopped
from flyball.factory.run.review import Reviewing, still_reviewed
from flyball.factory.run.waiting import Waits
from flyball.factory.state import run_folders
from flyball.factory.state.threads import off_loop
from flyball.governor.launch.supervised_child import exit_code, refusal
from flyball.host.process import alive
from flyball.runtimes.port import End, Ending


@dataclass(slots=True, kw_only=True)
class Finish:
    shop: RunContext
    task: Task
    errands: HelperAgents
    waits: Waits
    how: str = ""
    """What a person said to do with it, whatever the policy: ``merge``; ``pr``, open a pull request;
    ``approved`` or ``unapproved``, land the one that is open, if people approved it or not; ``review`` it."""
    notes: list[str] = field(default_factory=list)
    result: str | None = None
    """What its landing came to."""

    @property
    def slot(self) -> TaskRunState:
        return self.shop.ledger.slots[self.task.id]

    @property
    def by_hand(self) -> bool:
        return bool(self.how)

    async def check(self) -> Decision:
        """Its stages and its review."""
        checking = Checking(shop=self.shop, task=self.task, errands=self.errands)
        try:
            return await checking.check()
        finally:
            self.waits.give_place_back()
            self.notes += checking.notes

    async def land(self) -> Decision:
        if self.how == "review":
            return await self._review_pull()
        on = self.shop.config.review.on and not self.by_hand
        if on and (why := await off_loop(still_reviewed, self.shop, self.slot)):
            return Decision(move=Action.PARK, why=why)
        policy = self.shop.policy_for(self.task)
        if policy.name == MANUAL and not self.by_hand:
            doubt = f"the label {policy.unknown} names no policy, so " if policy.unknown else ""
            why = f"{doubt}finished work waits for you: flyball merge {self.task.id}"
            return Decision(move=Action.PARK, why=why)
        self.waits.say("")
        return await self._landed(self._landing())

    async def land_on(self) -> Decision:
        """A landing that was cut short. Who began it without a review was told to by a person."""
        landing, slot = self.shop.landing, self.slot
        bound = slot.passed and not self.by_hand and not await off_loop(landing.has_advanced, slot)
        if bound and (why := await off_loop(still_reviewed, self.shop, slot)):
            await landing.gate.end_leftover(slot)
            return Decision(move=Action.PARK, why=why)
        return await self._landed(landing.go_on(self.task, slot, self._landing))

    def _landing(self) -> Awaitable[Landed]:
        """As a person said, or the policy does."""
        task, folder, pulls, say = self.task, self._folder(), self.shop.pulls, self.waits.say
        how = self.how or self.shop.policy_for(task).name
        if how == "pr":
            return pulls.open(task, folder, say)
        if how in ("approved", "unapproved"):
            return pulls.land(task, folder, say, unapproved=how == "unapproved")
        return self.shop.landing.land(task, folder, say, by_hand=self.by_hand)

    async def _landed(self, landing: Awaitable[Landed]) -> Decision:
        landed = await landing
        self.notes += landed.notes
        self.result = landed.result.value
        # Whoever lands by hand looks at what came of it; no agent is set to work behind their back.
        budgets = NO_RETRIES if self.by_hand else self.shop.budgets_for(self.task)
        return after_landing(
            self.slot,
            budgets,
            result=landed.result.value,
            why=landed.commit[:12] if landed.result is LandingResult.MERGED else landed.why,
            detail=landed.detail,
            waits=landed.waits,
        )

    async def _review_pull(self) -> Decision:
        """A person wants to know what a reviewer says; its pull request stays open whatever that is."""
        self.result = LandingResult.PR_OPENED.value
        self.shop.ledger.note(self.task.id, Step.REVIEW, RunPhase.BEGUN)
        try:
            head = await off_loop(self.shop.pulls.head_of, self.task.id)
            reviewing = Reviewing(shop=self.shop, task=self.task, errands=self.errands)
            found = await reviewing.of_pull(head)
        except Stopped as cut:
            if cut.step.move is Action.LEAVE:
                return cut.step
            return replace(self._open_still(cut.step.why), pause=cut.step.pause)
        except GitError as error:
            return self._open_still(str(error))
        finally:
            self.waits.give_place_back()
        return self._open_still(f"unreviewed: {found}" if isinstance(found, str) else found.why())

    def _open_still(self, why: str) -> Decision:
        return Decision(move=Action.PARK, why=f"{pull_words(self.slot)}; {why}")

    def _folder(self) -> Path:
        known = self.slot.folder
        return Path(known) if known else run_folders.new_folder(self.shop.state, self.task.id)


_OVER = {Action.MERGED: Step.MERGED, Action.PARK: Step.PARK, Action.BLOCK: Step.BLOCK}
_STOPPED = "the run was stopped"


class TaskRun:
    def __init__(
        self,
        shop: RunContext,
        item: ReadyTask,
        *,
        changed: Callable[[], None],
        nudges: Callable[[str], list[str]] = lambda _: [],
    ) -> None:
        self.shop, self.task, self.item = shop, item.task, item
        self.attempts = Attempts(
            shop=shop, task=item.task, resources=item.resources, nudges=nudges, changed=changed
        )
        self.first = Decision(move=Action.PREPARE)
        self.waits = Waits(shop, changed=changed)
        self.errands = HelperAgents(
            shop=shop, task=item.task, resources=item.resources, waits=self.waits, changed=changed
        )
        self.last_leg = Finish(shop=shop, task=item.task, errands=self.errands, waits=self.waits)
        self.stopped = ""
        """Why its agent was ended and it is left where it stands."""
        self.dropped = False
        """A person closed its task: whatever it does is ended, and it is let go."""
        self.paused = ""
        """Why the whole run cannot go on: only a person changes that, or time that nobody can tell."""
        self._changed = changed
        self._interrupted = False
        self._task: asyncio.Task[None] | None = None

    @property
    def slot(self) -> TaskRunState:
        return self.shop.ledger.slots[self.task.id]

    @property
    def notes(self) -> list[str]:
        """Said to whoever runs it, though nothing went wrong."""
        return self.last_leg.notes

    @property
    def agent(self) -> AgentWatcher | None:
        """Whoever runs for it now: its own, a stage's, a reviewer."""
        return self.attempts.agent or self.errands.agent

    @property
    def doing(self) -> str:
        return self.waits.doing

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
        done = self.slot.state in (State.ENDED, State.CHECKING, State.LANDING) and not self.waits.waiting
        return not self.shut_out and (self.waits.placed or done)

    def start(self) -> asyncio.Task[None]:
        self.waits.wants_place = self.first.move is Action.PREPARE
        self._task = asyncio.create_task(self._go(self.first), name=self.task.id)
        return self._task

    # -- being told from outside ----------------------------------------------------------------------

    def leave(self) -> None:
        """Drain: let the agent finish and land, and start none."""
        self.waits.leaving = True
        before = self.slot.state in (State.CLAIMED, State.READY)
        waits = self.slot.state is State.CHECKING and self.waits.waiting
        if (before or waits) and not self._launching and self._task:
            self._task.cancel()

    def stop(self, why: str = _STOPPED) -> None:
        """Pause: end the agent, keep everything it has done."""
        self.waits.leaving = self.waits.stopping = True
        self.stopped = why
        if self.agent is not None:
            self.agent.stop(why)
        elif not self._launching and self._task is not None:
            self._task.cancel()

    def drop(self) -> None:
        """Its task was closed by a person, who does not want its work to go on."""
        self.dropped = True
        self.stop("its task was closed")

    @property
    def _launching(self) -> bool:
        return self.attempts.launching or self.errands.launching

    def interrupt(self) -> None:
        """Have its own agent take up a message at once; nobody else is concerned by it."""
        if self.attempts.agent is not None:
            self._interrupted = True
            self.attempts.agent.stop("interrupted for a message")

    def _agent_changed(self) -> None:
        if self.agent is not None:
            progress = self.agent.progress
            self.shop.purse.saw(self.task.id, progress.cost_usd, progress.windows)
        if self.waits.stopping and self.agent is not None:
            self.agent.stop(self.stopped)
        self._changed()

    # -- the story --------------------------------------------------------------------------------------

    async def _go(self, step: Decision) -> None:
        self.attempts.changed = self.errands.changed = self._agent_changed
        try:
            while not self.dropped and step.move is not Action.LEAVE and step.move not in _OVER:
                step = await self._one(step)
            await self._over(step if not self.dropped else Decision(move=Action.LEAVE))
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
                raise StoreFullError(full_words(Path(error.filename or self.shop.state))) from error
            await self._over(Decision(move=Action.BLOCK, why=str(error)))
        finally:
            self.waits.give_place_back()
            self.waits.say("")
        if self.dropped and may_let_go(self.slot):
            self.notes.append(await self.let_go())

    async def _one(self, step: Decision) -> Decision:
        if step.move in (Action.PREPARE, Action.AGAIN):
            return await self._attempt(step)
        if step.move is Action.REATTACH:
            return await self._reattached()
        if step.move is Action.JUDGE:
            return await self._judged_from_files()
        found = await self._last(step.move)
        self.paused = found.pause
        return found

    async def _last(self, move: Action) -> Decision:
        if move is Action.CHECK:
            return await self.last_leg.check()
        return await (self.last_leg.land_on() if move is Action.LAND_ON else self.last_leg.land())

    async def _over(self, step: Decision) -> None:
        if step.move in _OVER:
            fields = {"reason": step.why, "result": self.last_leg.result, "said": step.said}
            self.shop.ledger.note(self.task.id, _OVER[step.move], **fields)
        if step.move is Action.BLOCK:
            await self._tell_source(self.shop.source.unclaim)

    async def _tell_source(self, tell: Callable[[str], None]) -> None:
        """The ledger is what counts; a source that cannot be told now is no reason to stop."""
        with suppress(FlyballError):
            await off_loop(tell, self.task.id)

    # -- an attempt -------------------------------------------------------------------------------------

    async def _attempt(self, step: Decision) -> Decision:
        """From wherever it stands to the end of one agent."""
        if step.move is Action.AGAIN:
            self._sent_back(step)
            self.paused = step.pause
        if self.waits.leaving or step.pause:
            return Decision(move=Action.LEAVE)
        self.waits.wants_place = False
        await self.waits.until(self.slot.until, self.slot.reason)
        if self.shop.base_gate.pending:
            self.waits.say("waits for the gate on the base")
        if await self.shop.base_gate.is_red():
            return Decision(move=Action.LEAVE)
        if overspent := await self.waits.paid_for(self.attempts.admitted):
            return Decision(move=Action.BLOCK, why=overspent)
        try:
            await self.waits.take_place()
            tree = await self._worktree()
            lease = await self.waits.slot_of_pool(self.attempts.asking())
            self.waits.say("")
            ending = await self.attempts.run(tree.path, lease)
        finally:
            self.waits.give_place_back()
            self.shop.purse.ended(self.task.id, self.attempts.cost_usd)
        return await self._judged(ending)

    def _sent_back(self, step: Decision) -> None:
        self.shop.ledger.note(
            self.task.id,
            Step.BACK,
            cause=(step.cause or Cause.FAILED).value,
            reason=step.why,
            detail=step.detail,
            until=time.time() + step.wait_s if step.wait_s else 0.0,
            fresh=step.fresh,
        )

    async def _worktree(self) -> Worktree:
        self.waits.say("makes its worktree")
        if not self.slot.launches or self.slot.cause is Cause.REJECTED:
            await self._tell_source(self.shop.source.claim)
        self.shop.ledger.note(self.task.id, Step.WORKTREE, RunPhase.BEGUN)
        await off_loop(self.shop.landing.branch.check)
        trees, pull = self.shop.worktrees, self.shop.goes_by_pull(self.task)
        tree = await off_loop(trees.ensure, self.task.id, recorded=self.slot.base, pull=pull)
        # Whichever run worked here before, and however long ago: no agent works on a stale checkout.
        tree = await off_loop(trees.refresh, tree, pull=pull)
        self.shop.ledger.note(
            self.task.id, Step.WORKTREE, worktree=str(tree.path), branch=tree.branch, base=tree.base
        )
        return tree

    # -- the agent's end --------------------------------------------------------------------------------

    async def _judged(self, ending: Ending) -> Decision:
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
            return Decision(move=Action.BLOCK, why=f"{refused}; see agent.command in flyball.toml")
        if self._interrupted:
            self._interrupted = False
            return Decision(move=Action.AGAIN, cause=Cause.NUDGED, why="a message from a person")
        if ending.session_gone and self.slot.session is not None:
            return Decision(move=Action.AGAIN, cause=Cause.INTERRUPTED, why=ending.reason, fresh=True)
        if self.waits.stopping and ending.end is End.KILLED:
            return Decision(move=Action.AGAIN, cause=Cause.INTERRUPTED, why=ending.reason)
        return await self._next_after(ending)

    async def _next_after(self, ending: Ending) -> Decision:
        """Commit what lies around in a finished worktree, and decide."""
        self.waits.say("keeps what the agent did")
        self.shop.ledger.note(self.task.id, Step.KEEP, RunPhase.BEGUN)
        message = f"{self.task.title}\n\nTask: {self.task.id}"
        finished = ending.end is End.FINISHED
        commits = await off_loop(
            self.shop.worktrees.gather, self.task.id, message, base=self.slot.base, commit=finished
        )
        await off_loop(self.shop.landing.branch.check)
        self.shop.ledger.note(self.task.id, Step.KEEP, tip=await self._tip() if self.slot.stages else None)
        return after_end(
            self.slot,
            self.shop.budgets_for(self.task),
            end=ending.end.value,
            reason=ending.reason,
            signal=ending.signal,
            commits=commits,
        )

    async def _tip(self) -> str | None:
        return await off_loop(self.shop.repository.tip, f"{BRANCHES}{self.task.id}")

    # -- after the engine was gone ------------------------------------------------------------------------

    async def recovered(self, *, known: bool) -> Decision:
        """What to do with a trip that another engine left behind. ``known``: its task is still there."""
        await self.errands.end_leftover()
        slot = self.slot
        if not known and slot.state in (State.CLAIMED, State.READY, State.CHECKING):
            return Decision(move=Action.BLOCK, why="its task is gone; its branch is kept")
        running = slot.state is State.RUNNING
        commits = await off_loop(self.shop.worktrees.has_commits, self.task.id, slot.base)
        return on_resume(
            slot,
            self.shop.budgets_for(self.task),
            alive=running and self._lives(slot),
            ended_on_file=running and exit_code(Path(slot.folder)) is not None,
            commits=commits,
        )

    async def let_go(self) -> str:
        """Its task was closed meanwhile: end what still runs for it and keep its work; says so in words."""
        await self.errands.end_leftover()
        await self.attempts.end_leftover()
        kept = f"; its branch {self.slot.branch} is kept" if self.slot.branch else ""
        await self._over(Decision(move=Action.BLOCK, why=f"its task was closed{kept}"))
        by_hand = f", flyball merge {self.task.id} lands what is there" if kept else ""
        return f"{self.task.id} was closed before it landed and is let go{kept}{by_hand}"

    def _lives(self, slot: TaskRunState) -> bool:
        """The agent, or the keeper that is about to write down how it ended."""
        return any(each is not None and alive(each) is not False for each in (slot.holder, slot.keeper))

    async def _reattached(self) -> Decision:
        self.waits.has_place()
        self.attempts.admitted()
        try:
            ending = await self.attempts.reattach()
        finally:
            self.waits.give_place_back()
            self.shop.purse.ended(self.task.id, self.attempts.cost_usd)
        return await self._judged(ending)

    async def _judged_from_files(self) -> Decision:
        """It ended while nobody looked: read what it left."""
        slot = self.slot
        if slot.state is State.RUNNING:
            return await self._judged(await self.attempts.read_from_files())
        if slot.end == End.FINISHED.value:
            return await self._next_after(Ending(end=End.FINISHED, reason=slot.reason))
        why = slot.reason or "the run ended before this was judged"
        return Decision(move=Action.AGAIN, cause=Cause.INTERRUPTED, why=why)
