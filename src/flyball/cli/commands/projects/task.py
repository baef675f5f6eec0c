"""``flyball task add|list|ready|show|why|close|reject``: what there is to do. Reads the tasks where they are
kept.

``flyball task close ID`` and ``flyball task reject ID``: a person decides what becomes of a task's work.

Closing is done where the task is kept, as the person would do it by hand; what is under way for it is ended
by the run that is going on, or here. Sending back is an entry in the ledger: the run that is going on starts
its agent again, or the next one does.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any

from flyball.cli.parser import add_action
from flyball.cli.shared.run_requests import NOT_YET, read_message
from flyball.cli.ui.render import print_json, say, show
from flyball.cli.ui.tasks import (
    list_screen,
    ready_screen,
    show_screen,
    task_fields,
    type_way_out,
    waiting_record,
)
from flyball.cli.ui.units import command, count
from flyball.core.suggestions import did_you_mean
from flyball.core.tasks.footprint import Footprint
from flyball.core.tasks.next_step import may_let_go, may_send_back
from flyball.core.tasks.readiness import NOT_DISPATCHED_TYPES, dispatch_order
from flyball.core.tasks.scheduler import choose
from flyball.core.tasks.task import DEFAULT_PRIORITY, DEFAULT_TYPE, Task, TaskStatus
from flyball.core.tasks.task_run import State, TaskRecord
from flyball.errors import UsageError
from flyball.factory.project.config import ProjectConfig
from flyball.factory.project.config_reader import load_config
from flyball.factory.project.paths import find_root
from flyball.factory.project_view import Project, TaskLookup, find_task, last_run, open_project_at
from flyball.factory.run.manual_actions import ManualAction
from flyball.factory.run.options import ManualMove, RunOptions, RunRequest, RunVerb
from flyball.factory.run.session import ask, run_project, running
from flyball.factory.state.ledger import RequestAnswer, answer_done
from flyball.factory.tasks.port import LoadedTasks, NewTask, TaskSource
from flyball.factory.tasks.registry import open_source

SUMMARY = """Add, list and show tasks, see which could start now, and why one does not run; close one, or send
its work back."""
EXAMPLE = """flyball task add "Add the hello page" --write "pages/hello*"
flyball task list
flyball task reject t-14 --reason "keep the old address working"
flyball task close t-14 --reason "not wanted any more\""""

_ADD_EXAMPLE = """flyball task add "Add the hello page" --write "pages/hello*" --read "lib/**"
flyball task add "Link to it" --need t-1 --priority 1 --body - < words.md"""

_SCREENFULS = 500
"""Tasks that a terminal shows; laying out more takes long, and they would only scroll away."""


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
        from flyball.cli.commands.projects.task_why import why

        return why(args)
    if args.action in ("close", "reject"):
        return close(args) if args.action == "close" else reject(args)
    act = {"add": _add, "list": _list, "ready": _ready, "show": _show}[args.action]
    return act(args, config, open_source(config, root))


def _add(args: argparse.Namespace, config: ProjectConfig, source: TaskSource) -> int:
    used: Collection[str] = ()
    if args.id is None and source.name == "files":
        # The engine is a lot to import, and the others do without.
        from flyball.factory.project_view import used_ids

        used = used_ids(find_root(Path.cwd()), config)
    task = source.add(_new(args, used))
    known = {other.id for other in source.load().tasks}
    missing = [name for name in dict.fromkeys((*task.needs, task.parent)) if name and name not in known]
    notes = list(_notes(task, config))
    if args.json:
        print_json({**task_fields(task), "missing": missing, "notes": notes})
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
    from flyball.factory.validation import check_labels

    if task.type in NOT_DISPATCHED_TYPES:
        yield f"is of type {task.type}, which is not dispatched; {type_way_out(task)}"
    for finding in check_labels(task, config):
        yield finding.words


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
    tasks = dispatch_order(task for task in loaded.tasks if args.all or task.status is not TaskStatus.CLOSED)
    if args.json:
        print_json({"tasks": [task_fields(task, whole=False) for task in tasks], "problems": loaded.problems})
    else:
        show(list_screen(tasks, loaded, at_most=_SCREENFULS if sys.stdout.isatty() else None))
    return 0


def _ready(args: argparse.Namespace, config: ProjectConfig, source: TaskSource) -> int:
    loaded = source.load()
    width = config.run.width if args.width is None else args.width
    choice = choose(loaded.tasks, room=width, areas=config.areas)
    if args.json:
        ready = [task_fields(item.task, whole=False) for item in choice.items]
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
        print_json(task_fields(task))
    else:
        show(show_screen(task, loaded.tasks))
    return 0


def _show_problem(args: argparse.Namespace, loaded: LoadedTasks) -> int:
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


# -- close ------------------------------------------------------------------------------------------------


def close(args: argparse.Namespace) -> int:
    project = open_project_at(Path.cwd())
    known = find_task(project, args.id)
    _check_closable(known)
    was_closed = known.task is not None and known.task.status is TaskStatus.CLOSED
    if not was_closed:
        project.source.drop(known.id, reason=args.reason)
    answer = _release_task(project, known)
    record = last_run(project.state, known.id)
    notes = [NOT_YET] if answer is None else [] if answer.accepted else [answer.words]
    notes += [] if was_closed else _consequences(project, known, record)
    code = 0 if answer is not None and answer.accepted else 1
    if args.json:
        outcome = answer.outcome.value if answer is not None else None
        told = {"task": known.id, "closed": True, "outcome": outcome, "branch": _branch_with_work(record)}
        print_json({**told, "notes": notes, "exit": code})
        return code
    where = f" in {known.task.where}" if known.task is not None and known.task.where else ""
    say(f"{known.id} was closed already" if was_closed else f"closed {known.id}{where}")
    for note in notes:
        say(note)
    return code


def _check_closable(known: TaskLookup) -> None:
    if known.task is None and known.problem is not None:
        where = known.problem.where
        raise UsageError(f"{known.id} cannot be read as it is written in {where}: {known.problem.words}")
    if known.task is None:
        raise UsageError(f"the task {known.id} is gone, so there is nothing to close")
    record = known.record
    if record is not None and not record.final and not may_let_go(record):
        reviewed = "its pull request is being reviewed" if record.state is State.CHECKING else "it is landing"
        raise UsageError(f"{known.id} cannot be closed now: {reviewed}; flyball board shows how that goes on")


def _release_task(project: Project, known: TaskLookup) -> RequestAnswer | None:
    """End what is under way for it; what came of that, None if the run has not answered yet."""
    if running(project.root) is not None:
        return ask(project.root, RunVerb.CLOSE, known.id)
    if known.record is not None and not known.record.final:
        by_hand = ManualAction(task=known.id, move=ManualMove.CLOSE)
        run_project(project.root, project.config, RunRequest(), RunOptions(), by_hand=by_hand)
    return answer_done(f"{known.id} is let go")


def _branch_with_work(record: TaskRecord | None) -> str:
    """The branch that its work is kept on."""
    return record.worktree.branch if record is not None and record.state is not State.MERGED else ""


def _consequences(project: Project, known: TaskLookup, record: TaskRecord | None) -> list[str]:
    notes = []
    if project.source.name == "files":
        notes.append("commit that file with your own work")
    if branch := _branch_with_work(record):
        notes.append(f"its work is kept on {branch}; {command('merge', known.id)} lands it all the same")
    if record is not None and record.pull.number and record.state is not State.MERGED:
        notes.append(f"pull request #{record.pull.number} stays open; close it there: {record.pull.url}")
    if known.record is None or known.record.state is not State.MERGED:
        # The tasks that needed it wait no longer, which may not be what was meant.
        tasks = project.source.load().tasks
        needing = [
            each.id for each in tasks if known.id in each.needs and each.status is not TaskStatus.CLOSED
        ]
        if needing:
            notes.append(f"{', '.join(needing)} needed it, and may start without it now")
    return notes


# -- reject -----------------------------------------------------------------------------------------------


def reject(args: argparse.Namespace) -> int:
    project = open_project_at(Path.cwd())
    known = find_task(project, args.id)
    record = _work_to_reject(known)
    words = read_message(args.reason)
    by_hand = ManualAction(task=known.id, move=ManualMove.REJECT, words=words)
    going_on = running(project.root) is not None
    if going_on:
        answer = ask(project.root, RunVerb.REJECT, known.id, words=words)
        if answer is not None and not answer.accepted:
            raise UsageError(answer.words)
    else:
        run_project(project.root, project.config, RunRequest(), RunOptions(), by_hand=by_hand)
        answer = answer_done(f"{known.id} is sent back")
    sent_back = answer is not None
    code = 0 if sent_back else 1
    notes = [NOT_YET]
    if sent_back:
        when = "the run that is going on" if going_on else "the next flyball run"
        notes = [f"{when} starts its agent again, with its branch, its session and your words"]
    if sent_back and record.pull.number:
        again = f"{command('pr', 'open', known.id)} brings it up to date, where a run does not"
        notes.append(f"pull request #{record.pull.number} stays open; {again}: {record.pull.url}")
    if args.json:
        print_json({"task": known.id, "sent_back": sent_back, "notes": notes, "exit": code})
        return code
    if sent_back:
        say(f"{known.id} is sent back")
    for note in notes:
        say(note)
    return code


def _work_to_reject(known: TaskLookup) -> TaskRecord:
    """How its work stands, if there is some to send back; UsageError says what to do instead."""
    name, record = known.id, known.record
    if known.task is not None and known.task.status is TaskStatus.CLOSED:
        raise UsageError(f"{name} is closed; open it again where it is kept, or write a new task")
    if known.task is None:
        raise UsageError(f"the task {name} is gone, so no agent can go on with it")
    if record is None:
        way_out = f"say it in the task, or {command('nudge', name, '...')}"
        raise UsageError(f"no work was done on {name} yet, so there is nothing to send back; {way_out}")
    if record.state is State.MERGED:
        raise UsageError(
            f"{name} has landed in {record.landing.new[:12]}; flyball task add writes a new task"
        )
    if not may_send_back(record):
        at_once = f"{command('nudge', name, '...', '--now')} gives its agent a message"
        raise UsageError(f"{name} is {record.state.value}, so it does not wait for you; {at_once}")
    return record
