"""``flyball task why ID``: why a task is not running now, in words. Looks, never touches.

The best source is asked first: the run that is going on; else the ledger, which knows how the last one left
it; else the scheduler itself, which says what would keep a new run from starting it. A task that waits
for nothing but a slot waits for its pool, so what that pool lets through belongs to the answer.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from flyball.cli.ui.board import denied_words, wait_words
from flyball.cli.ui.pool_status import breaker_words
from flyball.cli.ui.render import Block, Line, Piece, Style, plain_words, print_json, show
from flyball.cli.ui.tasks import type_way_out
from flyball.cli.ui.units import command, counted
from flyball.core.budget.limits import BudgetAction, Level, budget_action, worst
from flyball.core.pool.verdict import span_words
from flyball.core.tasks.labels import landing_policy
from flyball.core.tasks.next_step import lands_again
from flyball.core.tasks.readiness import DeferReason
from flyball.core.tasks.task import TaskStatus, ancestors
from flyball.core.tasks.task_run import State, Step
from flyball.errors import StoreError
from flyball.factory.accounts.account import open_account
from flyball.factory.budget.guard import budget_thresholds
from flyball.factory.budget.monitor import UsageMonitor
from flyball.factory.budget.port import billing_account
from flyball.factory.budget.shared_windows import windows_to_read
from flyball.factory.git.repository import BRANCHES
from flyball.factory.project_view import Project, TaskLookup, current_board, find_task, open_project_at
from flyball.factory.run.board import LEFT, Board, BoardRow, WaitingTask
from flyball.factory.run.dry_run import Wait, plan_run
from flyball.factory.run.options import RunRequest
from flyball.factory.run.policy import pool_for
from flyball.governor.state_url import home, open_reader, resolve
from flyball.governor.status import PoolStatus, status_from

READY, WAITING, CLOSED, UNREADABLE = "ready", "waiting", "closed", "unreadable"
_OF_ITS_FIELDS = (DeferReason.TYPE, DeferReason.LABEL, DeferReason.STATUS)
_STYLES = {
    "running": Style.GOOD,
    "checking": Style.GOOD,
    "landing": Style.GOOD,
    "ended": Style.GOOD,
    "merged": Style.GOOD,
    CLOSED: Style.GOOD,
    READY: Style.GOOD,
    "blocked": Style.BAD,
    UNREADABLE: Style.BAD,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskReason:
    id: str
    title: str
    state: str
    """For scripts: the state of its run, or ready, waiting, closed, unreadable."""
    words: str
    """How it stands, without its name."""
    reason: str = ""
    """For scripts, where it waits: needs, footprint, room, ..."""
    blocker: str | None = None
    since_s: float | None = None
    pool: str = ""
    """Why its pool lets nothing more through now; empty while it does."""
    budget: str = ""
    """How the account's fullest window stands, where that keeps work back."""
    denials: tuple[str, ...] = ()
    """What its agents wanted to do and were not permitted to."""
    next: tuple[str, ...] = ()


def why(args: argparse.Namespace) -> int:
    project = open_project_at(Path.cwd())
    answer = find_reason(project, find_task(project, args.id))
    if args.json:
        print_json(answer)
    else:
        show(screen(answer))
    return 0


def screen(answer: TaskReason) -> Iterator[Block]:
    style = _STYLES.get(answer.state, Style.WARN)
    yield Line([Piece(answer.id, Style.STRONG), " ", Piece(answer.words, style)])
    if answer.title:
        yield Line(answer.title, label="task", indent=2)
    if answer.since_s is not None:
        yield Line(span_words(answer.since_s), label="for", indent=2)
    if answer.pool:
        yield Line(Piece(answer.pool, Style.WARN), label="pool", indent=2)
    if answer.budget:
        yield Line(Piece(answer.budget, Style.WARN), label="budget", indent=2)
    if answer.denials:
        words = denied_words(answer.id, answer.denials)
        yield Line(Piece(words, Style.WARN), label="denied", indent=2)
    for number, words in enumerate(answer.next):
        yield Line(words, label=" " if number else "next", indent=2)


# -- finding out ----------------------------------------------------------------------------------------


def find_reason(project: Project, known: TaskLookup) -> TaskReason:
    board = current_board(project)
    row = next((each for each in board.rows if each.task == known.id), None)
    if known.task is not None and known.task.status is TaskStatus.CLOSED:
        return _closed_reason(known)
    if row is not None and row.state != State.MERGED:
        return replace(_from_row(project, known, row, board), denials=tuple(row.denials))
    if known.task is None and known.problem is not None:
        words = f"cannot be used as it is written in {known.problem.where}: {known.problem.words}"
        return _reason(known, UNREADABLE, words, next=("flyball validate checks all of them",))
    if known.task is None:
        gone = "is gone from where tasks are kept"
        return replace(_closed_reason(known), words=f"{gone}; {_closed_reason(known).words}")
    return _not_begun_reason(project, known, board)


def _reason(known: TaskLookup, state: str, words: str, *, next: tuple[str, ...] = ()) -> TaskReason:
    return TaskReason(id=known.id, title=known.title, state=state, words=words, next=next)


def _closed_reason(known: TaskLookup) -> TaskReason:
    record = known.record
    if record is None or record.state is not State.MERGED:
        return _reason(known, CLOSED, "is closed: there is nothing left to do")
    where = f" in {record.landing.new[:12]}" if record.landing.new else ""
    answer = _reason(known, State.MERGED, f"is merged{where}")
    return replace(answer, since_s=_ago(record.since))


def _ago(wall: float) -> float | None:
    return max(0.0, time.time() - wall) if wall else None


# -- it was begun ----------------------------------------------------------------------------------------


def _from_row(project: Project, known: TaskLookup, row: BoardRow, board: Board) -> TaskReason:
    if row.state == State.PARKED:
        answer = _parked_reason(project, known, row)
    elif row.state == State.BLOCKED:
        answer = _blocked_reason(known, row)
    elif row.state == LEFT and board.pid:
        then = f"the next flyball run goes on with it, or {_closes(known)}"
        answer = _reason(known, LEFT, f"is left as it stands: {row.why}", next=(then,))
    elif not board.pid:
        again = () if row.state == LEFT else (command("tail", known.id, "-f"),)
        answer = _reason(known, row.state, row.why, next=("flyball run", *again))
    else:
        answer = _under_way_reason(project, known, row)
    return replace(answer, since_s=_ago(row.since))


def _parked_reason(project: Project, known: TaskLookup, row: BoardRow) -> TaskReason:
    branch, default = f"{BRANCHES}{known.id}", project.config.project.default_branch or "HEAD"
    steps = (
        f"{command('merge', known.id)} lands it",
        f"git diff {default}...{branch} shows it",
        f"{command('task', 'reject', known.id, '--reason', '...')} sends it back to an agent",
        _closes(known),
    )
    if row.wants_pull:
        words = f"is finished and waits for its pull request: {row.why}"
        opens = f"{command('pr', 'open', known.id)} opens its pull request"
        return _reason(known, State.PARKED, words, next=(opens, *steps))
    if known.record is not None and lands_again(known.record):
        words = f"is finished and could not be landed: {row.why}"
        return _reason(known, State.PARKED, words, next=("flyball run lands it again", *steps))
    # Most wait because the policy says so; what a review said is worth telling.
    review = known.record is not None and known.record.checks.reviewed and not known.record.checks.passed
    tasks = {task.id: task for task in project.source.load().tasks}
    lineage = (known.task, *ancestors(known.task, tasks)) if known.task is not None else ()
    unknown = landing_policy(lineage, otherwise=project.config.merge.policy).unknown
    why = f": {row.why}" if review else f": its label {unknown} names no policy" if unknown else ""
    return _reason(known, State.PARKED, f"is finished and waits for you to land it{why}", next=steps)


def _blocked_reason(known: TaskLookup, row: BoardRow) -> TaskReason:
    record = known.record
    red = record is not None and record.landing.step is Step.GATE and not record.landing.step_done
    seen = [command("tail", known.id, "--gate")] if red else [command("tail", known.id)] if row.folder else []
    steps = [f"{each} shows what it printed" for each in seen]
    if known.record is not None and known.record.worktree.branch:
        steps.append(f"{command('merge', known.id)} tries to land what is there")
    steps.append("a new flyball run tries it again, and hands over what flyball nudge says")
    steps.append(_closes(known))
    return _reason(known, State.BLOCKED, f"is blocked: {row.why}", next=tuple(steps))


def _closes(known: TaskLookup) -> str:
    return f"{command('task', 'close', known.id)} gives it up; its work is kept"


def _under_way_reason(project: Project, known: TaskLookup, row: BoardRow) -> TaskReason:
    """In the run that is going on."""
    again = f" (attempt {row.attempt})" if row.attempt > 1 else ""
    words = wait_words(row, now=time.time()) or row.activity
    doing = f": {words}" if words else ""
    if row.state == State.RUNNING:
        steps = (f"{command('tail', known.id, '-f')} shows what it does",)
        return _reason(known, row.state, f"runs{again}{doing}", next=steps)
    if row.state == State.CHECKING:
        steps = (f"{command('tail', known.id, '-f')} shows what it does",)
        answer = _reason(known, row.state, f"has finished and is being checked{again}{doing}", next=steps)
        return replace(answer, pool=pool_words(project))
    if row.state in (State.ENDED, State.LANDING):
        steps = (f"{command('tail', known.id, '--gate', '-f')} shows the gate",)
        return _reason(known, row.state, f"has finished and is being landed{doing}", next=steps)
    answer = _reason(known, row.state, f"is under way and waits{again}{doing}", next=("flyball board",))
    return replace(answer, pool=pool_words(project))


# -- it was not ------------------------------------------------------------------------------------------


def _not_begun_reason(project: Project, known: TaskLookup, board: Board) -> TaskReason:
    waits: WaitingTask | Wait | None = next((each for each in board.waiting if each.task == known.id), None)
    plan = None if waits is not None else plan_run(project.root, project.config, RunRequest())
    if plan is not None:
        waits = next((each for each in plan.waits if each.task == known.id), None)
    if waits is not None:
        tasks = {task.id for task in project.source.load().tasks}
        steps = _steps(known, waits.reason, waits.blocker, tasks)
        answer = _reason(known, WAITING, f"waits: {waits.words}", next=steps)
        answer = replace(answer, reason=waits.reason, blocker=waits.blocker, pool=pool_words(project))
        return answer if waits.reason == DeferReason.BUDGET else replace(answer, budget=budget_words(project))
    if plan is not None and not any(start.task == known.id for start in plan.starts):
        # The file says open because this checkout has not followed the default branch yet.
        return _closed_reason(known)
    then = "the run that is going on takes it up" if board.pid else "flyball run starts it"
    answer = _reason(known, READY, "is ready: nothing is in its way", next=(then,))
    return replace(answer, pool=pool_words(project), budget=budget_words(project))


def _steps(known: TaskLookup, reason: str, blocker: str | None, tasks: set[str]) -> tuple[str, ...]:
    if reason == DeferReason.BUDGET:
        return ("flyball quota show says how the account's windows stand",)
    if blocker is not None and blocker in tasks:
        return (f"{command('task', 'why', blocker)} says how that one stands",)
    if reason == DeferReason.TYPE and known.task is not None:
        return (type_way_out(known.task),)
    if blocker is not None or reason in _OF_ITS_FIELDS:
        where = f" ({known.task.where})" if known.task is not None and known.task.where else ""
        return (f"{command('task', 'show', known.id)}{where}",)
    return ("flyball board shows what is under way",)


# -- the money --------------------------------------------------------------------------------------------


def budget_words(project: Project) -> str:
    """How the account's fullest window stands, from where fewer agents run on; empty below."""
    budget = project.config.budget
    if budget_action(None, budget.guard) is BudgetAction.OFF:
        return ""
    with suppress(StoreError):
        payer = billing_account(open_account(project.config, home()))
        shared = windows_to_read(pool_for(project.config), payer.name)
        monitor = UsageMonitor(payer, home(), own=project.state, shared=shared)
        if monitor.has_limits:
            monitor.refresh_now()
        fullest = worst(monitor.standings)
        if fullest is not None and budget_thresholds(budget).level(fullest.full) >= Level.WARN:
            return f"{fullest.words()}, {fullest.end_words(time.time())}"
    return ""


# -- the pool ---------------------------------------------------------------------------------------------


def pool_words(project: Project) -> str:
    """Why the project's pool lets nothing more through now; empty while it does or cannot be read."""
    name = pool_for(project.config)
    with suppress(StoreError):
        reader = open_reader(resolve())
        try:
            pools = status_from(reader.snapshot(), resolve()).pools
        finally:
            reader.close()
        return next((_pool_state_words(pool) for pool in pools if pool.name == name), "")
    return ""


def _pool_state_words(pool: PoolStatus) -> str:
    if pool.breaker != "closed":
        return f"{pool.name}: its breaker is {plain_words(breaker_words(pool))}"
    if pool.closed_for_s is not None:
        return f"{pool.name} is closed for {span_words(pool.closed_for_s)}: {pool.closed_why}"
    if pool.free == 0:
        waiting = f", {pool.waiting} waiting" if pool.waiting else ""
        return f"{pool.name} is full: {pool.in_use} of {counted(pool.cap, 'slot')} in use{waiting}"
    return ""
