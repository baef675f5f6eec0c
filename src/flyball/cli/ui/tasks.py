"""Tasks, and how an agent's run ended, as people and scripts read them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime

from flyball.cli.ui.render import BLANK, Block, Column, Line, Piece, Style, Table, Words
from flyball.cli.ui.units import command, counted
from flyball.core.tasks.readiness import Deferral, dispatch_order
from flyball.core.tasks.scheduler import Selection
from flyball.core.tasks.task import DEFAULT_TYPE, Task, TaskStatus
from flyball.factory.tasks.port import LoadedTasks, TaskProblem

_WAITING_SHOWN = 20
_STYLES = {
    TaskStatus.OPEN: Style.PLAIN,
    TaskStatus.IN_PROGRESS: Style.GOOD,
    TaskStatus.BLOCKED: Style.BAD,
    TaskStatus.DEFERRED: Style.QUIET,
    TaskStatus.CLOSED: Style.QUIET,
}


def task_fields(task: Task, *, whole: bool = True) -> dict[str, object]:
    """A task for ``--json``; not ``whole``: without its long texts."""
    short = {
        "id": task.id,
        "title": task.title,
        "status": task.status,
        "type": task.type,
        "priority": task.priority,
        "needs": task.needs,
        "parent": task.parent,
        "labels": task.labels,
        "footprint": task.footprint,
        "created": task.created,
        "where": task.where,
    }
    return {**short, "acceptance": task.acceptance, "body": task.body} if whole else short


def type_way_out(task: Task) -> str:
    """For a task whose type no agent is ever given."""
    parts = command("task", "add", "TITLE", "--parent", task.id)
    return f"make its type {DEFAULT_TYPE} in {task.where or task.id}, or add its parts: {parts}"


def waiting_record(deferral: Deferral) -> dict[str, object]:
    return {
        "id": deferral.task_id,
        "reason": deferral.reason,
        "blocker": deferral.blocker,
        "words": deferral.words,
    }


# -- list -----------------------------------------------------------------------------------------


def list_screen(tasks: Sequence[Task], loaded: LoadedTasks, *, at_most: int | None = None) -> Iterator[Block]:
    """``tasks`` are those to show, in order."""
    if tasks:
        columns = [Column("TASK"), Column("P", right=True), Column("STATUS"), Column("TITLE", wraps=True)]
        rows: list[list[Words]] = []
        for task in tasks[:at_most]:
            status = Piece(task.status.value, _STYLES[task.status])
            kind = Piece(f" ({task.type})" if task.type != DEFAULT_TYPE else "", Style.QUIET)
            rows.append([Piece(task.id, Style.STRONG), str(task.priority), status, [task.title, kind]])
        yield Table(columns, rows, indent=0)
    if at_most is not None and len(tasks) > at_most:
        yield Line(f"and {len(tasks) - at_most} more; flyball task list | less shows all")
    yield Line(_counts(tasks, loaded.tasks))
    yield from problem_lines(loaded.problems)


def _counts(shown: Sequence[Task], tasks: Sequence[Task]) -> Words:
    if not tasks:
        return 'There are no tasks yet; flyball task add "TITLE" makes one.'
    numbers = Counter(task.status for task in tasks)
    words = ", ".join(f"{numbers[status]} {_said(status)}" for status in TaskStatus if numbers[status])
    hidden = numbers[TaskStatus.CLOSED] and len(shown) < len(tasks)
    return Piece(f"{words}{'; --all shows the closed ones' if hidden else ''}", Style.QUIET)


def _said(status: TaskStatus) -> str:
    return status.value.replace("_", " ")


def problem_lines(problems: Sequence[TaskProblem]) -> Iterator[Block]:
    if not problems:
        return
    yield BLANK
    yield Line(Piece(f"{counted(len(problems), 'problem')}; these are not used as they are:", Style.BAD))
    for problem in problems:
        yield Line([Piece(problem.where, Style.STRONG), f": {problem.words}"], indent=2)


# -- ready ----------------------------------------------------------------------------------------


def ready_screen(choice: Selection, loaded: LoadedTasks, *, width: int) -> Iterator[Block]:
    if choice.items:
        yield Line(f"{counted(len(choice.items), 'task')} could start now, of {width} that run at once:")
        columns = [Column("TASK"), Column("P", right=True), Column("TITLE", wraps=True)]
        rows: list[list[Words]] = [
            [Piece(item.task.id, Style.STRONG), str(item.task.priority), item.task.title]
            for item in choice.items
        ]
        yield Table(columns, rows)
    else:
        yield Line("Nothing could start now." if choice.deferrals else "Nothing is left to do.")
    yield from _waiting(choice)
    yield from problem_lines(loaded.problems)


def _waiting(choice: Selection) -> Iterator[Block]:
    if not choice.deferrals:
        return
    yield BLANK
    yield Line(f"{counted(len(choice.deferrals), 'task')} would wait:")
    rows: list[list[Words]] = [[each.task_id, each.words] for each in choice.deferrals[:_WAITING_SHOWN]]
    yield Table([Column("TASK"), Column("WHY", wraps=True)], rows)
    if (more := len(choice.deferrals) - _WAITING_SHOWN) > 0:
        yield Line(Piece(f"and {more} more; --json shows all", Style.QUIET), indent=2)


# -- show -----------------------------------------------------------------------------------------


def show_screen(task: Task, others: Iterable[Task]) -> Iterator[Block]:
    known = {other.id: other for other in others}
    yield Line([Piece(task.id, Style.STRONG), f" {task.title}"])
    for label, words in _details(task, known):
        yield Line(words, label=label, indent=2)
    for title, text in (("Done when", task.acceptance), ("", task.body)):
        if text:
            yield BLANK
            yield from [Line(Piece(title, Style.QUIET))] if title else []
            yield from (Line(line) for line in text.split("\n"))


def _details(task: Task, known: dict[str, Task]) -> Iterator[tuple[str, Words]]:
    kind = f", {task.type}" if task.type != DEFAULT_TYPE else ""
    yield "status", [Piece(_said(task.status), _STYLES[task.status]), f", priority {task.priority}{kind}"]
    if task.needs:
        yield "needs", ", ".join(_with_status(need, known) for need in task.needs)
    if task.parent:
        yield "part of", _with_status(task.parent, known)
    children = dispatch_order(other for other in known.values() if other.parent == task.id)
    if children:
        yield "parts", ", ".join(_with_status(child.id, known) for child in children)
    if task.labels:
        yield "labels", ", ".join(task.labels)
    yield from _touches(task)
    if task.created is not None:
        yield "created", f"{datetime.fromtimestamp(task.created, UTC):%Y-%m-%d %H:%M} UTC"
    yield "where", task.where


def _touches(task: Task) -> Iterator[tuple[str, Words]]:
    if task.footprint is None:
        yield "touches", "not declared: it runs beside nothing else unless a label declares it"
        return
    if not task.footprint.write and not task.footprint.read:
        yield "touches", "nothing"
    if task.footprint.write:
        yield "writes", ", ".join(task.footprint.write)
    if task.footprint.read:
        yield "reads", ", ".join(task.footprint.read)


def _with_status(name: str, known: dict[str, Task]) -> str:
    return f"{name} ({_said(known[name].status) if name in known else 'does not exist'})"
