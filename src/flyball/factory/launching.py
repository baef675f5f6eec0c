"""Starting one agent and following it, whatever it is for: a task, a stage, a review.

A start is one stretch that is never half done:

    whose account it is, verified -> its environment, its guards
    the prompt on file -> the process, held behind its gate -> the lease is its own -> written down -> let go

Whatever fails before the last of these leaves no agent behind. The lease is given back when the agent is
gone, with how it ended; what the provider said meanwhile has gone to the pool as it came.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from flyball.core.model import Outcome
from flyball.core.signals import Signal
from flyball.errors import AgentError, StoreError
from flyball.factory import runs
from flyball.factory.agent import AgentWatch, Ceilings
from flyball.factory.process import Process
from flyball.factory.repository import BRANCHES
from flyball.factory.threads import off_loop
from flyball.factory.workshop import Workshop
from flyball.governor import nested
from flyball.governor.lease import Lease
from flyball.runtimes.known import COMMAND
from flyball.runtimes.port import Assignment, End, Ending, Progress

# A limit has told the pool of itself by its signal; released as throttled it would count twice.
_OUTCOMES = {End.FINISHED: Outcome.FINISHED, End.FAILED: Outcome.FAILED}


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """One agent to be started."""

    task: str
    prompt: str
    assignment: Assignment
    tree: Path
    """Where it works."""
    folder: Path
    """What it prints, and what it was told."""
    variables: Mapping[str, str] = field(default_factory=dict)


async def start(shop: Workshop, order: Order, lease: Lease, written: Callable[[Process], None]) -> Process:
    """Start an agent under its lease. ``written`` puts it into the ledger, before it may do anything.

    AccountError if the account is not (any more) the one that was named: nothing was started then.
    """
    await off_loop(shop.account.verified)
    prompt = order.folder / runs.PROMPT
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


def _told(shop: Workshop, order: Order, prompt: Path, lease: Lease) -> dict[str, str]:
    return {
        "FLYBALL_TASK": order.task,
        # A rebase that goes on must not wait for an editor.
        "GIT_EDITOR": "true",
        "FLYBALL_PROMPT_FILE": str(prompt),
        "FLYBALL_RUN": f"{shop.ledger.run}/{order.folder}",
        nested.VARIABLE: nested.exported(shop.governor.address, lease.pool, lease.id),
    }


def watched(
    shop: Workshop,
    process: Process,
    lease: Lease,
    *,
    ceilings: Ceilings,
    started: float,
    session: Callable[[str], None] = lambda _: None,
    changed: Callable[[], None] = lambda: None,
    found_again: bool = False,
) -> AgentWatch:
    """Somebody who reads what it prints and tells the pool what the provider says."""
    return AgentWatch(
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


async def follow(shop: Workshop, agent: AgentWatch, lease: Lease) -> Ending:
    """To its end; the lease is given back."""
    ending = await agent.follow()
    shop.purse.hear(ending.progress.windows)
    if ending.end is End.LIMITED and ending.signal is not None and not ending.told:
        _report(lease, ending.signal, ending.progress)
    if ending.end is End.FINISHED and shop.runtime.name != COMMAND:
        lease.note_answer()
    lease.rejected = ending.end is End.LIMITED
    outcome = _OUTCOMES.get(ending.end, Outcome.ABANDONED)
    words = f"{ending.end.value}: {ending.reason}" if ending.reason else ending.end.value
    await shop.governor.release_async(lease, outcome, words=words)
    return ending


def _report(lease: Lease, signal: Signal, progress: Progress) -> None:
    if progress.turns:
        lease.note_answer()
    # The agent runs on whether or not the pool can be told just now.
    with suppress(StoreError):
        lease.report(signal)
