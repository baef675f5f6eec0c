"""What an agent was not permitted to do is told: what a real claude printed, played back."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.factory.kit import Project

RECORDING = Path(__file__).with_name("recordings") / "claude-2.1.325-denied.jsonl"
DENIED = "Bash: touch /srv/outside"


@pytest.fixture
def denied(project: Project) -> Project:
    project.configure(agent={"runtime": "claude"}, run={"attempts": 1, "gate_retries": 0})
    plays = f"os.write(1, Path({str(RECORDING)!r}).read_bytes())\n"
    project.task("t-1", act=f"{plays}write('pages/t-1.txt', 'x')")
    return project


def test_the_runs_lines_and_its_end_tell_what_was_denied(denied: Project) -> None:
    ran = denied.run()
    assert ran.code == 0, ran.said
    assert f"t-1 was denied: {DENIED}" in ran.out
    assert f"denied    t-1: its agent may not {DENIED}" in ran.out


def test_what_was_denied_is_in_json(denied: Project) -> None:
    assert denied.run("--json").json["denials"] == {"t-1": [DENIED]}


def test_the_board_and_why_tell_what_was_denied_to_a_blocked_task(denied: Project) -> None:
    script = denied.folder / "acts" / "t-1.py"
    script.write_text(script.read_text().replace("'x'", "'bad'"))
    assert denied.run().code == 1
    [row] = denied.flyball("board", "--json").json["rows"]
    assert row["denials"] == [DENIED]
    assert DENIED in denied.flyball("board").out
    assert denied.flyball("task", "why", "t-1", "--json").json["denials"] == [DENIED]
    assert DENIED in denied.flyball("task", "why", "t-1").out
