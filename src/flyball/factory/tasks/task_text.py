"""The text of one task file: reading it, writing a new one, closing it.

    ---
    id: t-1
    title: Add the hello page
    status: open
    footprint: {write: ["pages/hello*"], read: ["lib/**"]}
    ---
    What to do, in words.

What is written here reads back as exactly what it was made from.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime

from flyball.core.tasks.footprint import Footprint
from flyball.core.tasks.task import DEFAULT_PRIORITY, DEFAULT_TYPE, Task, TaskStatus
from flyball.factory.tasks.fields import Fields
from flyball.factory.tasks.front_matter import (
    MalformedError,
    has_front_matter,
    parse,
    scalar,
    split,
    with_value,
)
from flyball.factory.tasks.port import NewTask, TaskProblem

SIZE_LIMIT = 1 << 20


def read_task(data: bytes, where: str) -> Task | TaskProblem | None:
    """What a file says. None: it has no front matter, so it is not a task.

    ``data`` may be cut off behind SIZE_LIMIT; a longer task is a problem.
    """
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        return _undecodable(data, error, where)
    if len(data) > SIZE_LIMIT:
        return _too_large(where) if has_front_matter(text) else None
    return _read(text, where)


def _read(text: str, where: str) -> Task | TaskProblem | None:
    try:
        parts = split(text)
        if parts is None:
            return None
        block = parse(text[parts.begin : parts.end], first_line=parts.first_line)
    except MalformedError as error:
        return TaskProblem(where, str(error))
    fields = Fields(block.values)
    task = fields.task(body=normalize_body(text[parts.rest :]), where=where)
    if fields.wrong:
        return TaskProblem(where, fields.words(), task.id or None)
    return task


def normalize_body(text: str) -> str:
    return text.replace("\r\n", "\n").replace("\r", "\n").strip()


def without_body(task: Task) -> Task:
    return replace(task, body="") if task.body else task


def _undecodable(data: bytes, error: UnicodeDecodeError, where: str) -> TaskProblem | None:
    start = data[: error.start].decode()
    if len(data) > SIZE_LIMIT and error.start >= SIZE_LIMIT - 4:  # cut in the middle of a letter
        return _too_large(where) if has_front_matter(start) else None
    line = start.count("\n") + 1
    return TaskProblem(where, f"line {line}: not UTF-8 (byte 0x{data[error.start]:02x}); save it as UTF-8")


def _too_large(where: str) -> TaskProblem:
    return TaskProblem(where, f"larger than {SIZE_LIMIT >> 20} MiB; keep the task short and link to the rest")


# -- closing --------------------------------------------------------------------------------------


def close_text(data: bytes, *, why: str = "") -> bytes:
    """The same text with its status closed, and why as its last words; a closed one stays as it is.

    >>> close_text(b"---\\nid: t-1\\ntitle: x\\nstatus: open\\n---\\nDo it.\\n", why="not wanted")
    b'---\\nid: t-1\\ntitle: x\\nstatus: closed\\n---\\nDo it.\\n\\nClosed: not wanted\\n'
    """
    text = data.decode()
    task = _read(text, "")
    if isinstance(task, Task) and task.status is TaskStatus.CLOSED:
        return data
    text = with_value(text, "status", TaskStatus.CLOSED.value)
    line_end = "\r\n" if "\r\n" in text else "\n"
    last = f"{line_end}Closed: {' '.join(why.split())}{line_end}" if why.strip() else ""
    gap = line_end if last and not text.endswith(("\n", "\r")) else ""
    return f"{text}{gap}{last}".encode()


# -- writing --------------------------------------------------------------------------------------


def new_text(new: NewTask, task_id: str, *, created: float) -> str:
    """The text of a new task."""
    names = [("id", scalar(task_id)), ("title", scalar(new.title.strip())), ("status", TaskStatus.OPEN.value)]
    labels = [("labels", _flow(new.labels))] if new.labels else []
    head = yaml_lines([*names, *entries(new), *labels, ("created", iso(created))])
    body = normalize_body(new.body)
    return f"---\n{head}---\n{body}\n" if body else f"---\n{head}---\n"


Entry = tuple[str, str]
"""A key and its value as YAML."""


def yaml_lines(parts: Iterable[Entry]) -> str:
    return "".join(f"{key}:{'' if value.startswith(chr(10)) else ' '}{value}\n" for key, value in parts)


def entries(new: NewTask) -> Iterator[Entry]:
    """What a new task says beyond its name and its words, as far as it says it."""
    if new.type != DEFAULT_TYPE:
        yield "type", scalar(new.type)
    if new.priority != DEFAULT_PRIORITY:
        yield "priority", str(new.priority)
    if new.needs:
        yield "needs", _flow(new.needs)
    if new.parent:
        yield "parent", scalar(new.parent)
    if new.footprint is not None:
        yield "footprint", _footprint(new.footprint)
    if new.acceptance.strip():
        yield "acceptance", _acceptance(new.acceptance.strip())


def _flow(items: Iterable[str]) -> str:
    return f"[{', '.join(scalar(item) for item in items)}]"


def _footprint(footprint: Footprint) -> str:
    sides: Sequence[tuple[str, tuple[str, ...]]] = (("write", footprint.write), ("read", footprint.read))
    return f"{{{', '.join(f'{name}: {_flow(tokens)}' for name, tokens in sides if tokens)}}}"


def _acceptance(text: str) -> str:
    """A list where every line is an item of one; it reads back as the same lines."""
    lines = text.split("\n")
    items = [line.removeprefix("- ") for line in lines]
    listed = all(line.startswith("- ") for line in lines) and all(
        item.strip() == item != "" for item in items
    )
    if listed and len(set(items)) == len(items):
        return "".join(f"\n  - {scalar(item)}" for item in items)
    return scalar(text)


def iso(moment: float) -> str:
    """
    >>> iso(0.25)
    '1970-01-01T00:00:00.250Z'
    """
    return datetime.fromtimestamp(moment, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
