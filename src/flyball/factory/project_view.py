"""A project seen from outside: its board, its tasks and how far their work has come. It only reads.

A run writes how it stands to a file. That file outlives the run, so it is believed only while the process
that wrote it holds the project's lock; otherwise the ledger says how things stand, and the processes
themselves say whether an agent still runs.

A task that was deleted leaves things behind under its id: a branch, a worktree with uncommitted work, entries
in the ledger. A new task of the same id would go on from them, so its number is not given out again.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path

from flyball.core.suggestions import did_you_mean
from flyball.core.tasks.next_step import may_let_go
from flyball.core.tasks.task import Task, TaskStatus
from flyball.core.tasks.task_run import Cause, LedgerEntry, State, TaskRecord
from flyball.errors import StoreError, UsageError
from flyball.factory.git.git import Git
from flyball.factory.git.repository import BRANCHES
from flyball.factory.project.config import ProjectConfig
from flyball.factory.project.config_reader import load_config
from flyball.factory.project.paths import find_root
from flyball.factory.run.board import LEFT, Board, BoardFile, BoardRow, board_from_ledger
from flyball.factory.run.context import workspaces_folder
from flyball.factory.run.session import running
from flyball.factory.state.ledger import Ledger
from flyball.factory.state.run_folders import STATE
from flyball.factory.tasks.port import TaskProblem, TaskSource
from flyball.factory.tasks.registry import open_source
from flyball.governor.launch.supervised_child import exit_code
from flyball.host.process import alive


@dataclass(frozen=True, slots=True)
class Project:
    root: Path
    config: ProjectConfig
    source: TaskSource

    @property
    def state(self) -> Path:
        return self.root / STATE


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskLookup:
    """One task: what a person wrote, and how far its work has come."""

    id: str
    task: Task | None
    """None: its source does not have it, or not any more."""
    record: TaskRecord | None
    """None: no run has taken it up yet."""
    problem: TaskProblem | None = None

    @property
    def title(self) -> str:
        return self.task.title if self.task is not None else ""


def open_project_at(start: Path) -> Project:
    """The project that a folder is in."""
    return open_project(find_root(start))


def open_project(root: Path) -> Project:
    """The project whose own folder this is."""
    config = load_config(root)
    return Project(root, config, open_source(config, root))


@contextmanager
def open_ledger(state: Path) -> Iterator[Ledger | None]:
    """The ledger, to read; None where no run has ever written one."""
    try:
        ledger = Ledger(state, read_only=True)
    except FileNotFoundError:
        yield None
        return
    try:
        yield ledger
    finally:
        ledger.close()


# -- one task -----------------------------------------------------------------------------------------


def find_task(project: Project, task_id: str) -> TaskLookup:
    """A task that the source or the ledger knows; UsageError names what may have been meant."""
    loaded = project.source.load()
    task = next((each for each in loaded.tasks if each.id == task_id), None)
    problem = next((each for each in loaded.problems if each.task == task_id), None)
    record = last_run(project.state, task_id)
    if task is None and problem is None and record is None:
        hint = did_you_mean(task_id, (each.id for each in loaded.tasks))
        raise UsageError(f"there is no task {task_id!r}; {hint or 'flyball task list shows them'}")
    return TaskLookup(id=task_id, task=task, record=record, problem=problem)


def last_run(state: Path, task_id: str) -> TaskRecord | None:
    """How far a task's last run came, over or not."""
    with open_ledger(state) as ledger:
        return ledger.load_task(task_id) if ledger is not None else None


def task_history(state: Path, task_id: str, *, after: int = 0) -> list[LedgerEntry]:
    """What the ledger says about a task since one of its entries."""
    with open_ledger(state) as ledger:
        found = ledger.history(task_id) if ledger is not None else []
    return [entry for entry in found if entry.id > after]


def is_agent_alive(record: TaskRecord) -> bool:
    """Does its agent still run, as far as can be seen from here?"""
    if record.state is not State.RUNNING or exit_code(Path(record.agent.process.folder)) is not None:
        return False
    return any(
        each is not None and alive(each) is not False
        for each in (record.agent.process.holder, record.agent.process.keeper)
    )


# -- all of them --------------------------------------------------------------------------------------


def current_board(project: Project) -> Board:
    """The board of the run that goes on, or how things were left."""
    going_on = running(project.root)
    pid = going_on[0] if going_on is not None else 0
    live = BoardFile(project.state).read() if pid else None
    if live is not None and live.pid == pid:
        return live
    with open_ledger(project.state) as ledger:
        if ledger is None:
            board = Board(project=project.config.project.id, run="", pid=0, width=0, at=time.time())
        else:
            board = _left_board(project, ledger, going_on=bool(pid))
    return replace(board, pid=pid, width=project.config.run.width)


def _left_board(project: Project, ledger: Ledger, *, going_on: bool) -> Board:
    tasks = {task.id: task for task in project.source.load().tasks}
    board = board_from_ledger(ledger, project.config.project.id, tasks, project.config.agent.runtime)
    rows = [row for row in board.rows if not _is_settled(row, tasks.get(row.task))]
    if not going_on:
        # What is not over was loaded for the board.
        rows = [_as_left(row, ledger.records.get(row.task), tasks.get(row.task)) for row in rows]
    return replace(board, rows=rows)


def _is_settled(row: BoardRow, task: Task | None) -> bool:
    """Blocked or waiting for a person, who has closed the task since."""
    over = row.state in (State.BLOCKED, State.PARKED)
    return over and task is not None and task.status is TaskStatus.CLOSED


def _as_left(row: BoardRow, record: TaskRecord | None, task: Task | None) -> BoardRow:
    if record is None or record.final:
        return row
    if task is not None and task.status is TaskStatus.CLOSED and may_let_go(record):
        return replace(row, state=LEFT, why="its task was closed; flyball run lets it go")
    if is_agent_alive(record):
        pid = record.agent.process.holder.pid if record.agent.process.holder is not None else 0
        return replace(row, why=f"its agent (pid {pid}) runs on by itself; flyball run takes it up again")
    rejected = record.cause is Cause.REJECTED and record.state is State.READY
    stood = "sent back by a person" if rejected else record.state.value
    reason = f": {row.why}" if row.why and record.state is State.READY else ""
    return replace(row, state=LEFT, why=f"was {stood}{reason}; flyball run goes on with it")


def used_ids(root: Path, config: ProjectConfig) -> set[str]:
    # Branches here or, as far as was fetched, at origin.
    kept = (f"refs/heads/{BRANCHES}", f"refs/remotes/origin/{BRANCHES}")
    done = Git(root).run("for-each-ref", "--format=%(refname)", *kept)
    used = {line.partition(f"/{BRANCHES}")[2] for line in done.text.splitlines()} if done.ok else set()
    worktrees = workspaces_folder(root, config)
    with suppress(OSError):
        used |= {path.name for path in worktrees.iterdir()}
    # A ledger that cannot be read is reported where it is needed: a task can be added without it.
    with suppress(StoreError), open_ledger(root / STATE) as ledger:
        used |= ledger.tasks() if ledger is not None else set()
    return used
