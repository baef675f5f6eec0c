"""A person has a task landed, in one of the ways in which a run lands it.

Where a run is going on, it does the landing; otherwise this process does, under the run's own lock. Either
way what happens is read from the ledger and shown as it happens: a line per step, and what the gate prints.
"""

from __future__ import annotations

import contextlib
import sys
import threading
import time
from collections.abc import Mapping
from enum import Enum
from pathlib import Path
from typing import TextIO

from flyball.cli.ui.progress import StreamCopy, safe_text
from flyball.cli.ui.render import allow_any_name, safe
from flyball.core.tasks.task_run import LedgerEntry, RunPhase, Step
from flyball.errors import UsageError
from flyball.factory.landing.gate import LOG
from flyball.factory.project.config_reader import check_runnable
from flyball.factory.project_view import Project, task_history
from flyball.factory.run.manual_actions import ManualAction
from flyball.factory.run.options import ManualMove, RunOptions, RunRequest, RunVerb
from flyball.factory.run.session import ask, run_project, running
from flyball.host.background_thread import start_thread
from flyball.host.growing_file import GrowingFile

_LOOK_EVERY_S = 0.15
_STEPS: Mapping[tuple[Step, RunPhase], str] = {
    (Step.LAND, RunPhase.BEGUN): "landing",
    (Step.REBASE, RunPhase.BEGUN): "rebasing",
    (Step.ADVANCE, RunPhase.BEGUN): "green; moving the default branch",
    (Step.PR, RunPhase.BEGUN): "green; pushing it and opening a pull request",
    (Step.BACK, RunPhase.DONE): "sent back to its agent: {reason}",
    (Step.LAUNCH, RunPhase.DONE): "its agent runs again",
}


class LandingState(Enum):
    UNDER_WAY = "under way"
    OVER = "over"


class LandingLines:
    """``out`` None: watched in silence."""

    def __init__(self, state: Path, task_id: str, *, after: int, out: TextIO | None) -> None:
        self._state, self._task, self._after, self._out = state, task_id, after, out
        self._gate: StreamCopy | None = None
        if out is not None:
            allow_any_name(out)

    def see(self) -> LandingState:
        """Tell what is new. Over: merged, sent back, or waiting for a person again."""
        over = LandingState.UNDER_WAY
        for entry in task_history(self._state, self._task, after=self._after):
            self._after = entry.id
            self._tell(entry)
            if entry.step in (Step.MERGED, Step.BLOCK, Step.PARK, Step.BACK):
                over = LandingState.OVER
        self._pass_on_gate()
        return over

    def wait(self) -> None:
        time.sleep(_LOOK_EVERY_S)

    def _tell(self, entry: LedgerEntry) -> None:
        self._pass_on_gate()
        if entry.step is Step.GATE and entry.mark is RunPhase.BEGUN:
            self._say(f"gate: {entry.fields.get('command', '')}")
            if self._out is not None:
                # A landing that starts over throws the log away; what was told of it is told.
                with contextlib.suppress(OSError):
                    folder = Path(str(entry.fields.get("folder_of_gate", "")))
                    self._gate = StreamCopy(GrowingFile.open(folder / LOG))
        elif (entry.step, entry.mark) in _STEPS:
            self._say(_STEPS[entry.step, entry.mark].format(reason=entry.fields.get("reason", "")))

    def _pass_on_gate(self) -> None:
        if self._gate is None or self._out is None:
            return
        for text in self._gate.new():
            self._out.write(safe_text(text))
        self._out.flush()

    def _say(self, words: str) -> None:
        """On a line of its own, whatever the gate printed last."""
        if self._out is None:
            return
        self._end_gate()
        self._out.write(f"{time.strftime('%H:%M:%S')} {self._task} {safe(words)}\n")
        self._out.flush()

    def _end_gate(self) -> None:
        if self._gate is None:
            return
        if self._out is not None and self._gate.last not in ("", "\n"):
            self._out.write("\n")
        self._gate.close()
        self._gate = None

    def __enter__(self) -> LandingLines:
        return self

    def __exit__(self, *_: object) -> None:
        self._end_gate()


def land_by_hand(
    project: Project, task_id: str, move: ManualMove = ManualMove.MERGE, *, quiet: bool
) -> list[str]:
    """Land it, and show how; what else is worth a word. The ledger says what came of it."""
    last = task_history(project.state, task_id)[-1].id
    by = _land_in_run if running(project.root) is not None else _land_here
    with LandingLines(project.state, task_id, after=last, out=None if quiet else sys.stdout) as lines:
        return by(project, task_id, move, lines)


def _land_in_run(project: Project, task_id: str, move: ManualMove, lines: LandingLines) -> list[str]:
    """Ask, and follow until the landing is over or the run is."""
    answer = ask(project.root, RunVerb.MERGE, task_id, how=move.value)
    if answer is not None and not answer.accepted:
        raise UsageError(answer.words)
    while lines.see() is not LandingState.OVER and running(project.root) is not None:
        lines.wait()
    return []


def _land_here(project: Project, task_id: str, move: ManualMove, lines: LandingLines) -> list[str]:
    """Land it here; what else is worth a word."""
    check_runnable(project.config)
    done = threading.Event()

    def follow() -> None:
        while not done.is_set():
            lines.see()
            lines.wait()
        lines.see()

    follower = start_thread(follow, name="flyball-landing-lines")
    try:
        wish = RunRequest(only=(task_id,))
        report, _ = run_project(
            project.root, project.config, wish, RunOptions(), by_hand=ManualAction(task=task_id, move=move)
        )
        return report.notes
    finally:
        done.set()
        follower.join()
