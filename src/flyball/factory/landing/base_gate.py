"""The gate on the base itself, once before the first agent of a run.

Where the gate is red before any work was added, every agent's work would be refused for what it did not do.
So no agent is started, and a person hears which command is red, where its output is, and the ways out.

It runs in the landing's worktree, under the landing's lock. A commit that the gate saw green before, here or
in a landing, is not tried again.
"""

from __future__ import annotations

import asyncio
import json
import shutil
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

from flyball.core.pool.holder import Holder
from flyball.errors import FlyballError
from flyball.factory.agents.process import Process
from flyball.factory.landing.gate import GateFailure
from flyball.factory.landing.landing import Landing
from flyball.factory.landing.result import Refused
from flyball.factory.state.blocking_calls import run_in_thread

FOLDER = "base-gate"
_HOLDER = "holder.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class RedBase:
    """Why no agent was started."""

    branch: str
    commit: str
    command: str
    log: str
    unrunnable: bool
    """The command could not be found or could not be run, so it says nothing about the code."""
    why: str

    def words(self) -> str:
        found = "cannot be run" if self.unrunnable else "is red"
        mend = "put right gate.commands in flyball.toml, or install what is missing"
        mend = mend if self.unrunnable else f"mend {self.branch}, or gate.commands in flyball.toml"
        return (
            f"the gate {found} on {self.branch} itself ({self.commit[:10]}), so no agent was started: "
            f"{self.why}; {mend}; where a task is to mend it: flyball run --skip-base-gate --only TASK"
        )


@dataclass(slots=True, kw_only=True)
class BaseGate:
    """Of one run, which is told once when it is known how the base stands."""

    landing: Landing
    state: Path
    wanted: bool = True
    """False: there is no gate, or a person said to start all the same."""
    told: Callable[[], None] = lambda: None
    red: RedBase | None = None
    untried: str = ""
    """Why the gate could not be tried on the base; then agents start, and their landings say it again."""
    _trying: asyncio.Task[None] | None = None

    @property
    def pending(self) -> bool:
        """Is it not known yet how the base stands?"""
        return self.wanted and (self._trying is None or not self._trying.done())

    def start(self) -> asyncio.Task[None]:
        """Find out, once for the run."""
        if self._trying is None:
            self._trying = asyncio.create_task(self._try(), name="the gate on the base")
            self._trying.add_done_callback(lambda _: self.told())
        return self._trying

    async def is_red(self) -> bool:
        """A waiter that gives up leaves it to the others."""
        if self.pending:
            await asyncio.shield(self.start())
        return self.red is not None

    async def close(self) -> None:
        """End it where it still runs."""
        if self._trying is not None and not self._trying.done():
            self._trying.cancel()
            await asyncio.wait({self._trying})

    async def _try(self) -> None:
        landing = self.landing
        try:
            _, base = await run_in_thread(landing.branch.fetch_base, [])
            if landing.gate.saw_green(base):
                return
            async with landing.lock("the gate on the base"):
                await run_in_thread(landing.rebaser.worktree.rebase, base, base, base)
                await run_in_thread(landing.rebaser.worktree.prepare)
                red = await self._run()
        except Refused as refused:
            self.untried = refused.landed.why
            return
        except (FlyballError, OSError) as error:
            self.untried = str(error)
            return
        if red is not None:
            self.red = RedBase(
                branch=landing.branch.name,
                commit=base,
                command=red.command,
                log=red.log,
                unrunnable=red.unrunnable,
                why=red.why,
            )

    async def _run(self) -> GateFailure | None:
        folder = self.state / FOLDER
        await run_in_thread(shutil.rmtree, folder, ignore_errors=True)
        folder.mkdir(mode=0o700)

        def began(process: Process) -> None:
            record = {"holder": asdict(process.holder), "folder": str(process.folder)}
            (folder / _HOLDER).write_text(json.dumps(record), encoding="utf-8")

        return await self.landing.rebaser.worktree.run_gate(self.landing.gate, [], folder, began=began)

    async def end_leftover(self) -> None:
        """End one that outlived its engine, before a landing meets it in their worktree."""
        try:
            record = json.loads((self.state / FOLDER / _HOLDER).read_text(encoding="utf-8"))
            holder, folder = Holder(**record["holder"]), Path(record["folder"])
        except (OSError, ValueError, KeyError, TypeError):
            return
        await self.landing.gate.end(holder, folder)
