"""Tasks in beads, through its command line ``bd``.

One ``bd list`` brings everything: text, labels, parents and dependencies. Of the dependencies those that hold
work up become ``needs``; ``parent-child`` becomes the parent. beads has no word for what a task touches, so a
footprint is kept in labels (``fp:x``, ``fp:read:x``) and read back from them.

What bd answers was tried with 0.49.6 (SQLite) and 1.0.0 (Dolt), and they differ where it matters: an unknown
task or a refused change may come with exit status 0 and words on stderr, and ``create`` under an id that is
taken may overwrite. So nothing is believed that has not been read back. Dolt lets one process in at a time
and turns the others away: such an answer is tried again a few times.

What beads uses for its own machinery (gates, molecules, messages, ...) is kept, since tasks may wait for it,
with the label ``no-dispatch``.
"""

from __future__ import annotations

import csv
import io
import re
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from threading import RLock

import msgspec

from flyball.core.task import Task, TaskStatus, check_task_id
from flyball.errors import SourceError, UsageError
from flyball.factory.git import Git
from flyball.factory.tasks.beads_issue import (
    Issue,
    created_id,
    deferred_until,
    error_words,
    footprint_labels,
    issues_of,
    task_of,
)
from flyball.factory.tasks.fields import why_no_title
from flyball.factory.tasks.port import Closing, Loaded, NewTask, Problem
from flyball.factory.tasks.program import Answer, Program
from flyball.factory.tasks.task_text import without_body

INSTALL = (
    "install it (https://github.com/steveyegge/beads), for example with "
    "'go install github.com/steveyegge/beads/cmd/bd@latest'"
)
WORKER = "flyball"
"""The assignee of a task that flyball works on and nobody else is assigned to."""
_LIST = ("list", "--all", "--limit", "0", "--include-gates", "--json")
_NAPS_S = (0.1, 0.2, 0.4, 0.8, 1.6, 3.0, 3.0, 3.0)
_TURNED_AWAY = re.compile(r"exclusive lock|database is locked|another process|SQLITE_BUSY|lock timeout")


class BeadsSource:
    name = "beads"

    def __init__(
        self,
        root: Path,
        *,
        command: Sequence[str] = ("bd",),
        timeout_s: float = 120.0,
        nap: Callable[[float], object] = time.sleep,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self._bd = Program(tuple(command), root, INSTALL, {"NO_COLOR": "1"}, timeout_s)
        self._nap = nap
        self._wall = wall
        self._lock = RLock()
        """One bd at a time from here: two would turn each other away."""
        self._said: bytes | None = None
        self._loaded = Loaded()
        self._good_until = 0.0
        """When the answer may mean something else though it is the same: a deferral ends."""

    # -- reading ----------------------------------------------------------------------------------

    def load(self) -> Loaded:
        with self._lock:
            said = self._ask(*_LIST).out
            if said != self._said or self._wall() >= self._good_until:
                self._loaded = self._loaded_from(said)
                self._said = said
            return self._loaded

    def _loaded_from(self, said: bytes) -> Loaded:
        now = self._wall()
        tasks, problems = [], []
        self._good_until = float("inf")
        for issue in self._issues(said):
            found = issue if isinstance(issue, Problem) else task_of(issue, wall_s=now)
            if isinstance(found, Problem):
                problems.append(found)
            else:
                tasks.append(without_body(found) if found.status is TaskStatus.CLOSED else found)
            if isinstance(issue, Issue) and (until := deferred_until(issue)) is not None and until > now:
                self._good_until = min(self._good_until, until)
        return Loaded(tuple(tasks), tuple(problems))

    def read(self, task_id: str) -> Task | None:
        issue = self._issue(task_id)
        found = None if issue is None else task_of(issue, wall_s=self._wall())
        return found if isinstance(found, Task) else None

    def _issue(self, task_id: str) -> Issue | None:
        """One issue in the same form in which a list has them all."""
        said = self._ask(*_LIST, f"--id={task_id}").out
        found = (issue for issue in self._issues(said) if isinstance(issue, Issue))
        return next((issue for issue in found if issue.id == task_id), None)

    def _issues(self, said: bytes) -> Iterator[Issue | Problem]:
        try:
            yield from issues_of(said)
        except msgspec.DecodeError as error:
            raise SourceError(
                f"bd list did not answer with a list of issues: {error}; {_shown(said)}"
            ) from error

    def watched(self) -> Sequence[Path]:
        """Nothing: bd writes into its own folder even when it only reads."""
        return ()

    def closed_at(self, task_id: str, git: Git, revision: str) -> bool:  # noqa: ARG002 (the port's)
        return False

    # -- adding -----------------------------------------------------------------------------------

    def add(self, new: NewTask) -> Task:
        self._check(new)
        args = list(_create_arguments(new))
        made = self._ask("create", *args, stdin=new.body)
        try:
            task_id = created_id(made.out)
        except msgspec.DecodeError as error:
            raise SourceError(f"bd create did not say what it made: {_shown(made.out)}") from error
        if new.parent is not None and new.id is not None:
            self._ask("dep", "add", task_id, new.parent, "--type=parent-child", "--json")
        return self._confirmed(task_id, new, made)

    def _check(self, new: NewTask) -> None:
        """What bd would let pass, or half do."""
        if why := why_no_title(new.title):
            raise UsageError(why)
        known = {task.id for task in self.load().tasks}
        if new.id is not None and check_task_id(new.id) in known:
            raise UsageError(f"there is a task {new.id!r} already; choose another id")
        for name in (*new.needs, *([new.parent] if new.parent else [])):
            if name not in known:
                raise UsageError(
                    f"there is no task {name!r}, and beads links only to what is there; add it first"
                )

    def _confirmed(self, task_id: str, new: NewTask, made: Answer) -> Task:
        """The task as bd has it. One that lacks a need would start too early, so it is kept from starting."""
        task = self.read(task_id)
        if task is None:
            raise SourceError(f"bd create made {task_id}, but bd list does not know it")
        missing = [need for need in new.needs if need not in task.needs]
        if missing or task.parent != (new.parent or None):
            self._ask("update", task_id, "--status=blocked", "--json")
            what = f"needs {', '.join(missing)}" if missing else f"is part of {new.parent}"
            raise SourceError(
                f"added {task_id}, but bd did not keep that it {what} ({error_words(made.out, made.err)}); "
                f"it is marked as blocked until you change that"
            )
        return task

    # -- working ----------------------------------------------------------------------------------

    def claim(self, task_id: str) -> None:
        issue = self._known(task_id)
        if issue.status in ("closed", "in_progress"):
            return
        mine = [] if issue.assignee else [f"--assignee={WORKER}"]
        self._update(task_id, "--status=in_progress", *mine)

    def unclaim(self, task_id: str) -> None:
        issue = self._known(task_id)
        if issue.status != "in_progress":
            return
        mine = ["--assignee="] if issue.assignee == WORKER else []
        self._update(task_id, "--status=open", *mine)

    def close_in(self, task_id: str, worktree: Path) -> Closing:  # noqa: ARG002 (the port's)
        """Nothing: the task does not live in the repository."""
        return Closing()

    def close(self, task_id: str, *, commit: str) -> None:
        if self._known(task_id).status == "closed":
            return
        self._close(task_id, f"landed as {commit}")

    def drop(self, task_id: str, *, reason: str = "") -> None:
        if self._known(task_id).status != "closed":
            self._close(task_id, reason.strip() or "closed with flyball task close")

    def _close(self, task_id: str, reason: str) -> None:
        # The work has landed or a person said so, whatever bd thinks of open parts or blockers.
        answer = self._ask("close", task_id, f"--reason={reason}", "--force", "--json", fails=True)
        if self._known(task_id).status != "closed":
            raise SourceError(f"bd did not close {task_id}: {error_words(answer.out, answer.err)}")

    def _update(self, task_id: str, *changes: str) -> None:
        answer = self._ask("update", task_id, *changes, "--json")
        if not answer.out.strip():  # an older bd says so on stderr, and exits with 0
            raise SourceError(f"bd did not change {task_id}: {error_words(answer.out, answer.err)}")

    def _known(self, task_id: str) -> Issue:
        issue = self._issue(task_id)
        if issue is None:
            raise SourceError(f"beads has no task {task_id!r} any more")
        return issue

    # -- asking bd --------------------------------------------------------------------------------

    def _ask(self, *args: str, stdin: str = "", fails: bool = False) -> Answer:
        """Run bd. SourceError if it fails, unless the caller looks into that (``fails``)."""
        with self._lock:
            answer = self._bd.ask(*args, stdin=stdin)
            for nap_s in _NAPS_S:
                if answer.code == 0 or not _TURNED_AWAY.search(error_words(answer.out, answer.err)):
                    break
                self._nap(nap_s)
                answer = self._bd.ask(*args, stdin=stdin)
        if answer.code != 0 and not fails:
            raise SourceError(
                f"bd {args[0]} failed in {self._bd.folder}: {error_words(answer.out, answer.err)}"
            )
        return answer


def _create_arguments(new: NewTask) -> Iterator[str]:
    yield from (f"--title={new.title.strip()}", f"--type={new.type}", f"--priority={new.priority}")
    if new.id is not None:
        yield f"--id={new.id}"
    elif new.parent is not None:
        yield f"--parent={new.parent}"
    if new.needs:
        yield f"--deps={_csv(new.needs)}"
    labels = [*new.labels, *footprint_labels(new.footprint)]
    if labels:
        yield f"--labels={_csv(labels)}"
    if new.acceptance.strip():
        yield f"--acceptance={new.acceptance.strip()}"
    if new.body.strip():
        yield "--body-file=-"
    yield "--json"


def _csv(items: Iterable[str]) -> str:
    """How bd's own parser wants lists: commas between, quotes around what has one."""
    line = io.StringIO()
    csv.writer(line, lineterminator="").writerow(items)
    return line.getvalue()


def _shown(said: bytes) -> str:
    text = said[:120].decode(errors="replace").strip()
    return f"it said {text!r}" if text else "it said nothing"
