"""One agent for one task: launched with its lease or not at all, followed to its end, found again after us.

The launch is the one stretch that must not be cut in two: from the lease to the open gate, whoever wants to
stop the trip waits a moment. Before it nothing runs; after it there is an agent to stop.

Starting one agent and following it, whatever it is for: a task, a stage, a review.

A start is one stretch that is never half done:

    whose account it is, verified -> its environment, its guards
    the prompt on file -> the process, held behind its gate -> the lease is its own -> written down -> let go

Whatever fails before the last of these leaves no agent behind. The lease is given back when the agent is
gone, with how it ended; what the provider said meanwhile has gone to the pool as it came.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from flyball.core.budget.limits import Refusal
from flyball.core.pool.model import Outcome
from flyball.core.signals import Signal
from flyball.core.tasks.model_routing import IMPLEMENT, Route
from flyball.core.tasks.task import Task
from flyball.core.tasks.task_run import Cause, RunPhase, State, Step, TaskRunState
from flyball.errors import AgentError, InvariantError, StoreError, UsageError
from flyball.factory.agents.personas import IMPLEMENTER, Persona, find_persona
from flyball.factory.agents.process import Process
from flyball.factory.agents.prompt import News, compile_news, compile_prompt
from flyball.factory.agents.watcher import AgentLimits, AgentWatcher
from flyball.factory.budget.ledger_usage import API_KEY, expected_fields
from flyball.factory.git.repository import BRANCHES
from flyball.factory.run.context import GIT_COMMANDS, RunContext
from flyball.factory.state import run_folders
from flyball.factory.state.threads import off_loop
from flyball.governor import inherited_lease
from flyball.governor.ask import AskRequest
from flyball.governor.launch.supervised_child import STDERR, STDOUT, exit_code
from flyball.governor.lease import Lease
from flyball.runtimes.outcome import outcome_of
from flyball.runtimes.port import Assignment, End, Ending, Progress, Reader
from flyball.runtimes.registry import COMMAND, TELLING


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchSpec:
    """One agent to be started."""

    task: str
    prompt: str
    assignment: Assignment
    tree: Path
    """Where it works."""
    folder: Path
    """What it prints, and what it was told."""
    variables: Mapping[str, str] = field(default_factory=dict)


async def start(
    shop: RunContext, order: LaunchSpec, lease: Lease, written: Callable[[Process], None]
) -> Process:
    """Start an agent under its lease. ``written`` puts it into the ledger, before it may do anything.

    AccountError if the account is not (any more) the one that was named: nothing was started then.
    """
    await off_loop(shop.account.verified)
    prompt = order.folder / run_folders.PROMPT
    prompt.write_text(order.prompt, encoding="utf-8")
    launch = shop.runtime.launch(order.assignment)
    env = {
        **shop.account.environment(launch.env),
        **order.variables,
        **_told(shop, order, prompt, lease),
    }
    fenced = await off_loop(
        shop.fence.around,
        launch.argv,
        env,
        tree=order.tree,
        branch=f"{BRANCHES}{order.task}",
        folder=order.folder,
    )
    if fenced.mended:
        shop.said(f"guards had been changed and were put right: {', '.join(fenced.mended)}")
    process = await off_loop(
        Process.start, fenced.argv, env=fenced.env, cwd=order.tree, folder=order.folder, stdin=prompt
    )
    try:
        if not await off_loop(shop.governor.rebind, lease, process.holder.pid):
            raise AgentError(f"the lease on {lease.pool} was taken away before the agent could start")
        written(process)
    except BaseException:
        process.cancel()
        raise
    process.open_gate()
    return process


def _told(shop: RunContext, order: LaunchSpec, prompt: Path, lease: Lease) -> dict[str, str]:
    return {
        "FLYBALL_TASK": order.task,
        # A rebase that goes on must not wait for an editor.
        "GIT_EDITOR": "true",
        "FLYBALL_PROMPT_FILE": str(prompt),
        "FLYBALL_RUN": f"{shop.ledger.run}/{order.folder}",
        inherited_lease.VARIABLE: inherited_lease.exported(shop.governor.address, lease.pool, lease.id),
    }


def watched(
    shop: RunContext,
    process: Process,
    lease: Lease,
    *,
    ceilings: AgentLimits,
    started: float,
    session: Callable[[str], None] = lambda _: None,
    changed: Callable[[], None] = lambda: None,
    found_again: bool = False,
) -> AgentWatcher:
    """Somebody who reads what it prints and tells the pool what the provider says."""
    return AgentWatcher(
        process,
        shop.runtime.reader(),
        watch=shop.watch,
        ceilings=ceilings,
        tell=lambda signal, progress: _report(lease, signal, progress),
        session=session,
        changed=changed,
        started=started,
        found_again=found_again,
    )


async def follow(shop: RunContext, agent: AgentWatcher, lease: Lease) -> Ending:
    """To its end; the lease is given back."""
    ending = await agent.follow()
    shop.purse.hear(ending.progress.windows)
    if ending.end is End.LIMITED and ending.signal is not None and not ending.told:
        _report(lease, ending.signal, ending.progress)
    if ending.end is End.FINISHED and shop.runtime.name != COMMAND:
        lease.note_answer()
    lease.rejected = ending.end is End.LIMITED
    outcome = outcome_of(ending.end)
    words = f"{ending.end.value}: {ending.reason}" if ending.reason else ending.end.value
    await shop.governor.release_async(lease, outcome, words=words)
    return ending


def _report(lease: Lease, signal: Signal, progress: Progress) -> None:
    if progress.turns:
        lease.note_answer()
    # The agent runs on whether or not the pool can be told just now.
    with suppress(StoreError):
        lease.report(signal)


_OPENINGS: Mapping[Cause | None, str] = {
    Cause.GATE: "The gate was red on your branch",
    Cause.CONFLICT: "Your branch clashes with {branch}: rebase it onto {branch} here, resolve the conflicts",
    Cause.FAILED: "The last try failed",
    Cause.REVIEW: "Your work was looked at and may not land like this",
    Cause.REJECTED: "A person looked at your work and sends it back",
}


@dataclass(slots=True, kw_only=True)
class Attempts:
    """The agents of one task, one after the other."""

    shop: RunContext
    task: Task
    resources: Mapping[str, int]
    nudges: Callable[[str], list[str]]
    changed: Callable[[], None]
    agent: AgentWatcher | None = field(default=None)
    launching: bool = False
    cost_usd: float | None = None
    """Of the last one that was followed to its end, as far as it said."""

    @property
    def slot(self) -> TaskRunState:
        return self.shop.ledger.slots[self.task.id]

    def admitted(self) -> Refusal | None:
        """May the next launch be paid for? None: it may, and its cost is spoken for until it is over."""
        return self.shop.purse.admit(self.task.id, self.task.type, self.route().model)

    def asking(self) -> AskRequest:
        return AskRequest(
            pool=self.shop.pool,
            project=self.shop.project,
            name=self.task.id,
            priority=self.shop.config.run.priority,
            resources=self.resources,
            model=self.route().model,
            pid=os.getpid(),
            unread=self.shop.runtime.name not in TELLING,
        )

    async def run(self, tree: Path, lease: Lease) -> Ending:
        """Launch an agent under the lease, which is given back however this goes, and follow it."""
        self.cost_usd = None
        try:
            await self.shop.staggered()
            self.launching = True
            process, folder = await self._launch(tree, lease)
        except BaseException:
            await self.shop.governor.release_async(lease, Outcome.ABANDONED)
            raise
        finally:
            self.launching = False
        return await self._followed(process, lease, folder, found_again=False)

    async def _launch(self, tree: Path, lease: Lease) -> tuple[Process, Path]:
        """Written down before it is started, and again before it may do anything."""
        slot, ledger = self.slot, self.shop.ledger
        folder = await off_loop(run_folders.new_folder, self.shop.state, self.task.id)
        ledger.note(self.task.id, Step.LAUNCH, RunPhase.BEGUN, folder=str(folder))
        route, purse = self.route(), self.shop.purse
        expected = purse.estimate(self.task.type, route.model)
        charged = purse.charged(self.task.type, route.model)
        order = LaunchSpec(
            task=self.task.id,
            prompt=self._prompt(slot),
            assignment=self._assignment(slot, route),
            tree=tree,
            folder=folder,
            variables={"FLYBALL_ATTEMPT": str(slot.attempt), "FLYBALL_STAGE": IMPLEMENT, **charged},
        )

        def written(process: Process) -> None:
            ledger.note(
                self.task.id,
                Step.LAUNCH,
                holder=process.holder,
                keeper=process.keeper,
                claim_id=lease.id,
                pool=lease.pool,
                model=route.model,
                rationale=route.rationale,
                identity=self.shop.account.words,
                kind=self.task.type,
                account=purse.payer.name,
                billing=API_KEY if charged else None,
                **expected_fields(expected),
            )

        return await start(self.shop, order, lease, written), folder

    def route(self) -> Route:
        """The model that the next launch asks for. A last try may ask for more."""
        attempts = self.shop.budgets_for(self.task).attempts
        last_try = self.slot.failures > 0 and self.slot.failures + 1 >= attempts
        return self.shop.route_for(self.task, last_try=last_try)

    def _assignment(self, slot: TaskRunState, route: Route) -> Assignment:
        agent = self.shop.config.agent
        return Assignment(
            program=agent.command,
            model=route.model,
            args=agent.args,
            max_turns=agent.max_turns,
            max_cost_usd=self.shop.ceilings(self.task.id).max_cost_usd,
            session=slot.session,
            effort=self._persona().effort,
            commands=self.shop.terms.gate,
            command_beginnings=GIT_COMMANDS,
        )

    def _persona(self) -> Persona:
        return find_persona(self.shop.root, IMPLEMENTER)

    def _prompt(self, slot: TaskRunState) -> str:
        news = News(attempt=slot.attempt, why_back=self._why_back(slot), nudges=self.nudges(self.task.id))
        goes_on = slot.session is not None and self.shop.runtime.name != COMMAND
        if goes_on:
            return compile_news(self.task, news)
        return compile_prompt(self.shop.terms, self.task, news, persona=self._persona().text)

    def _why_back(self, slot: TaskRunState) -> str:
        """What the agent should know about why it starts again."""
        if not slot.lesson:
            return ""
        opening = _OPENINGS.get(slot.lesson_cause, "The last try was stopped")
        return f"{opening.format(branch=self.shop.repository.default)}: {slot.lesson}"

    # -- following --------------------------------------------------------------------------------------

    async def reattach(self) -> Ending:
        """Follow an agent that outlived the engine which launched it."""
        slot = self.slot
        if slot.holder is None or slot.keeper is None:
            raise InvariantError(f"{self.task.id} is alive, and nobody knows its process")
        try:
            lease = await off_loop(
                self.shop.governor.take_over, slot.holder.pid, self.asking(), slot.claim_id
            )
        except UsageError:
            # It has just ended; its keeper still ends what it left behind, and needs no slot for that.
            await self.shop.watch.death_of(slot.keeper)
            return await self.read_from_files()
        process = Process(Path(slot.folder), slot.holder, slot.keeper)
        return await self._followed(process, lease, Path(slot.folder), found_again=True)

    async def _followed(self, process: Process, lease: Lease, folder: Path, *, found_again: bool) -> Ending:
        self.agent = watched(
            self.shop,
            process,
            lease,
            ceilings=self.shop.ceilings(self.task.id),
            started=self.slot.since,
            session=self._learned,
            changed=self.changed,
            found_again=found_again,
        )
        self.changed()
        try:
            ending = await follow(self.shop, self.agent, lease)
        finally:
            self.agent = None
        self.cost_usd = ending.progress.cost_usd
        run_folders.write_summary(folder, task=self.task.id, attempt=self.slot.attempt, **spent(ending))
        return ending

    def _learned(self, session: str) -> None:
        if session != self.slot.session:
            self.shop.ledger.note(self.task.id, Step.SESSION, session=session)

    async def end_leftover(self) -> None:
        """End one that outlived its engine and that nobody wants any more; what it cost is written down."""
        slot = self.slot
        if slot.state is not State.RUNNING:
            return
        if slot.holder is not None and slot.keeper is not None:
            process = Process(Path(slot.folder), slot.holder, slot.keeper)
            await process.stop(self.shop.watch, grace_s=self.shop.config.agent.grace_s)
            await process.over(self.shop.watch)
            # Its slot comes back now, not when somebody needs it.
            await off_loop(self.shop.governor.reap)
        self.shop.ledger.note(self.task.id, Step.END, **spent(await self.read_from_files()))

    async def read_from_files(self) -> Ending:
        """How an agent ended that nobody followed."""
        folder = Path(self.slot.folder)
        ending = await off_loop(read_all, self.shop.runtime.reader(), folder)
        run_folders.write_summary(folder, task=self.task.id, attempt=self.slot.attempt, **spent(ending))
        return ending


def spent(ending: Ending) -> dict[str, object]:
    """An ending as it is written down."""
    progress = ending.progress
    return {
        "end": ending.end.value,
        "reason": ending.reason,
        "session": progress.session,
        "model": progress.model,
        "tokens": progress.tokens.total if progress.tokens else None,
        "cost_usd": progress.cost_usd,
        "turns": progress.turns,
        "denials": list(progress.denials) or None,
    }


def read_all(reader: Reader, folder: Path) -> Ending:
    """How a run ended that left this behind."""
    for name, feed in ((STDOUT, reader.feed), (STDERR, reader.feed_stderr)):
        with suppress(OSError), open(folder / name, "rb") as file:
            while piece := file.read(1 << 18):
                feed(piece, wall_s=time.time())
    return reader.finish(exit_code(folder), wall_s=time.time())
