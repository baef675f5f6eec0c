"""What ``gh`` prints about an issue, and the task that it means. Nothing is run here.

What an issue cannot say by itself is written into its text, in a block that GitHub shows as code:

    ```yaml flyball
    priority: 1
    needs: [12]
    footprint: {write: ["pages/hello*"]}
    ```

or as front matter at the very beginning. A line ``Needs: #12`` or ``Parent: #7`` and a label ``priority:1``
or ``type:bug`` do as well; the block goes before them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from itertools import chain

import msgspec

from flyball.core.nearest import did_you_mean
from flyball.core.task import DEFAULT_PRIORITY, DEFAULT_TYPE, Task, TaskStatus
from flyball.factory.tasks.fields import Fields, moment_of, priority_of, why_no_title
from flyball.factory.tasks.front_matter import MalformedError, Value, parse, split
from flyball.factory.tasks.port import NewTask, Problem
from flyball.factory.tasks.task_text import body_of, entries, yaml_lines

FIELDS = "number,title,body,state,labels,createdAt,url"
IN_PROGRESS = "flyball:in-progress"
KEYS = ("type", "priority", "needs", "parent", "footprint", "acceptance")
_FENCED = re.compile(r"^```ya?ml[ \t]+flyball[ \t]*\n(.*?)^```[ \t]*$\n?", re.MULTILINE | re.DOTALL)
_KEY = re.compile(r"^[{ ]*([\w-]+)[ \t]*:", re.MULTILINE)
_CODE = re.compile(r"^(```|~~~).*?^\1", re.MULTILINE | re.DOTALL)
_FLAGS = re.MULTILINE | re.IGNORECASE | re.ASCII
_LINE = re.compile(r"^[ \t]*(?:[-*][ \t]+)?(needs|parent)[ \t]*:(.*)$", _FLAGS)
_REFERENCE = re.compile(r"(?:[\w.-]+/[\w.-]+)?#\d+\b|\bgh-\d+\b", re.IGNORECASE | re.ASCII)
_STATUS_LABELS = {
    IN_PROGRESS: TaskStatus.IN_PROGRESS,
    "blocked": TaskStatus.BLOCKED,
    "deferred": TaskStatus.DEFERRED,
}


class Label(msgspec.Struct, frozen=True):
    name: str


class Issue(msgspec.Struct, frozen=True):
    number: int
    title: str
    state: str
    body: str | None = None
    labels: list[Label] | None = None
    createdAt: str | None = None  # noqa: N815 (gh's own name)
    url: str = ""

    @property
    def names(self) -> list[str]:
        """Of its labels."""
        return [label.name for label in self.labels or ()]

    @property
    def closed(self) -> bool:
        return self.state.upper() in ("CLOSED", "MERGED")  # a pull request can be needed, too


def id_of(number: int) -> str:
    return f"gh-{number}"


def number_of(task_id: str) -> int | None:
    """
    >>> number_of("gh-12"), number_of("t-12"), number_of("gh-0x1")
    (12, None, None)
    """
    found = re.fullmatch(r"gh-([1-9][0-9]{0,9})", task_id)
    return int(found[1]) if found else None


def issues_of(out: bytes) -> Iterator[Issue | Problem]:
    """The issues of a list; raises msgspec.DecodeError where there is no list at all."""
    try:
        found = msgspec.json.decode(out, type=list[msgspec.Raw])
    except RecursionError:
        raise msgspec.DecodeError("nested too deeply") from None
    for raw in found:
        try:
            yield msgspec.json.decode(raw, type=Issue)
        except (msgspec.DecodeError, RecursionError) as error:
            yield Problem("gh issue list", f"an issue cannot be read: {error}")


def task_of(issue: Issue, *, label: str) -> Task | Problem:
    """``label`` is what makes an issue a task; one that lacks it is only waited for, and never dispatched.

    Anybody may have written its text: one that cannot be read for whatever reason holds up no other.
    """
    try:
        return _task_of(issue, label)
    except Exception as error:
        words = f"it cannot be read as a task ({type(error).__name__}: {error}); edit or unlabel it"
        return Problem(issue.url, words, id_of(issue.number))


def _task_of(issue: Issue, label: str) -> Task | Problem:
    task_id = id_of(issue.number)
    title = issue.title.strip() if issue.title.isprintable() else " ".join(issue.title.split())
    try:
        values, body = _taken_apart(issue.body or "")
    except MalformedError as error:
        return Problem(issue.url, str(error), task_id)
    fields = Fields(values, known=KEYS)
    fields.wrong += [why] if (why := why_no_title(title)) else []
    lines = _lines(body)
    parent = reference(fields.text("parent") or "") or next(iter(lines["parent"]), None)
    task = Task(
        id=task_id,
        title=title,
        status=_status(issue),
        type=fields.type() if "type" in values else _labelled(issue, "type:") or DEFAULT_TYPE,
        priority=fields.priority() if "priority" in values else _priority(issue),
        needs=tuple(dict.fromkeys(chain(map(reference, fields.texts("needs")), lines["needs"]))),
        parent=parent,
        parent_claimed=parent is not None,  # by its text, which its author may edit at any time
        labels=_labels(issue, label),
        footprint=fields.footprint(),
        acceptance=fields.acceptance(),
        body=body,
        created=moment_of(issue.createdAt or ""),
        where=issue.url,
    )
    return Problem(issue.url, fields.words(), task_id) if fields.wrong else task


def reference(written: str) -> str:
    """
    >>> [reference(text) for text in ("12", "#12", "GH-12", "t-1", "")]
    ['gh-12', 'gh-12', 'gh-12', 't-1', '']
    """
    found = re.fullmatch(r"(?:#|gh-)?([0-9]+)", written.strip(), re.IGNORECASE | re.ASCII)
    return id_of(int(found[1])) if found else written.strip()


# -- the parts of an issue ------------------------------------------------------------------------


def _taken_apart(text: str) -> tuple[Mapping[str, Value], str]:
    """What the block says, and the text without it."""
    text = body_of(text)
    if found := _FENCED.search(text):
        return parse(found[1]).values, body_of(text[: found.start()] + text[found.end() :])
    try:
        parts = split(text)
    except MalformedError:
        return {}, text  # three dashes are a line across the page, too
    if parts is None:
        return {}, text
    front = text[parts.begin : parts.end]
    if not any(did_you_mean(key.casefold(), KEYS) for key in _KEY.findall(front)):
        return {}, text
    return parse(front, first_line=parts.first_line).values, body_of(text[parts.rest :])


def _lines(body: str) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {"needs": [], "parent": []}
    for line in _LINE.finditer(_CODE.sub("", body)):
        found[line[1].lower()] += map(reference, _REFERENCE.findall(line[2]))
    return found


def _status(issue: Issue) -> TaskStatus:
    if issue.closed:
        return TaskStatus.CLOSED
    return next((_STATUS_LABELS[name] for name in issue.names if name in _STATUS_LABELS), TaskStatus.OPEN)


def _labelled(issue: Issue, prefix: str) -> str:
    return next((name.removeprefix(prefix).strip() for name in issue.names if name.startswith(prefix)), "")


def _priority(issue: Issue) -> int:
    number = priority_of(_labelled(issue, "priority:"))
    return DEFAULT_PRIORITY if number is None else number


def _labels(issue: Issue, label: str) -> tuple[str, ...]:
    kept = tuple(name for name in issue.names if name.casefold() not in (label.casefold(), IN_PROGRESS))
    return kept if is_task(issue, label) else (*kept, "no-dispatch")


def is_task(issue: Issue, label: str) -> bool:
    return label.casefold() in [name.casefold() for name in issue.names]


# -- writing --------------------------------------------------------------------------------------


def body_for(new: NewTask) -> str:
    """The text of a new issue."""
    block = yaml_lines(entries(new))
    body = body_of(new.body)
    return f"{body}\n\n```yaml flyball\n{block}```\n".lstrip() if block else body
