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

from flyball.core.tasks.footprint import Footprint, check_footprint
from flyball.core.tasks.task import DEFAULT_PRIORITY, DEFAULT_TYPE, Task, TaskStatus, check_task_id
from flyball.errors import SourceError, UsageError
from flyball.factory.git.git import Git
from flyball.factory.tasks.command import Program, ProgramOutput
from flyball.factory.tasks.fields import parse_moment, title_problem
from flyball.factory.tasks.port import Closing, LoadedTasks, NewTask, TaskProblem
from flyball.factory.tasks.task_text import normalize_body, without_body

_BLOCKING = frozenset(["blocks", "conditional-blocks", "waits-for"])
_STATUSES = {status.value: status for status in TaskStatus} | {
    "hooked": TaskStatus.IN_PROGRESS,
    "pinned": TaskStatus.DEFERRED,
}
_MACHINERY = frozenset(
    [
        "agent",
        "convoy",
        "event",
        "gate",
        "message",
        "milestone",
        "molecule",
        "rig",
        "role",
        "slot",
        "wisp",
    ]
)


class Dependency(msgspec.Struct, frozen=True):
    depends_on_id: str = ""
    type: str = ""


class BeadsIssue(msgspec.Struct, frozen=True):
    id: str
    title: str = ""
    description: str | None = None
    design: str | None = None
    notes: str | None = None
    acceptance_criteria: str | None = None
    status: str = "open"
    priority: int = DEFAULT_PRIORITY
    issue_type: str = DEFAULT_TYPE
    assignee: str | None = None
    created_at: str | None = None
    defer_until: str | None = None
    labels: list[str] | None = None
    dependencies: list[Dependency] | None = None


def show_command(task_id: str) -> str:
    """Where a person finds it."""
    return f"bd show {task_id}"


def parse_issues(out: bytes) -> Iterator[BeadsIssue | TaskProblem]:
    """The issues of a list; one that makes no sense is a problem beside the others.

    Raises msgspec.DecodeError where there is no list at all.
    """
    try:
        found = msgspec.json.decode(out, type=list[msgspec.Raw] | None) or ()
    except RecursionError:
        raise msgspec.DecodeError("nested too deeply") from None
    for raw in found:
        try:
            yield msgspec.json.decode(raw, type=BeadsIssue)
        except (msgspec.DecodeError, RecursionError) as error:
            yield TaskProblem(
                "bd list", f"an issue cannot be read: {error} in {bytes(raw)[:80].decode(errors='replace')}"
            )


def to_task(issue: BeadsIssue, *, wall_s: float) -> Task | TaskProblem:
    title = issue.title.strip() if issue.title.isprintable() else " ".join(issue.title.split())
    try:
        check_task_id(issue.id)
    except UsageError as error:
        return TaskProblem(show_command(issue.id), str(error), issue.id)
    if why := title_problem(title):
        return TaskProblem(show_command(issue.id), why, issue.id)
    status = _status(issue, wall_s)
    footprint, labels = _split(issue.labels or ())
    if issue.issue_type in _MACHINERY:
        labels = (*labels, "no-dispatch")
    return Task(
        id=issue.id,
        title=title,
        status=status,
        type=issue.issue_type or DEFAULT_TYPE,
        priority=max(0, issue.priority),
        needs=tuple(dict.fromkeys(each.depends_on_id for each in _dependencies(issue, _BLOCKING))),
        parent=next((each.depends_on_id for each in _dependencies(issue, {"parent-child"})), None),
        labels=labels,
        footprint=footprint,
        acceptance=normalize_body(issue.acceptance_criteria or ""),
        body=_body(issue),
        created=parse_moment(issue.created_at or ""),
        where=show_command(issue.id),
    )


def deferred_until(issue: BeadsIssue) -> float | None:
    return parse_moment(issue.defer_until or "")


def _status(issue: BeadsIssue, wall_s: float) -> TaskStatus:
    """A status of the user's own does not start anything."""
    status = _STATUSES.get(issue.status, TaskStatus.BLOCKED)
    if status is TaskStatus.OPEN and (deferred_until(issue) or 0) > wall_s:
        return TaskStatus.DEFERRED
    return status


def _dependencies(issue: BeadsIssue, kinds: Iterable[str]) -> Iterator[Dependency]:
    return (each for each in issue.dependencies or () if each.type in kinds and each.depends_on_id)


def _body(issue: BeadsIssue) -> str:
    parts = [normalize_body(issue.description or "")]
    parts += [
        f"## {title}\n\n{text}" for title, text in (("Design", issue.design), ("Notes", issue.notes)) if text
    ]
    return "\n\n".join(part for part in parts if part).strip()


# -- footprints in labels -------------------------------------------------------------------------


def footprint_labels(footprint: Footprint | None) -> list[str]:
    if footprint is None:
        return []
    return [f"fp:{token}" for token in footprint.write] + [f"fp:read:{token}" for token in footprint.read]


def _split(labels: Iterable[str]) -> tuple[Footprint | None, tuple[str, ...]]:
    """The footprint that labels spell out, and the other labels.

    They stay labels where an area says what is written, or where they make no sense: what a task
    touches is read from its labels too.
    """
    reads = [label for label in labels if label.startswith("fp:read:")]
    writes = [label for label in labels if label.startswith("fp:") and label not in reads]
    others = tuple(label for label in labels if not label.startswith("fp:"))
    if not writes and (not reads or any(label.startswith("area:") for label in others)):
        return None, tuple(labels)
    spelt = Footprint(
        write=tuple(label.removeprefix("fp:") for label in writes),
        read=tuple(label.removeprefix("fp:read:") for label in reads),
    )
    try:
        return check_footprint(spelt), others
    except UsageError:
        return None, tuple(labels)


# -- words ----------------------------------------------------------------------------------------


class _Error(msgspec.Struct):
    error: str


def error_words(out: bytes, err: bytes) -> str:
    """What bd complained about: an object with ``error`` on either stream, or the last line of stderr."""
    for text in (out, err):
        try:
            return msgspec.json.decode(text, type=_Error).error.splitlines()[0]
        except (msgspec.DecodeError, IndexError):
            continue
    lines = [line.strip() for line in err.decode(errors="replace").splitlines() if line.strip()]
    said = [line for line in lines if line.startswith(("Error", "error", "cannot", "Warning: failed"))]
    return (said or lines or ["it did not say why"])[0 if said else -1].removeprefix("Error: ")


class _Created(msgspec.Struct):
    id: str


def created_id(out: bytes) -> str:
    """The id of what ``create`` made. Raises msgspec.DecodeError where it says nothing of the kind."""
    return msgspec.json.decode(out, type=_Created).id


INSTALL = (
    "install it (https://github.com/steveyegge/beads), for example with "
    "'go install github.com/steveyegge/beads/cmd/bd@latest'"
)
WORKER = "flyball"
"""The assignee of a task that flyball works on and that has no other assignee."""
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
        self._loaded = LoadedTasks()
        self._good_until = 0.0
        """When the answer may mean something else though it is the same: a deferral ends."""

    # -- reading ----------------------------------------------------------------------------------

    def load(self) -> LoadedTasks:
        with self._lock:
            said = self._ask(*_LIST).out
            if said != self._said or self._wall() >= self._good_until:
                self._loaded = self._parse(said)
                self._said = said
            return self._loaded

    def _parse(self, said: bytes) -> LoadedTasks:
        now = self._wall()
        tasks, problems = [], []
        self._good_until = float("inf")
        for issue in self._issues(said):
            found = issue if isinstance(issue, TaskProblem) else to_task(issue, wall_s=now)
            if isinstance(found, TaskProblem):
                problems.append(found)
            else:
                tasks.append(without_body(found) if found.status is TaskStatus.CLOSED else found)
            if isinstance(issue, BeadsIssue) and (until := deferred_until(issue)) is not None and until > now:
                self._good_until = min(self._good_until, until)
        return LoadedTasks(tuple(tasks), tuple(problems))

    def read(self, task_id: str) -> Task | None:
        issue = self._issue(task_id)
        found = None if issue is None else to_task(issue, wall_s=self._wall())
        return found if isinstance(found, Task) else None

    def _issue(self, task_id: str) -> BeadsIssue | None:
        """One issue in the same form in which a list has them all."""
        said = self._ask(*_LIST, f"--id={task_id}").out
        found = (issue for issue in self._issues(said) if isinstance(issue, BeadsIssue))
        return next((issue for issue in found if issue.id == task_id), None)

    def _issues(self, said: bytes) -> Iterator[BeadsIssue | TaskProblem]:
        try:
            yield from parse_issues(said)
        except msgspec.DecodeError as error:
            raise SourceError(
                f"bd list did not answer with a list of issues: {error}; {_quote(said)}"
            ) from error

    def watch_folders(self) -> Sequence[Path]:
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
            raise SourceError(f"bd create did not say what it made: {_quote(made.out)}") from error
        if new.parent is not None and new.id is not None:
            self._ask("dep", "add", task_id, new.parent, "--type=parent-child", "--json")
        return self._read_back(task_id, new, made)

    def _check(self, new: NewTask) -> None:
        """What bd would let pass, or half do."""
        if why := title_problem(new.title):
            raise UsageError(why)
        known = {task.id for task in self.load().tasks}
        if new.id is not None and check_task_id(new.id) in known:
            raise UsageError(f"there is a task {new.id!r} already; choose another id")
        for name in (*new.needs, *([new.parent] if new.parent else [])):
            if name not in known:
                raise UsageError(
                    f"there is no task {name!r}, and beads links only to what is there; add it first"
                )

    def _read_back(self, task_id: str, new: NewTask, made: ProgramOutput) -> Task:
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
        issue = self._require_issue(task_id)
        if issue.status in ("closed", "in_progress"):
            return
        mine = [] if issue.assignee else [f"--assignee={WORKER}"]
        self._update(task_id, "--status=in_progress", *mine)

    def unclaim(self, task_id: str) -> None:
        issue = self._require_issue(task_id)
        if issue.status != "in_progress":
            return
        mine = ["--assignee="] if issue.assignee == WORKER else []
        self._update(task_id, "--status=open", *mine)

    def close_in(self, task_id: str, worktree: Path) -> Closing:  # noqa: ARG002 (the port's)
        """Nothing: the task does not live in the repository."""
        return Closing()

    def close(self, task_id: str, *, commit: str) -> None:
        if self._require_issue(task_id).status == "closed":
            return
        self._close(task_id, f"landed as {commit}")

    def drop(self, task_id: str, *, reason: str = "") -> None:
        if self._require_issue(task_id).status != "closed":
            self._close(task_id, reason.strip() or "closed with flyball task close")

    def _close(self, task_id: str, reason: str) -> None:
        # The work has landed or a person said so, whatever bd thinks of open parts or blockers.
        answer = self._ask("close", task_id, f"--reason={reason}", "--force", "--json", fails=True)
        if self._require_issue(task_id).status != "closed":
            raise SourceError(f"bd did not close {task_id}: {error_words(answer.out, answer.err)}")

    def _update(self, task_id: str, *changes: str) -> None:
        answer = self._ask("update", task_id, *changes, "--json")
        if not answer.out.strip():  # an older bd says so on stderr, and exits with 0
            raise SourceError(f"bd did not change {task_id}: {error_words(answer.out, answer.err)}")

    def _require_issue(self, task_id: str) -> BeadsIssue:
        issue = self._issue(task_id)
        if issue is None:
            raise SourceError(f"beads has no task {task_id!r} any more")
        return issue

    # -- asking bd --------------------------------------------------------------------------------

    def _ask(self, *args: str, stdin: str = "", fails: bool = False) -> ProgramOutput:
        """Run bd. SourceError if it fails, unless the caller looks into that (``fails``)."""
        with self._lock:
            answer = self._bd.run(*args, stdin=stdin)
            for nap_s in _NAPS_S:
                if answer.code == 0 or not _TURNED_AWAY.search(error_words(answer.out, answer.err)):
                    break
                self._nap(nap_s)
                answer = self._bd.run(*args, stdin=stdin)
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


def _quote(said: bytes) -> str:
    text = said[:120].decode(errors="replace").strip()
    return f"it said {text!r}" if text else "it said nothing"
