"""A ledger that an earlier flyball wrote still says the same: what is stored outlives the names in the code.

``ledger_of_layout_4.json`` has the entries of real runs (stages, reviews, limits, red gates, pull requests,
ends of every kind) and what the flyball that wrote them read out of them, under the names it had then.
"""

from __future__ import annotations

import json
import sqlite3
from enum import Enum
from importlib.resources import files
from operator import attrgetter
from pathlib import Path

from flyball.factory.state.ledger import FILE_NAME, Ledger

STORED = json.loads((Path(__file__).parent / "ledger_of_layout_4.json").read_text(encoding="utf-8"))
NOW = {
    "failures": "backs.failed",
    "limited": "backs.limited",
    "gate_backs": "backs.gate",
    "conflict_backs": "backs.conflict",
    "review_backs": "backs.review",
    "lesson_cause": "lesson.cause",
    "lesson": "lesson.words",
    "worktree": "worktree.path",
    "branch": "worktree.branch",
    "base": "worktree.base",
    "holder": "agent.process.holder",
    "keeper": "agent.process.keeper",
    "folder": "agent.process.folder",
    "session": "agent.session",
    "claim_id": "agent.claim_id",
    "pool": "agent.pool",
    "model": "agent.model",
    "rationale": "agent.rationale",
    "identity": "agent.identity",
    "end": "agent.end",
    "tokens": "spent.tokens",
    "cost_usd": "spent.cost_usd",
    "stages": "checks.stages",
    "checked": "checks.tip",
    "reviewed": "checks.reviewed",
    "passed": "checks.passed",
    "errand_keeper": "checks.agent.keeper",
    "errand_folder": "checks.agent.folder",
    "errand": "checks.agent.holder",
    "way": "landing.way",
    "landing": "landing.step",
    "landing_done": "landing.step_done",
    "gate_folder": "landing.gate.folder",
    "gate": "landing.gate.holder",
    "old": "landing.old",
    "new": "landing.new",
    "result": "landing.result",
    "said": "landing.said",
    "untold": "landing.untold",
    "pr_url": "pull.url",
    "pr_number": "pull.number",
}
"""Where a field of then is now, if it is elsewhere."""


def written(folder: Path) -> None:
    """The file as that flyball made it."""
    db = sqlite3.connect(folder / FILE_NAME)
    db.executescript((files("flyball.factory.state") / "ledger.sql").read_text(encoding="utf-8"))
    db.execute("PRAGMA user_version = 4")
    db.executemany(
        "INSERT INTO entry (at, run, task, step, mark, fields) VALUES (?, ?, ?, ?, ?, ?)",
        [(*entry, json.dumps(fields)) for *entry, fields in STORED["entries"]],
    )
    db.commit()
    db.close()


def plain(value: object) -> object:
    if isinstance(value, Enum):
        return value.value
    return list(value) if isinstance(value, tuple) else value


def test_every_task_of_an_old_ledger_stands_where_it_stood(tmp_path: Path) -> None:
    written(tmp_path)
    ledger = Ledger(tmp_path)
    found = {task: ledger.load_task(task) for task in ledger.tasks()}
    ledger.close()
    assert found.keys() == STORED["runs"].keys()
    for task, then in STORED["runs"].items():
        now = {name: plain(attrgetter(NOW.get(name, name))(found[task])) for name in then}
        assert now == then, task


def test_a_run_goes_on_with_what_an_old_ledger_left_open(tmp_path: Path) -> None:
    written(tmp_path)
    ledger = Ledger(tmp_path)
    ledger.load()
    unfinished = {task: record.state.value for task, record in ledger.records.items()}
    ledger.close()
    over = ("merged", "parked", "blocked")
    assert unfinished == {
        task: then["state"] for task, then in STORED["runs"].items() if then["state"] not in over
    }
    assert unfinished == {"f": "ready"}
