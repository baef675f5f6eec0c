"""What a person does with one task, beside what a run does by itself.

    land it        it waits for them, or its landing failed: in one of the ways of ``finish.py``
    close it       they do not want it any more: whatever is done for it is ended, its work is kept
    send it back   they looked at it and say what is wrong: an agent goes on with it, and is told

A run that is going on does so when it is asked; otherwise a run that does nothing else. What became of it is
in the ledger; the answer is for the person who asked.
"""

from __future__ import annotations

from dataclasses import dataclass

from flyball.core.tasks.next_step import Action, Decision, may_let_go, may_send_back
from flyball.core.tasks.task_run import Cause, State, Step, TaskRecord
from flyball.errors import UsageError
from flyball.factory.run.options import ManualMove
from flyball.factory.run.run import Run
from flyball.factory.state.ledger import RequestAnswer, answer_done, answer_refused, answer_unchanged


@dataclass(frozen=True, slots=True, kw_only=True)
class ManualAction:
    task: str
    move: ManualMove = ManualMove.MERGE
    words: str = ""
    """What the agent is told that it is sent back to."""

    def __call__(self, run: Run) -> RequestAnswer:
        """Do it, or begin to; what happens, or why not."""
        if self.move is ManualMove.CLOSE:
            return close(run, self.task)
        if self.move is ManualMove.REJECT:
            return send_back(run, self.task, self.words)
        return land(run, self.task, self.move)

    def do_alone(self, run: Run) -> RequestAnswer:
        """As what a run was begun for: what cannot be done is an error."""
        answer = self(run)
        if not answer.accepted:
            raise UsageError(answer.words)
        return answer


def land(run: Run, task_id: str, move: ManualMove) -> RequestAnswer:
    if task_id in run.task_runs:
        return answer_unchanged(f"{task_id} is under way already")
    record = run.project.ledger.load_task(task_id)
    if record is None or record.state not in (State.PARKED, State.BLOCKED, State.LANDING):
        return answer_refused(f"{task_id} cannot be landed: {_state_words(record)}")
    _forget(run, task_id)
    task_run = run.new_task_run(task_id)
    begun = record.state is State.LANDING
    task_run.finish.move, task_run.first = move, Decision(move=Action.LAND_ON if begun else Action.LAND)
    run.start(task_run)
    return answer_done(f"{task_id} is being landed")


def close(run: Run, task_id: str) -> RequestAnswer:
    """Let go of a task that a person has closed where it is kept."""
    run.view.stale = True
    task_run, record = run.task_runs.get(task_id), _record(run, task_id)
    if task_run is None and (record is None or record.final):
        _forget(run, task_id)
        return answer_unchanged(f"nothing is under way for {task_id}")
    if record is None or not may_let_go(record):
        return answer_refused(f"{task_id} cannot be let go: its landing has begun and goes on")
    if task_run is None:
        _forget(run, task_id)
        task_run = run.new_task_run(task_id)
        task_run.dropped = True
        run.start(task_run)
    else:
        task_run.drop()
    return answer_done(f"{task_id} is let go")


def send_back(run: Run, task_id: str, words: str) -> RequestAnswer:
    """Its work goes back to an agent, with a person's words. The run chooses when, as for all tasks."""
    record = _record(run, task_id)
    if record is None or task_id in run.task_runs or not may_send_back(record):
        return answer_refused(f"{task_id} cannot be sent back: {_state_words(record)}")
    _forget(run, task_id)
    before = f"Before that it was blocked: {record.reason}" if record.state is State.BLOCKED else ""
    cause = Cause.REJECTED.value
    run.project.ledger.note(task_id, Step.BACK, cause=cause, reason=words, detail=before, until=0.0)
    run.wake()
    return answer_done(f"{task_id} is sent back")


def _forget(run: Run, task_id: str) -> None:
    """It is not what it was: this run's report names it anew."""
    run.report.parked.pop(task_id, None)
    run.report.blocked.pop(task_id, None)
    run.report.left.pop(task_id, None)


def _record(run: Run, task_id: str) -> TaskRecord | None:
    task_run = run.task_runs.get(task_id)
    return task_run.record if task_run is not None else run.project.ledger.load_task(task_id)


def _state_words(record: TaskRecord | None) -> str:
    return f"it is {record.state.value}" if record is not None else "no work was done on it"
