"""A project whose agent is one of the real four: ``flyball run`` takes its tasks to the default branch.

The prompts carry errands (``flyball/sim/provider/tool_calls.py``), so what the agent does is known
beforehand, and the provider remembers every request, so what it knew is known afterwards.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from flyball.core.tasks.task_run import RunPhase, Step
from flyball.factory.state.ledger import Ledger
from flyball.host.process import exists
from tests.agents.bench import Bench, until
from tests.agents.kit import Agent
from tests.factory.kit import Project, Ran
from tests.waiting import until as wait_for

TASK = "t-1"
GOES_ON = f"Go on with task {TASK} where you stopped."


@dataclass(frozen=True, slots=True)
class Launched:
    """One launch, as its run folder and the ledger tell of it."""

    attempt: int | None
    end: str
    """Empty, and the others None: its end was not seen."""
    session: str | None
    tokens: int | None
    resumed: bool
    """It was told the news only."""
    claim_id: int

    @property
    def words(self) -> str:
        how = self.end or "killed"
        return f"{how} in its session" if self.resumed else how


class FactorySite(Project):
    """A home for flyball and one for the agent, which reaches this test's provider only."""

    def __init__(
        self,
        bench: Bench,
        agent: Agent,
        *,
        retries: int = 0,
        args: Sequence[str] = (),
        confirm: str | None = "1s",
    ) -> None:
        """``confirm``: of the pool; None leaves it as it is made."""
        super().__init__(bench.folder / "site")
        self.bench, self.agent, self.home = bench, agent, bench.folder / "flyball"
        self.env = {**bench.environment(agent, retries=retries), "COLUMNS": "200"}
        # In the repository: the git that gemini runs does not look into the user's home.
        os.rename(self.place / "user" / ".gitconfig", self.root / ".git" / "identity")
        self.git("config", "include.path", "identity")
        self.sections["agent"] = {
            "runtime": agent.name,
            "model": agent.model,
            "args": [*agent.args, *args],
            "grace_s": 1,
        }
        self.configure()
        self.commit("an agent")
        if confirm is not None:
            # Else it is 30 s before a pool that was throttled for the first time is opened again.
            bench.flyball("pool", "set", agent.pool, "--confirm", confirm)

    def errands(self, *errands: str) -> None:
        """The one task: these, in this order."""
        self.task(TASK, body="\n".join(["Do this, please.", *(f"errand: {each}" for each in errands)]))

    def begin(self) -> subprocess.Popen[str]:
        """``flyball run``, which goes as far as the provider lets it."""
        return self.start("run", "--json")

    def until_asked(self, times: int, engine: subprocess.Popen[str]) -> None:
        """The provider holds back its answer to the request with that number."""
        until(lambda: len(self.bench.heard) >= times, f"request {times}", while_runs=engine)

    def fell_dead(self) -> None:
        """SIGKILL to the agent, and to the keeper that would have told of its end; until they are gone.

        A large process takes a moment to die, and an engine that comes meanwhile finds it again.
        """
        pids = self.processes()
        for pid in pids:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        wait_for(lambda: not any(map(exists, pids)), "them to be gone")

    def answer(self) -> None:
        """From now on the provider answers."""
        self.bench.closes_after = None
        self.bench.door.set()

    def follows(self, engine: subprocess.Popen[str]) -> bool:
        """Is the agent on this engine's board?"""
        board = self.flyball("board", "--json").json
        return board["pid"] == engine.pid and [row["state"] for row in board["rows"]] == ["running"]

    # -- looking ----------------------------------------------------------------------------------------

    def launches(self) -> list[Launched]:
        ledger = Ledger(self.root / ".flyball", read_only=True)
        try:
            entries = ledger.history(TASK)
        finally:
            ledger.close()
        claims = [each.fields for each in entries if (each.step, each.mark) == (Step.LAUNCH, RunPhase.DONE)]
        return [
            _launched(folder, fields["claim_id"])
            for folder, fields in zip(self.folders(TASK), claims, strict=True)
        ]

    def knew(self, words: str) -> str:
        """What the first request with these words in it had before them, as one text."""
        said = (json.dumps(_conversation(body)) for body in self.bench.heard)
        return next((each.partition(words)[0] for each in said if words in each), "")

    def page(self, name: str) -> str:
        return self.git("show", f"main:pages/{name}")

    def story(self, ran: Ran) -> str:
        """What happened, in a line for the table."""
        ended = "merged" if TASK in ran.json["merged"] else f"blocked, exit {ran.code}"
        return ", ".join([*(each.words for each in self.launches()), ended])


def _launched(folder: Path, claim_id: int) -> Launched:
    path = folder / "summary.json"
    summary = json.loads(path.read_text()) if path.exists() else {}
    return Launched(
        attempt=summary.get("attempt"),
        end=summary.get("end", ""),
        session=summary.get("session"),
        tokens=summary.get("tokens"),
        resumed="# Project " not in (folder / "prompt.md").read_text(),
        claim_id=claim_id,
    )


def _conversation(body: Mapping[str, Any]) -> object:
    return body.get("messages") or body.get("input") or body.get("contents")
