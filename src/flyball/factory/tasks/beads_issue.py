"""What ``bd`` prints about an issue, and the task that it means. Nothing is run here."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import msgspec

from flyball.core.footprint import Footprint, check_footprint
from flyball.core.task import DEFAULT_PRIORITY, DEFAULT_TYPE, Task, TaskStatus, check_task_id
from flyball.errors import UsageError
from flyball.factory.tasks.fields import moment_of, why_no_title
from flyball.factory.tasks.port import Problem
from flyball.factory.tasks.task_text import body_of

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


class Issue(msgspec.Struct, frozen=True):
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


def where_of(task_id: str) -> str:
    """Where a person finds it."""
    return f"bd show {task_id}"


def issues_of(out: bytes) -> Iterator[Issue | Problem]:
    """The issues of a list; one that makes no sense is a problem beside the others.

    Raises msgspec.DecodeError where there is no list at all.
    """
    try:
        found = msgspec.json.decode(out, type=list[msgspec.Raw] | None) or ()
    except RecursionError:
        raise msgspec.DecodeError("nested too deeply") from None
    for raw in found:
        try:
            yield msgspec.json.decode(raw, type=Issue)
        except (msgspec.DecodeError, RecursionError) as error:
            yield Problem(
                "bd list", f"an issue cannot be read: {error} in {bytes(raw)[:80].decode(errors='replace')}"
            )


def task_of(issue: Issue, *, wall_s: float) -> Task | Problem:
    title = issue.title.strip() if issue.title.isprintable() else " ".join(issue.title.split())
    try:
        check_task_id(issue.id)
    except UsageError as error:
        return Problem(where_of(issue.id), str(error), issue.id)
    if why := why_no_title(title):
        return Problem(where_of(issue.id), why, issue.id)
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
        acceptance=body_of(issue.acceptance_criteria or ""),
        body=_body(issue),
        created=moment_of(issue.created_at or ""),
        where=where_of(issue.id),
    )


def deferred_until(issue: Issue) -> float | None:
    return moment_of(issue.defer_until or "")


def _status(issue: Issue, wall_s: float) -> TaskStatus:
    """A status that the user made up is no invitation to start."""
    status = _STATUSES.get(issue.status, TaskStatus.BLOCKED)
    if status is TaskStatus.OPEN and (deferred_until(issue) or 0) > wall_s:
        return TaskStatus.DEFERRED
    return status


def _dependencies(issue: Issue, kinds: Iterable[str]) -> Iterator[Dependency]:
    return (each for each in issue.dependencies or () if each.type in kinds and each.depends_on_id)


def _body(issue: Issue) -> str:
    parts = [body_of(issue.description or "")]
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

    They stay labels where an area says what is written, or where they make no sense: whoever wants to know
    what a task touches looks at its labels too.
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
