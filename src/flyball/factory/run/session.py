"""Starting, holding and ending a run of a project: its lock, its name, its signals, its requests.

One run per project at a time. A run that was cut short is gone on with under its own name; otherwise a new
one begins. The first Ctrl-C or TERM drains, the second stops; either way everything is kept.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from flyball.core.budget.limits import BudgetAction, budget_action
from flyball.errors import UsageError
from flyball.factory.accounts.account import open_account
from flyball.factory.budget.unmeasurable import check_measurable, unmeasurable
from flyball.factory.git.git import GitLock
from flyball.factory.git.stale_locks import clear
from flyball.factory.guards.sandbox import check_sandbox
from flyball.factory.project.config import ProjectConfig
from flyball.factory.run.board import BoardFile, board_from_run
from flyball.factory.run.context import open_run
from flyball.factory.run.manual_actions import ManualAction
from flyball.factory.run.options import ManualMove, RunOptions, RunReport, RunRequest, RunVerb
from flyball.factory.run.run import Run
from flyball.factory.run.single_run import OnlyRun
from flyball.factory.state.blocking_calls import run_in_thread
from flyball.factory.state.ledger import (
    Ledger,
    RequestAnswer,
    RequestOutcome,
    answer_done,
    answer_refused,
    answer_unchanged,
)
from flyball.factory.state.locks import RunLock, read_holder
from flyball.factory.state.run_folders import state_folder
from flyball.governor import inherited_lease
from flyball.governor.state_url import home
from flyball.wake.mailbox import Mailbox, open_mailbox, send

LOCK = "run.lock"


class RunSession:
    """Between a run and the people around it."""

    def __init__(self, run: Run, state: Path, watcher: Callable[[Run], None]) -> None:
        self.run = run
        self._file, self._watcher = BoardFile(state), watcher
        self._signals: list[int] = []
        self._nudges: dict[str, list[tuple[int, str]]] = {}
        self._due: asyncio.TimerHandle | None = None
        self._write_due: asyncio.TimerHandle | None = None

    def changed(self) -> None:
        """Something moved: show it soon, once."""
        if self._due is None:
            self._due = asyncio.get_running_loop().call_later(0.1, self._show)

    def _show(self) -> None:
        self._due = None
        self._watcher(self.run)
        if self._write_due is None:
            self._write()

    def _write(self) -> None:
        """Now, or as soon as it may be: what changed last must not go unwritten."""
        self._write_due = None
        wait_s = self._file.write(lambda: board_from_run(self.run))
        if wait_s > 0:
            self._write_due = asyncio.get_running_loop().call_later(wait_s, self._write)

    def last_look(self) -> None:
        for due in (self._due, self._write_due):
            if due is not None:
                due.cancel()
        self._file.write(lambda: board_from_run(self.run), now=True)
        self._watcher(self.run)

    def take_signal(self, number: int) -> None:
        name = signal.Signals(number).name.removeprefix("SIG")
        self._signals.append(number)
        if len(self._signals) == 1:
            self.run.drain(f"{name}: finishes what runs; again to stop it")
        else:
            self.run.stop(f"{name} twice: stopped")
        self.changed()

    @property
    def signal(self) -> int | None:
        return self._signals[-1] if self._signals else None

    # -- requests ---------------------------------------------------------------------------------------

    def take_requests(self, run: Run) -> None:
        for number, verb, task, fields in run.project.ledger.requests():
            answer = self._answer(run, verb, task, fields, number)
            if answer is not None:
                run.project.ledger.answer(number, answer)

    def _answer(
        self, run: Run, verb: str, task: str, fields: dict[str, Any], number: int
    ) -> RequestAnswer | None:
        """Do what was asked. None: it is answered later."""
        try:
            asked = RunVerb(verb)
        except ValueError:
            return answer_refused(f"this run cannot {verb}: a newer flyball asked for it")
        if asked is RunVerb.DRAIN:
            run.drain("asked to drain")
            return answer_done(f"draining: {len(run.task_runs)} under way")
        if asked is RunVerb.RESIZE:
            run.resize(max(1, int(fields["width"])))
            return answer_done(f"width is now {run.places.width}")
        if asked is RunVerb.STOP:
            return self._stop(run, task)
        if asked is RunVerb.NUDGE:
            self._nudge(run, task, fields, number)
            return None
        move, words = ManualMove(fields.get("how", verb)), str(fields.get("words", ""))
        return ManualAction(task=task, move=move, words=words)(run)

    def _stop(self, run: Run, task: str) -> RequestAnswer:
        if not task:
            run.stop("asked to stop")
            return answer_done("stopping; everything is kept, flyball run goes on from here")
        task_run = run.task_runs.get(task)
        if task_run is None:
            return answer_unchanged(f"{task} is not under way")
        task_run.stop(f"stopped by a person (flyball stop {task})")
        return answer_done(f"{task} is being stopped; the next run goes on with it")

    def _nudge(self, run: Run, task: str, fields: dict[str, Any], number: int) -> None:
        known = self._nudges.setdefault(task, [])
        if number in (each for each, _ in known):
            return
        known.append((number, str(fields.get("message", ""))))
        task_run = run.task_runs.get(task)
        if fields.get("now") and task_run is not None and task_run.agent is not None:
            task_run.interrupt()

    def nudges_for(self, task: str) -> list[str]:
        """Messages that go out with the next prompt of a task, which answers them."""
        self.take_requests(self.run)
        found = self._nudges.pop(task, [])
        for number, _ in found:
            self.run.project.ledger.answer(number, answer_done("went out with the prompt"))
        return [message for _, message in found]


def check_start(config: ProjectConfig, options: RunOptions) -> None:
    """Is it the account that was named, can agents be kept where they belong, and can what bounds them be
    measured? Before anything is touched."""
    open_account(config, home()).verify()
    check_sandbox(config.guard.sandbox)
    check_measurable(config, home(), budget_action(options.guard, config.budget.guard))


def run_project(
    root: Path,
    config: ProjectConfig,
    request: RunRequest,
    options: RunOptions,
    *,
    watcher: Callable[[Run], None] = lambda _: None,
    by_hand: ManualAction | None = None,
) -> tuple[RunReport, int | None]:
    """Run the project until nothing is left to do; how it ended, and by which signal if by one.

    ``by_hand``: do this with one task, and nothing else.
    """
    if by_hand is None:
        check_start(config, options)
    # Agents get slots of their own, even if this process was started under a lease.
    os.environ.pop(inherited_lease.VARIABLE, None)
    state = state_folder(root)
    lock, box = RunLock(state / LOCK), open_mailbox(home())
    if not lock.take(mailbox=box.address if box else "", project=config.project.id):
        raise UsageError(_refusal_words(state))
    orphans, only = GitLock(state), OnlyRun(root, config.project.id)
    try:
        if by_hand is None:
            only.take()
        orphans.take()
        run_id = _run_name(state)
        return asyncio.run(_run_in_loop(root, config, request, options, run_id, box, watcher, by_hand))
    finally:
        orphans.release()
        only.release()
        lock.release()
        if box is not None:
            box.close()


async def _run_in_loop(
    root: Path,
    config: ProjectConfig,
    request: RunRequest,
    options: RunOptions,
    run_id: str,
    box: Mailbox | None,
    watcher: Callable[[Run], None],
    by_hand: ManualAction | None,
) -> tuple[RunReport, int | None]:
    context = open_run(root, config, options, run=run_id)
    project = context.project
    loop = asyncio.get_running_loop()
    run = Run(context, request)
    session = RunSession(run, project.state, watcher)
    run.connect(changed=session.changed, requests=session.take_requests, nudges=session.nudges_for)
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, session.take_signal, number)
    if box is not None:
        loop.add_reader(box.fileno(), _mail_came, box, run)
    try:
        if by_hand is None and context.budget.guard is not BudgetAction.OFF:
            for each in unmeasurable(config, home()):
                run.report.note(str(each))
        for path in await run_in_thread(clear, project.repository.common):
            run.report.note(f"removed {path}, which a git that was killed had left")
        _drop_old_requests(project.ledger)
        project.ledger.load()
        await context.landings.base_gate.end_leftover()
        report = await (run.go() if by_hand is None else run.go_alone(by_hand.do_alone))
        return report, session.signal
    finally:
        session.last_look()
        if box is not None:
            loop.remove_reader(box.fileno())
        context.close()


def _mail_came(box: Mailbox, run: Run) -> None:
    box.drain()
    run.wake()


def _drop_old_requests(ledger: Ledger) -> None:
    for number, verb, _, _ in ledger.requests():
        if verb not in {each.value for each in RunVerb if each.waits_for_next_run}:
            ledger.answer(number, RequestAnswer(RequestOutcome.LATE, "came too late: that run was over"))


def _run_name(state: Path) -> str:
    """The name of the run that was cut short, or a new one."""
    name = time.strftime("r-%Y%m%d-%H%M%S", time.gmtime())
    with contextlib.suppress(FileNotFoundError):
        ledger = Ledger(state, read_only=True)
        try:
            ledger.load()
            if ledger.records:
                return next(reversed(ledger.records.values())).run
            # Two within one second are two.
            return f"{name}-{os.getpid()}" if ledger.last_run().startswith(name) else name
        finally:
            ledger.close()
    return name


def _refusal_words(state: Path) -> str:
    found = read_holder(state / LOCK)
    who = f" (pid {found[0].pid})" if found else ""
    return f"a run of this project is going on{who}; flyball board shows it, flyball drain or stop ends it"


# -- from another process ---------------------------------------------------------------------------------


def running(root: Path) -> tuple[int, str] | None:
    """The pid and mailbox of the project's run, if one is going on."""
    found = read_holder(root / ".flyball" / LOCK)
    return (found[0].pid, str(found[1].get("mailbox", ""))) if found else None


def ask(
    root: Path, verb: RunVerb, task: str = "", *, wait_s: float = 10.0, **fields: Any
) -> RequestAnswer | None:
    """Ask something of the project's run, and wait for its answer; None if there is none yet."""
    going_on = running(root)
    if going_on is None and not verb.waits_for_next_run:
        raise UsageError("no run of this project is going on; flyball run starts one")
    ledger = Ledger(state_folder(root))
    try:
        number = ledger.ask(verb.value, task, **fields)
        if going_on is None:
            return None
        if going_on[1]:
            send(going_on[1], number)
        end = time.monotonic() + wait_s
        while time.monotonic() < end:
            answer = ledger.answer_to(number)
            if answer is not None:
                return answer
            time.sleep(0.05)
    finally:
        ledger.close()
    return None
