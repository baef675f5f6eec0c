"""What a run looks like from outside: one record, drawn by ``flyball run`` and ``flyball board`` alike.

A run writes it beside its ledger, at most once a second and only when something changed; another process
reads that. Where no run is going on, the ledger alone says how things stand.
"""

from __future__ import annotations

import contextlib
import json
import os
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

from flyball.core.tasks.next_step import wants_pull
from flyball.core.tasks.task import Task
from flyball.core.tasks.task_run import State, TaskRecord
from flyball.factory.agents.watcher import PROGRESS
from flyball.factory.run.run import Run
from flyball.factory.run.task_run import TaskRun
from flyball.factory.state.ledger import Ledger
from flyball.host.atomic_file import replace_file

FILE_NAME = "board.json"
_EVERY_S = 1.0
_PROBLEMS = 10
LEFT = "left"
"""How a task run stands that no run goes on with: the next one does."""
_SHOWN = 200
"""Deferrals are kept up to here; the rest is a number."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BoardRow:
    task: str
    title: str
    state: str
    attempt: int = 1
    agent: str = ""
    since: float = 0.0
    """Wall clock of the last change of state."""
    tokens: int | None = None
    cost_usd: float | None = None
    """None: not known."""
    denials: list[str] = field(default_factory=list)
    """What its agents wanted to do and were not permitted to."""
    activity: str = ""
    stuck: bool = False
    back: str = ""
    """Why this is not its first attempt."""
    stage: str = ""
    """The stage or the review it is in."""
    waits_for: str = ""
    """A ``WaitKind``, where it waits beside what its state says."""
    until: float = 0.0
    """Wall clock of the end of its pause."""
    why: str = ""
    """What the pool, the budget or the landing that it waits for said; where it is over or left, why."""
    folder: str = ""
    pr_url: str = ""
    pr_number: int = 0
    wants_pull: bool = False
    """It waits because its pull request could not be opened."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitingTask:
    task: str
    reason: str
    words: str
    blocker: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Board:
    project: str
    run: str
    pid: int
    """0: no run is going on."""
    width: int
    at: float
    rows: list[BoardRow] = field(default_factory=list)
    waiting: list[WaitingTask] = field(default_factory=list)
    more_waiting: int = 0
    merged: int = 0
    ending: str = ""
    account: str = ""
    """Whose account was verified; empty: no profile says whose it should be."""
    notes: list[str] = field(default_factory=list)


def board_from_run(run: Run) -> Board:
    """The board of a run of ours."""
    project, report = run.project, run.report
    titles = {task.id: task for task in run.view.loaded.tasks}
    rows = [_running_row(task_run) for task_run in run.task_runs.values()]
    over = (*report.merged, *report.blocked, *report.parked, *report.left)
    known, launcher = project.ledger.records, run.context.launcher
    records = [known[each] for each in over if each not in run.task_runs and each in known]
    rows += [_ended_row(record, titles.get(record.task), launcher.runtime.name) for record in records]
    left = report.left
    rows = [
        replace(row, state=LEFT, stage="", waits_for="", why=left[row.task]) if row.task in left else row
        for row in rows
    ]
    shown = {row.task for row in rows}
    deferrals = [each for each in run.choice.deferrals if each.task_id not in shown]
    return Board(
        project=project.id,
        run=project.ledger.run,
        pid=os.getpid(),
        width=run.places.width,
        at=time.time(),
        rows=rows,
        waiting=[
            WaitingTask(task=each.task_id, reason=each.reason.value, words=each.words, blocker=each.blocker)
            for each in deferrals[:_SHOWN]
        ],
        more_waiting=max(0, len(deferrals) - _SHOWN),
        merged=len(report.merged),
        ending=report.stopped or report.paused or (report.red_base.words() if report.red_base else ""),
        account=launcher.account.words,
        notes=[
            *filter(None, [run.pool.words]),
            *run.budget.notes(run.places.width),
            *report.notes,
            *(f"{each.where}: {each.words}" for each in run.view.loaded.problems[:_PROBLEMS]),
        ],
    )


def _running_row(task_run: TaskRun) -> BoardRow:
    record, agent, waits = task_run.record, task_run.agent, task_run.waits.reason
    progress = agent.progress if agent is not None else None
    tokens = progress.tokens.total if progress is not None and progress.tokens else None
    costs = [record.spent.cost_usd, progress.cost_usd if progress is not None else None]
    known = [each for each in costs if each is not None]
    return BoardRow(
        task=record.task,
        title=task_run.task.title,
        state=record.state.value,
        attempt=record.attempt,
        agent=(progress.model if progress is not None and progress.model else "") or task_run.runtime,
        since=record.since,
        tokens=(tokens or 0) + record.spent.tokens or None,
        cost_usd=sum(known) if known else None,
        denials=list(dict.fromkeys((*record.denials, *(progress.denials if progress is not None else ())))),
        activity=progress.activity if progress is not None else "",
        stuck=agent.stuck if agent is not None else False,
        back=f"{record.cause.value}: {_one_line(record.reason)}" if record.cause is not None else "",
        stage=waits.stage,
        waits_for=waits.kind.value if waits.kind is not None else "",
        until=waits.until,
        why=_one_line(waits.detail),
        folder=record.agent.process.folder,
    )


def _ended_row(record: TaskRecord, task: Task | None, runtime: str) -> BoardRow:
    return BoardRow(
        task=record.task,
        title=task.title if task is not None else "",
        state=record.state.value,
        attempt=record.attempt,
        agent=record.agent.model or runtime,
        since=record.since,
        tokens=record.spent.tokens or None,
        cost_usd=record.spent.cost_usd,
        denials=list(record.denials),
        why="" if record.state is State.MERGED else _one_line(record.reason),
        folder=record.agent.process.folder,
        pr_url=record.pull.url,
        pr_number=record.pull.number,
        wants_pull=wants_pull(record),
    )


def _one_line(words: str) -> str:
    """What a person said may have several."""
    return " ".join(words.split())


class BoardFile:
    """The board on disk, written by the run and read by any process."""

    def __init__(self, state: Path) -> None:
        self._path = state / FILE_NAME
        self._written_at = 0.0

    def write(self, make: Callable[[], Board], *, now: bool = False) -> float:
        """Write it, unless it was written a moment ago; how long to wait then."""
        early_s = self._written_at + _EVERY_S - time.monotonic()
        if not now and early_s > 0:
            return early_s
        self._written_at = time.monotonic()
        # A full disk must not stop a run that only wants to be looked at.
        with contextlib.suppress(OSError):
            replace_file(self._path, json.dumps(asdict(make())).encode(), durable=False)
        return 0.0

    def read(self) -> Board | None:
        try:
            fields = json.loads(self._path.read_text(encoding="utf-8"))
            rows = [BoardRow(**row) for row in fields.pop("rows")]
            waiting = [WaitingTask(**each) for each in fields.pop("waiting")]
            return Board(rows=rows, waiting=waiting, **fields)
        except (OSError, ValueError, KeyError, TypeError):
            return None


def board_from_ledger(ledger: Ledger, project: str, tasks: dict[str, Task], runtime: str) -> Board:
    """How things stand where no run is going on."""
    # Of what is merged only the number: there may be thousands.
    ledger.load()
    left = (ledger.records, ledger.runs_in(State.PARKED), ledger.runs_in(State.BLOCKED))
    task_runs = [record for found in left for record in found.values()]
    rows = [
        _with_progress(_ended_row(record, tasks.get(record.task), runtime), record) for record in task_runs
    ]
    return Board(
        project=project,
        run=ledger.last_run(),
        pid=0,
        width=0,
        at=time.time(),
        rows=rows,
        merged=len(ledger.merged_tasks()),
        account=max(task_runs, key=lambda record: record.since).agent.identity if task_runs else "",
    )


def _with_progress(row: BoardRow, record: TaskRecord) -> BoardRow:
    if record.state is not State.RUNNING:
        return row
    with contextlib.suppress(OSError, ValueError):
        found = json.loads((Path(record.agent.process.folder) / PROGRESS).read_text(encoding="utf-8"))
        fields = {**asdict(row), "activity": found.get("activity") or "", "tokens": found.get("tokens")}
        return BoardRow(**fields)
    return row
