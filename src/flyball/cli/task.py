"""``flyball task add|list|ready|show|why|close|reject``: what there is to do. Reads the tasks where they are
kept."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any

from flyball.cli.render import print_json, say, show
from flyball.cli.subverbs import add_action
from flyball.cli.task_screen import (
    list_screen,
    ready_screen,
    record,
    show_screen,
    type_way_out,
    waiting_record,
)
from flyball.cli.units import count
from flyball.core.footprint import Footprint
from flyball.core.nearest import did_you_mean
from flyball.core.ready import NOT_DISPATCHED_TYPES, in_order
from flyball.core.task import DEFAULT_PRIORITY, DEFAULT_TYPE, Task, TaskStatus
from flyball.core.wave import choose
from flyball.errors import UsageError
from flyball.factory.config import ProjectConfig
from flyball.factory.config_reading import load_config
from flyball.factory.root import find_root
from flyball.factory.tasks.port import Loaded, NewTask, TaskSource
from flyball.factory.tasks.sources import open_source

SUMMARY = """Add, list and show tasks, see which could start now, and why one does not run; close one, or send
its work back."""
EXAMPLE = """flyball task add "Add the hello page" --write "pages/hello*"
flyball task list
flyball task reject t-14 --reason "keep the old address working"
flyball task close t-14 --reason "not wanted any more\""""

_ADD_EXAMPLE = """flyball task add "Add the hello page" --write "pages/hello*" --read "lib/**"
flyball task add "Link to it" --need t-1 --priority 1 --body - < words.md"""

_SCREENFULS = 500
"""What a terminal is asked to lay out; beyond it nobody reads and everybody waits."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(title="actions", metavar="ACTION", dest="action", required=True)
    added = add_action(actions, "add", "add a task", _ADD_EXAMPLE)
    _add_add(added)
    listed = add_action(actions, "list", "list the tasks that are not closed", "flyball task list --all")
    listed.add_argument("--all", action="store_true", help="closed ones too")
    ready = add_action(
        actions, "ready", "show which tasks could start now, and why the others wait", "flyball task ready"
    )
    ready.add_argument("--width", type=count, metavar="N", help="as if N could run at once (run.width)")
    shown = add_action(actions, "show", "show all that is written about a task", "flyball task show t-14")
    shown.add_argument("id", metavar="ID", help="the task")
    explained = add_action(
        actions, "why", "say why a task is not running now, and what to do", "flyball task why t-14"
    )
    explained.add_argument("id", metavar="ID", help="the task")
    for action in (added, listed, ready, shown, explained, *_add_by_hand(actions)):
        action.add_argument("--json", action="store_true", help="the result as JSON")


_REJECT_EXAMPLE = """flyball task reject t-14 --reason "keep the old address working"
flyball task reject t-14 --reason - < words.md
exit status: 0 sent back; 1 the run has not answered; 2 there is nothing to send back"""
_CLOSE_EXAMPLE = """flyball task close t-14
flyball task close t-14 --reason "not wanted any more"
exit status: 0 closed; 1 closed, and its work lands all the same or the run has not answered; 2 not closed"""


def _add_by_hand(actions: Any) -> Iterator[argparse.ArgumentParser]:
    closed = add_action(
        actions, "close", "close a task that is not wanted any more; its work is kept", _CLOSE_EXAMPLE
    )
    closed.add_argument("--reason", default="", metavar="TEXT", help="why, kept with the task")
    back = add_action(
        actions, "reject", "send finished or blocked work back to an agent, with words", _REJECT_EXAMPLE
    )
    back.add_argument(
        "--reason", required=True, metavar="TEXT", help="what the agent is told; - reads it from stdin"
    )
    for action in (closed, back):
        action.add_argument("id", metavar="ID", help="the task")
        yield action


def _add_add(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("title", metavar="TITLE", help="what to do, in one line")
    parser.add_argument(
        "--body", default="", metavar="TEXT", help="more words about it; - reads them from stdin"
    )
    parser.add_argument("--id", metavar="ID", help="its name (default: the next free one)")
    parser.add_argument("--type", default=DEFAULT_TYPE, metavar="TYPE", help=f"its kind ({DEFAULT_TYPE})")
    parser.add_argument(
        "--priority",
        type=count,
        default=DEFAULT_PRIORITY,
        metavar="N",
        help=f"0 is first ({DEFAULT_PRIORITY})",
    )
    parser.add_argument("--parent", metavar="ID", help="the task that it is a part of")
    for flag, dest, name, words in _LISTS:
        parser.add_argument(f"--{flag}", dest=dest, action="append", default=[], metavar=name, help=words)


_LISTS = (
    ("need", "needs", "ID", "a task that must be closed before this one starts; repeatable"),
    ("label", "labels", "LABEL", "a label, such as area:web; repeatable"),
    ("write", "write", "GLOB", "what it changes; nothing that overlaps runs beside it; repeatable"),
    ("read", "read", "GLOB", "what it only looks at; repeatable"),
    ("acceptance", "acceptance", "TEXT", "how to see that it is done; repeatable"),
)


def run(args: argparse.Namespace) -> int:
    root = find_root(Path.cwd())
    config = load_config(root)
    if args.action == "why":
        # The engine is a lot to import, and the others do without.
        from flyball.cli.task_why import why

        return why(args)
    if args.action in ("close", "reject"):
        from flyball.cli import task_by_hand

        return task_by_hand.close(args) if args.action == "close" else task_by_hand.reject(args)
    act = {"add": _add, "list": _list, "ready": _ready, "show": _show}[args.action]
    return act(args, config, open_source(config, root))


def _add(args: argparse.Namespace, config: ProjectConfig, source: TaskSource) -> int:
    task = source.add(_new(args, _used(config) if args.id is None and source.name == "files" else ()))
    known = {other.id for other in source.load().tasks}
    missing = [name for name in dict.fromkeys((*task.needs, task.parent)) if name and name not in known]
    notes = list(_notes(task, config))
    if args.json:
        print_json({**record(task), "missing": missing, "notes": notes})
        return 0
    say(f"added {task.id}: {task.where}")
    for name in missing:
        waits = f"; {task.id} waits until it is closed" if name in task.needs else ""
        say(f"there is no task {name!r} yet{waits}")
    for words in notes:
        say(f"{task.id}: {words}")
    return 0


def _notes(task: Task, config: ProjectConfig) -> Iterator[str]:
    """What the task says that its writer may not have meant."""
    from flyball.factory.validation import of_labels

    if task.type in NOT_DISPATCHED_TYPES:
        yield f"is of type {task.type}, which is not dispatched; {type_way_out(task)}"
    for finding in of_labels(task, config):
        yield finding.words


def _used(config: ProjectConfig) -> Collection[str]:
    # The engine is a lot to import, and the others do without.
    from flyball.factory.used_ids import used_ids

    return used_ids(find_root(Path.cwd()), config)


def _new(args: argparse.Namespace, used: Collection[str]) -> NewTask:
    criteria = args.acceptance
    return NewTask(
        title=args.title,
        id=args.id,
        type=args.type,
        priority=args.priority,
        needs=args.needs,
        parent=args.parent,
        labels=args.labels,
        footprint=Footprint(tuple(args.write), tuple(args.read)) if args.write or args.read else None,
        acceptance="\n".join(f"- {line}" for line in criteria) if len(criteria) > 1 else "".join(criteria),
        body=_stdin() if args.body == "-" else args.body,
        used=used,
    )


def _stdin() -> str:
    try:
        return sys.stdin.buffer.read().decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise UsageError(
            f"what came on stdin is not UTF-8 (byte {error.start}); nothing was added"
        ) from error


def _list(args: argparse.Namespace, _config: ProjectConfig, source: TaskSource) -> int:
    loaded = source.load()
    tasks = in_order(task for task in loaded.tasks if args.all or task.status is not TaskStatus.CLOSED)
    if args.json:
        print_json({"tasks": [record(task, whole=False) for task in tasks], "problems": loaded.problems})
    else:
        show(list_screen(tasks, loaded, at_most=_SCREENFULS if sys.stdout.isatty() else None))
    return 0


def _ready(args: argparse.Namespace, config: ProjectConfig, source: TaskSource) -> int:
    loaded = source.load()
    width = config.run.width if args.width is None else args.width
    choice = choose(loaded.tasks, room=width, areas=config.areas)
    if args.json:
        ready = [record(item.task, whole=False) for item in choice.items]
        waiting = [waiting_record(deferral) for deferral in choice.deferrals]
        print_json({"ready": ready, "waiting": waiting, "problems": loaded.problems})
    else:
        show(ready_screen(choice, loaded, width=width))
    return 0


def _show(args: argparse.Namespace, _config: ProjectConfig, source: TaskSource) -> int:
    loaded = source.load()
    task = source.read(args.id)
    if task is None:
        return _show_problem(args, loaded)
    if args.json:
        print_json(record(task))
    else:
        show(show_screen(task, loaded.tasks))
    return 0


def _show_problem(args: argparse.Namespace, loaded: Loaded) -> int:
    found = [problem for problem in loaded.problems if problem.task == args.id]
    if not found:
        known = [task.id for task in loaded.tasks]
        raise UsageError(
            f"there is no task {args.id!r}; {did_you_mean(args.id, known) or 'flyball task list shows them'}"
        )
    if args.json:
        print_json({"id": args.id, "problems": found})
    else:
        for problem in found:
            say(f"{args.id} cannot be used as it is written in {problem.where}: {problem.words}")
    return 1
