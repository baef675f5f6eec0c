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
import os
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from flyball.core.footprint import Footprint
from flyball.core.model import Outcome
from flyball.core.recovery import Move, Next, after_end, after_landing, on_resume
from flyball.core.signals import Signal
from flyball.core.slotrun import Cause, Mark, SlotRun, State, Step
from flyball.core.task import Task
from flyball.core.verdict import Verdict, span_words
from flyball.errors import AgentError, FlyballError, InvariantError, StoreError
from flyball.factory import runs
from flyball.factory.agent import AgentWatch
from flyball.factory.landing import Landed, Result
from flyball.factory.process import Process
from flyball.factory.prompt import News, compile_news, compile_prompt
from flyball.factory.threads import off_loop
from flyball.factory.workshop import Workshop
from flyball.factory.worktree import Worktree
from flyball.governor import nested
from flyball.governor.asking import Asking
from flyball.governor.kept import exit_code
from flyball.governor.lease import Lease
from flyball.host.process import alive
from flyball.runtimes.port import Assignment, End, Ending

_OUTCOMES = {
    End.FINISHED: Outcome.FINISHED,
    End.LIMITED: Outcome.THROTTLED,
    End.FAILED: Outcome.FAILED,
}
_OPENINGS = {
    Cause.GATE: "The gate was red on your branch",
    Cause.CONFLICT: "Your branch clashes with {branch}: rebase it onto {branch} here, resolve the conflicts",
    Cause.FAILED: "The last try failed",
}


class Trip:
    def __init__(
        self,
        shop: Workshop,
        task: Task,
        footprint: Footprint | None,
        resources: dict[str, int],
        *,
        changed: Callable[[], None],
        nudges: Callable[[str], list[str]] = lambda _: [],
    ) -> None:
        self.shop, self.task, self.footprint, self.resources = shop, task, footprint, resources
        self._changed, self._nudges = changed, nudges
        self.doing = ""
        """What it waits for or does beside what its state says, in words."""
        self.parked_in_pool = False
        self.agent: AgentWatch | None = None
        self.paused = ""
        """Why the whole run cannot go on: only a person changes that, or time that nobody can tell."""
        self.by_hand = False
        """A person said to land it, whatever the policy."""
        self.first = Next(move=Move.PREPARE)
        self.wants_place = True
        self.notes: list[str] = []
        self.leaving = False
        """The run is being drained or stopped: no agent is started any more."""
        self._has_place = False
        self._task: asyncio.Task[None] | None = None

    @property
    def slot(self) -> SlotRun:
        return self.shop.ledger.slots[self.task.id]

    def start(self) -> asyncio.Task[None]:
        self.wants_place = self.first.move is Move.PREPARE
        self._task = asyncio.create_task(self._go(self.first), name=self.task.id)
        return self._task

    # -- being told from outside ----------------------------------------------------------------------

    def leave(self) -> None:
        """Drain: let the agent finish and land, and start none."""
        self.leaving = True
        if self.slot.state in (State.CLAIMED, State.READY) and self._task is not None:
            self._task.cancel()

    def stop(self) -> None:
        """Pause: end the agent, keep everything it has done."""
        self.leaving = True
        if self.agent is not None:
            self.agent.stop("the run was stopped")
        elif self._task is not None:
            self._task.cancel()

    def interrupt(self) -> None:
        """Have the agent take up a message at once."""
        if self.agent is not None:
            self.agent.stop("interrupted for a message")
            self._interrupted = True

    _interrupted = False

    # -- the story --------------------------------------------------------------------------------------

    async def _go(self, step: Next) -> None:
        try:
            while step.move not in (Move.MERGED, Move.BLOCK, Move.PARK, Move.LEAVE):
                step = await self._one(step)
            self._over(step)
        except asyncio.CancelledError:
            if not self.leaving:
                raise
        except (StoreError, InvariantError):
            raise
        except FlyballError as error:
            self._over(Next(move=Move.BLOCK, why=str(error)))
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
        if step.move is Move.LAND_ON:
            slot, folder = self.slot, self._folder()
            return await self._landed(self.shop.landing.go_on(self.task, slot, folder))
        return await self._land()

    def _over(self, step: Next) -> None:
        if step.move is Move.MERGED:
            self.shop.ledger.note(self.task.id, Step.MERGED, reason=step.why)
        elif step.move is Move.PARK:
            self.shop.ledger.note(self.task.id, Step.PARK, reason=step.why)
        elif step.move is Move.BLOCK:
            self.shop.ledger.note(self.task.id, Step.BLOCK, reason=step.why)

    # -- an attempt -------------------------------------------------------------------------------------

    async def _attempt(self, step: Next) -> Next:
        """From wherever it stands to the end of one agent."""
        if step.move is Move.AGAIN:
            self._sent_back(step)
            if step.pause:
                self.paused = step.pause
                return Next(move=Move.LEAVE)
            if self.leaving:
                return Next(move=Move.LEAVE)
        self.wants_place = False
        await self._until(self.slot.until)
        self.wants_place = True
        await self._take_place()
        try:
            tree = await self._worktree()
            lease = await self._slot_of_pool()
            ending = await self._with_agent(tree, lease)
        finally:
            self._give_place_back()
        return await self._judged(ending)

    def _sent_back(self, step: Next) -> None:
        until = time.time() + step.wait_s if step.wait_s else 0.0
        cause = (step.cause or Cause.FAILED).value
        self.shop.ledger.note(
            self.task.id, Step.BACK, cause=cause, reason=step.why, until=until, fresh=step.fresh
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
        self.shop.ledger.note(self.task.id, Step.WORKTREE, Mark.BEGUN)
        tree = await off_loop(self.shop.worktrees.ensure, self.task.id)
        if again:
            tree, _ = await off_loop(self.shop.worktrees.refresh, tree)
        self.shop.ledger.note(
            self.task.id, Step.WORKTREE, worktree=str(tree.path), branch=tree.branch, base=tree.base
        )
        return tree

    async def _slot_of_pool(self) -> Lease:
        def told(verdict: Verdict) -> None:
            self.parked_in_pool = True
            self._say(verdict.words())

        self._say("asks for a slot")
        try:
            lease = await self.shop.governor.acquire_asking_async(self._asking(), on_wait=told)
        finally:
            if self.parked_in_pool:
                self.parked_in_pool = False
                self.shop.places.told()
        return lease

    def _asking(self) -> Asking:
        return Asking(
            pool=self.shop.pool,
            project=self.shop.project,
            name=self.task.id,
            priority=self.shop.config.run.priority,
            resources=self.resources,
            model=self.shop.model_for(self.task),
            pid=os.getpid(),
        )

    async def _with_agent(self, tree: Worktree, lease: Lease) -> Ending:
        await self.shop.staggered()
        try:
            process, folder = await self._launch(tree, lease)
        except BaseException:
            await self.shop.governor.release_async(lease, Outcome.ABANDONED)
            raise
        return await self._followed(process, lease, folder, found_again=False)

    async def _launch(self, tree: Worktree, lease: Lease) -> tuple[Process, Path]:
        """Written down, started behind its gate, tied to its lease, written down, let go."""
        self._say("starts its agent")
        slot, ledger = self.slot, self.shop.ledger
        folder = await off_loop(runs.new_folder, self.shop.state, self.task.id)
        ledger.note(self.task.id, Step.LAUNCH, Mark.BEGUN, folder=str(folder))
        prompt = folder / runs.PROMPT
        prompt.write_text(self._prompt(slot), encoding="utf-8")
        launch = self.shop.runtime.launch(self._assignment(slot))
        env = {**self.shop.environment(), **launch.env, **self._variables(slot, prompt, lease)}
        process = await off_loop(
            Process.start, launch.argv, env=env, cwd=tree.path, folder=folder, stdin=prompt
        )
        try:
            bound = await off_loop(self.shop.governor.rebind, lease, process.holder.pid)
            if not bound:
                raise AgentError(f"the lease on {lease.pool} was taken away before the agent could start")
            ledger.note(
                self.task.id,
                Step.LAUNCH,
                holder=process.holder,
                keeper=process.keeper,
                claim_id=lease.id,
                pool=lease.pool,
                model=self.shop.model_for(self.task),
            )
        except BaseException:
            process.cancel()
            raise
        process.open_gate()
        return process, folder

    def _assignment(self, slot: SlotRun) -> Assignment:
        agent = self.shop.config.agent
        return Assignment(
            program=agent.command,
            model=self.shop.model_for(self.task),
            args=agent.args,
            max_turns=agent.max_turns,
            max_cost_usd=agent.max_cost_usd,
            session=slot.session,
        )

    def _prompt(self, slot: SlotRun) -> str:
        nudges = self._nudges(self.task.id)
        news = News(attempt=slot.attempt, why_back=self._why_back(slot), nudges=nudges)
        goes_on = slot.session is not None and self.shop.runtime.name != "command"
        return compile_news(self.task, news) if goes_on else compile_prompt(self.shop.terms, self.task, news)

    def _why_back(self, slot: SlotRun) -> str:
        """What the agent should know about why it starts again."""
        if slot.cause in (None, Cause.LIMITED, Cause.NUDGED, Cause.INTERRUPTED):
            return f"The last try was stopped: {slot.reason}" if slot.reason and slot.cause is None else ""
        opening = _OPENINGS[slot.cause].format(branch=self.shop.repository.default)
        return f"{opening}: {slot.reason}\n\n{self._detail}".strip()

    _detail = ""

    def _variables(self, slot: SlotRun, prompt: Path, lease: Lease) -> dict[str, str]:
        return {
            "FLYBALL_TASK": self.task.id,
            "FLYBALL_ATTEMPT": str(slot.attempt),
            "FLYBALL_PROMPT_FILE": str(prompt),
            "FLYBALL_RUN": f"{self.shop.ledger.run}/{prompt.parent}",
            nested.VARIABLE: nested.exported(self.shop.governor.address, lease.pool, lease.id),
        }

    # -- the agent's end --------------------------------------------------------------------------------

    async def _followed(self, process: Process, lease: Lease, folder: Path, *, found_again: bool) -> Ending:
        self._say("")
        self.agent = AgentWatch(
            process,
            self.shop.runtime.reader(),
            watch=self.shop.watch,
            ceilings=self.shop.ceilings(),
            tell=lambda signal: self._report(lease, signal),
            session=self._learned,
            changed=self._changed,
            started=self.slot.since,
            found_again=found_again,
        )
        try:
            ending = await self.agent.follow()
        finally:
            self.agent = None
        if ending.end is End.LIMITED and ending.signal is not None and not ending.told:
            self._report(lease, ending.signal)
        await self.shop.governor.release_async(lease, _OUTCOMES.get(ending.end, Outcome.ABANDONED))
        runs.write_summary(folder, task=self.task.id, attempt=self.slot.attempt, **_summary(ending))
        return ending

    def _learned(self, session: str) -> None:
        if session != self.slot.session:
            self.shop.ledger.note(self.task.id, Step.SESSION, session=session)

    def _report(self, lease: Lease, signal: Signal) -> None:
        # The agent runs on whether or not the pool can be told just now.
        with suppress(StoreError):
            self.shop.governor.report(
                lease.pool, signal, project=lease.project, name=lease.name, claim_id=lease.id
            )

    async def _judged(self, ending: Ending) -> Next:
        """Write the end down, keep what was done, and say what is next."""
        summary = _summary(ending)
        self.shop.ledger.note(
            self.task.id,
            Step.END,
            end=ending.end.value,
            reason=ending.reason,
            session=ending.progress.session,
            tokens=summary["tokens"],
            cost_usd=summary["cost_usd"],
            signal=ending.signal.kind.value if ending.signal else None,
            retry_after_s=ending.signal.retry_after_s if ending.signal else None,
        )
        if self._interrupted:
            self._interrupted = False
            return Next(move=Move.AGAIN, cause=Cause.NUDGED, why="a message from a person")
        if self.leaving and ending.end is End.KILLED:
            return Next(move=Move.AGAIN, cause=Cause.INTERRUPTED, why=ending.reason)
        commits = await self._kept(ending)
        return after_end(
            self.slot,
            self.shop.budgets_for(self.task),
            end=ending.end.value,
            reason=ending.reason,
            signal=ending.signal,
            commits=commits,
        )

    async def _kept(self, ending: Ending) -> bool:
        """Commit what lies around in a finished worktree; is there anything on the branch?"""
        self._say("keeps what the agent did")
        self.shop.ledger.note(self.task.id, Step.KEEP, Mark.BEGUN)
        message = f"{self.task.title}\n\nTask: {self.task.id}"
        finished = ending.end is End.FINISHED
        commits = await off_loop(
            self.shop.worktrees.gather, self.task.id, message, base=self.slot.base, commit=finished
        )
        self.shop.ledger.note(self.task.id, Step.KEEP)
        return commits

    # -- landing ------------------------------------------------------------------------------------------

    async def _land(self) -> Next:
        if self.shop.policy_for(self.task) == "manual" and not self.by_hand:
            return Next(move=Move.PARK, why=f"green work waits for you: flyball merge {self.task.id}")
        self._say("lands")
        waits = lambda: self._say("waits for another landing")  # noqa: E731
        return await self._landed(
            self.shop.landing.land(self.task, self._folder(), waits, by_hand=self.by_hand)
        )

    async def _landed(self, landing: object) -> Next:
        landed: Landed = await landing  # type: ignore[misc]
        self.notes += landed.notes
        self._detail = landed.detail
        why = landed.commit[:12] if landed.result is Result.MERGED else landed.why
        return after_landing(self.slot, self.shop.budgets_for(self.task), result=landed.result.value, why=why)

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
        slot = self.slot
        if slot.holder is None or slot.keeper is None:
            raise InvariantError(f"{self.task.id} is alive, and nobody knows its process")
        lease = await off_loop(self.shop.governor.take_over, slot.holder.pid, self._asking(), slot.claim_id)
        self.shop.places.taken += 1
        self._has_place = self.wants_place = True
        process = Process(Path(slot.folder), slot.holder, slot.keeper)
        try:
            ending = await self._followed(process, lease, Path(slot.folder), found_again=True)
        finally:
            self._give_place_back()
        return await self._judged(ending)

    async def _judged_from_files(self) -> Next:
        """It ended while nobody looked: read what it left."""
        slot = self.slot
        if slot.state is State.ENDED and slot.end == End.FINISHED.value:
            return await self._end_again(slot)
        if slot.state is State.ENDED:
            why = slot.reason or "the run ended before this was judged"
            return Next(move=Move.AGAIN, cause=Cause.INTERRUPTED, why=why)
        reader, folder = self.shop.runtime.reader(), Path(slot.folder)
        ending = await off_loop(_read_all, reader, folder)
        return await self._judged(ending)

    async def _end_again(self, slot: SlotRun) -> Next:
        ending = Ending(end=End.FINISHED, reason=slot.reason)
        commits = await self._kept(ending)
        budgets = self.shop.budgets_for(self.task)
        return after_end(slot, budgets, end=slot.end, reason=slot.reason, signal=None, commits=commits)

    def _say(self, words: str) -> None:
        self.doing = words
        self._changed()


def _summary(ending: Ending) -> dict[str, object]:
    progress = ending.progress
    return {
        "end": ending.end.value,
        "reason": ending.reason,
        "session": progress.session,
        "model": progress.model,
        "tokens": progress.tokens.total if progress.tokens else None,
        "cost_usd": progress.cost_usd,
        "turns": progress.turns,
    }


def _read_all(reader: object, folder: Path) -> Ending:
    from flyball.governor.kept import STDERR, STDOUT

    feeds = {STDOUT: reader.feed, STDERR: reader.feed_stderr}  # type: ignore[attr-defined]
    for name, feed in feeds.items():
        with suppress(OSError), open(folder / name, "rb") as file:
            while piece := file.read(1 << 18):
                feed(piece, wall_s=time.time())
    ending: Ending = reader.finish(exit_code(folder), wall_s=time.time())  # type: ignore[attr-defined]
    return ending
