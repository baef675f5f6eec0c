"""``flyball`` that is killed as it writes a given entry of its ledger.

Every entry is written by ``Ledger.note``, so the places where a run can be killed are, by construction, all
the places where the ledger changes. The product knows nothing of it: ``note`` is wrapped before ``main`` is
called.
"""

from __future__ import annotations

import os
import signal
from typing import Any

from flyball.core.tasks.task_run import RunPhase, Step, TaskRecord
from flyball.factory.state.ledger import Ledger


def kill_at(point: str) -> None:
    """``before:advance.begun`` or ``after:gate.done#2``: kill this process before that entry is written, or
    after it was written for the second time."""
    when, _, place = point.partition(":")
    name, _, turn = place.partition("#")
    left = int(turn or 1)
    note = Ledger.note

    def reached(now: str, entry: str) -> None:
        nonlocal left
        if (now, entry) == (when, name):
            left -= 1
            if left == 0:
                os.kill(os.getpid(), signal.SIGKILL)

    def killed_note(
        ledger: Ledger, task: str, step: Step, mark: RunPhase = RunPhase.DONE, /, **fields: Any
    ) -> TaskRecord:
        entry = f"{step.value}.{mark.value}"
        reached("before", entry)
        record = note(ledger, task, step, mark, **fields)
        reached("after", entry)
        return record

    Ledger.note = killed_note  # type: ignore[method-assign]
