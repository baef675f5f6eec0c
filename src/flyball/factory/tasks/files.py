"""Tasks as Markdown files with front matter, in the project's own repository.

``load`` reads the project's checkout as it is now, committed or not. A task closes in the landing that brings
its work: ``close_in`` takes the file as the checkout has it, changes its status and nothing else, and puts it
into the landing's worktree. Nothing here writes into the checkout, except what a person asks for: ``add`` and
``drop``.

Of two files with one id it cannot be told which is meant: neither is used and both are named. Ids that
differ in case only count as one, since some file systems would make one branch of them.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path, PurePosixPath
from threading import Lock

from flyball.core.tasks.task import Task, TaskStatus, check_task_id, same_id_key
from flyball.errors import SourceError, UsageError
from flyball.factory.git.git import Git
from flyball.factory.tasks.folder import FolderScan, is_task_name, read_inside, scan, write_inside
from flyball.factory.tasks.front_matter import MalformedError
from flyball.factory.tasks.port import Closing, LoadedTasks, NewTask, TaskProblem
from flyball.factory.tasks.task_text import SIZE_LIMIT, close_text, new_text, read_task

_RACES = 1000


class FilesSource:
    name = "files"

    def __init__(self, root: Path, folder: str = "tasks", *, wall: Callable[[], float] = time.time) -> None:
        self._root = root
        self._folder = _check_folder(root, folder)
        self._wall = wall
        self._lock = Lock()
        self._last = FolderScan()
        self._loaded = LoadedTasks()

    # -- reading ----------------------------------------------------------------------------------

    def load(self) -> LoadedTasks:
        return self._look()[0]

    def _look(self) -> tuple[LoadedTasks, FolderScan]:
        with self._lock:
            self._last = scan(self._root, self._folder, self._last)
            if self._last.changed:
                self._loaded = _merge_files(self._last)
            return self._loaded, self._last

    def read(self, task_id: str) -> Task | None:
        loaded, look = self._look()
        if not any(task.id == task_id for task in loaded.tasks):
            return None
        found = _read_task_at(self._root, look.paths(task_id)[0], task_id)
        return found[0] if found is not None else None

    def watch_folders(self) -> Sequence[Path]:
        """The task folder and its subfolders; the project itself until there is one."""
        _, look = self._look()
        return [self._root / folder for folder in look.folders] or [self._root]

    # -- adding -----------------------------------------------------------------------------------

    def add(self, new: NewTask) -> Task:
        taken = self._used_ids()
        if new.id is None:
            return self._add_numbered(new, taken | {same_id_key(name) for name in new.used})
        task_id = check_task_id(new.id)
        if same_id_key(task_id) in taken:
            raise UsageError(f"there is a task {task_id!r} already; choose another id")
        task = self._create(new, task_id)
        if task is None:
            raise UsageError(f"{self._path(task_id)} is there already; choose another id")
        return task

    def _add_numbered(self, new: NewTask, taken: set[str]) -> Task:
        number = 1 + max((_number(key) for key in taken), default=0)
        # Another process may take a number between our look and our write; each try moves on by one.
        for candidate in range(number, number + _RACES):
            if (task := self._create(new, f"t-{candidate}")) is not None:
                return task
        raise SourceError(f"no free number for a task from t-{number} on; name one with --id")

    def _used_ids(self) -> set[str]:
        """Every id that is in use, also by a file that cannot be read as a task."""
        loaded, look = self._look()
        ids = [task.id for task in loaded.tasks] + [p.task for p in loaded.problems if p.task]
        return {same_id_key(name) for name in (*ids, *(Path(path).stem for path in look.files))}

    def _create(self, new: NewTask, task_id: str) -> Task | None:
        """The new task; None if there is a file of its name."""
        path = self._path(task_id)
        if not is_task_name(f"{task_id}.md"):
            raise UsageError(f"{path} would not be taken for a task; choose another id")
        data = new_text(new, task_id, created=self._wall()).encode()
        task = read_task(data, path)
        if not isinstance(task, Task):
            raise UsageError(task.words if task is not None else "this cannot be written as a task")
        try:
            self._write_new(path, data)
        except FileExistsError:
            return None
        except OSError as error:
            raise SourceError(f"{path} cannot be written: {error.strerror}") from error
        return task

    def _write_new(self, path: str, data: bytes) -> None:
        target = self._root / path
        target.parent.mkdir(parents=True, exist_ok=True)
        handle = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
        try:
            with open(handle, "wb") as file:
                file.write(data)
        except OSError:
            target.unlink(missing_ok=True)
            raise

    def _path(self, task_id: str) -> str:
        return f"{self._folder}/{task_id}.md"

    # -- working ----------------------------------------------------------------------------------

    def claim(self, task_id: str) -> None:
        """Nothing: the ledger knows, and the file changes only when the work lands."""

    def unclaim(self, task_id: str) -> None:
        """Nothing, as ``claim``."""

    def close(self, task_id: str, *, commit: str) -> None:
        """Nothing: ``close_in`` has done it."""

    def drop(self, task_id: str, *, reason: str = "") -> None:
        """In the checkout; the person who asked for it commits it."""
        _, look = self._look()
        found = [(path, read) for path in look.paths(task_id) if (read := self._read_at(path, task_id))]
        if len(found) != 1:
            raise SourceError(f"no file, or more than one, is task {task_id!r}; flyball validate shows which")
        path, (task, text) = found[0]
        if task.status is TaskStatus.CLOSED:
            return
        try:
            write_inside(self._root, path, close_text(text, why=reason))
        except (OSError, MalformedError) as error:
            words = getattr(error, "strerror", None) or error
            raise SourceError(f"{path} cannot be closed: {words}; write 'status: closed' in it") from error

    def _read_at(self, path: str, task_id: str) -> tuple[Task, bytes] | None:
        return _read_task_at(self._root, path, task_id)

    def close_in(self, task_id: str, worktree: Path) -> Closing:
        _, look = self._look()
        try:
            return self._close_in(task_id, sorted(look.paths(task_id)), worktree)
        except (OSError, MalformedError) as error:
            words = getattr(error, "strerror", None) or error
            raise SourceError(f"task {task_id} cannot be closed in {worktree}: {words}") from error

    def closed_at(self, task_id: str, git: Git, revision: str) -> bool:
        _, look = self._look()
        for path in look.paths(task_id):
            if (task := _task_at_commit(git, revision, path, task_id)) is not None:
                return task.status is TaskStatus.CLOSED
        # A path is behind "revision:"; -e keeps an id from being taken for an option.
        done = git.run("grep", "-l", "-z", "-F", "-e", task_id, revision, "--", self._folder)
        paths = [part.partition(b":")[2] for part in done.out.split(b"\0") if part]
        found = [_task_at_commit(git, revision, os.fsdecode(path), task_id) for path in paths]
        return any(task is not None and task.status is TaskStatus.CLOSED for task in found)

    def _close_in(self, task_id: str, here: list[str], worktree: Path) -> Closing:
        """``here``: where the checkout has the task. Nowhere if it was deleted, several if it was copied."""
        mine = [(path, found[1]) for path in here if (found := _read_task_at(self._root, path, task_id))]
        for path, text in mine:
            if theirs := _read_task_at(worktree, path, task_id):
                return _put(worktree, path, text, theirs[0])
        # The checkout has it elsewhere or not at all: the person who moved it commits that move.
        for path in sorted(scan(worktree, self._folder, FolderScan()).paths(task_id)):
            if theirs := _read_task_at(worktree, path, task_id):
                return _put(worktree, path, theirs[1], theirs[0])
        if not mine:
            return Closing()
        if len(mine) > 1:
            raise OSError(f"{' and '.join(here)} have its id; delete or rename all but one")
        path, text = mine[0]
        if (other := _id_at(worktree, path)) not in (None, task_id):
            raise OSError(f"{path} is task {other} there; give one of the two another file name")
        return _put(worktree, path, text, None)


def _put(worktree: Path, path: str, text: bytes, there: Task | None) -> Closing:
    """Write ``text``, closed, where the worktree has the task as it is ``there``."""
    if there is not None and there.status is TaskStatus.CLOSED:
        return Closing()
    write_inside(worktree, path, close_text(text))
    return Closing((path,), {path: text})


def _id_at(base: Path, path: str) -> str | None:
    """The id of the task that a file is, also where it cannot be used; None if it is not a task."""
    try:
        found = read_task(read_inside(base, path, limit=SIZE_LIMIT + 1), path)
    except OSError:
        return None
    if isinstance(found, Task):
        return found.id
    return None if found is None else found.task


def _read_task_at(base: Path, path: str, task_id: str) -> tuple[Task, bytes] | None:
    """The task with its text; None if it is not there, or not in a state to be used."""
    try:
        data = read_inside(base, path, limit=SIZE_LIMIT + 1)
    except OSError:
        return None
    task = read_task(data, path)
    return (task, data) if isinstance(task, Task) and task.id == task_id else None


def _task_at_commit(git: Git, revision: str, path: str, task_id: str) -> Task | None:
    """The task as a commit has it; None if it has none of this id there."""
    if not is_task_name(PurePosixPath(path).name):
        return None
    done = git.run("cat-file", "blob", f"{revision}:{path}")
    task = read_task(done.out[: SIZE_LIMIT + 1], path) if done.ok else None
    return task if isinstance(task, Task) and task.id == task_id else None


def _number(key: str) -> int:
    digits = key.removeprefix("t-")
    return (
        int(digits)
        if key.startswith("t-") and digits.isascii() and digits.isdigit() and len(digits) < 10
        else 0
    )


# -- all files together ---------------------------------------------------------------------------


def _merge_files(look: FolderScan) -> LoadedTasks:
    by_id: dict[str, list[Task]] = {}
    problems = list(look.barred)
    for path in sorted(look.files):
        found = look.files[path].found
        if isinstance(found, Task):
            by_id.setdefault(same_id_key(found.id), []).append(found)
        elif found is not None:
            problems.append(found)
    tasks = tuple(group[0] for group in by_id.values() if len(group) == 1)
    problems += [_twice(group) for group in by_id.values() if len(group) > 1]
    passed_over = tuple(sorted(path for path, seen in look.files.items() if seen.found is None))
    return LoadedTasks(tasks, tuple(sorted(problems, key=lambda problem: problem.where)), passed_over)


def _twice(group: Sequence[Task]) -> TaskProblem:
    first, *others = group
    also = " and ".join(f"{task.where} ({task.id})" if task.id != first.id else task.where for task in others)
    words = f"the id {first.id!r} is also in {also}; give each its own, until then none of them is used"
    return TaskProblem(first.where, words, first.id)


def _check_folder(root: Path, folder: str) -> str:
    """Its plain path. It lies in the project and is not a link: tasks are closed in it by commits."""
    plain = os.path.normpath(folder)
    if os.path.isabs(plain) or plain.startswith("..") or plain == ".":
        raise SourceError(f"tasks.folder is {folder!r}; it must be a folder inside the project")
    real = os.path.join(os.path.realpath(root), plain)
    if os.path.realpath(real) != real:
        raise SourceError(
            f"tasks.folder {folder!r} is or leads through a symbolic link; name the folder itself"
        )
    return Path(plain).as_posix()
