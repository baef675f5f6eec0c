"""What ``flyball run`` prints into a pipe: a line per change, and none for what is over in a moment."""

from __future__ import annotations

import re
import time

import pytest

from flyball.cli.ui.board import wait_words
from flyball.cli.ui.run_progress import ProgressLines
from flyball.factory.run.board import Board, BoardRow
from flyball.factory.run.waiting import WaitKind


def row(state: str, **fields: object) -> BoardRow:
    return BoardRow(task="t-1", title="a page", state=state, **fields)  # type: ignore[arg-type]


def printed(capsys: pytest.CaptureFixture[str], *rows: BoardRow) -> list[str]:
    lines = ProgressLines()
    for each in rows:
        lines.print_news(Board(project="blog", run="r-1", pid=7, width=1, at=0.0, rows=[each]))
    return [line.partition(" ")[2] for line in capsys.readouterr().out.splitlines()]


def test_a_stage_that_pauses_is_told_by_its_name_and_not_by_its_pause(
    capsys: pytest.CaptureFixture[str],
) -> None:
    paused = row(
        "checking", stage="review", waits_for=WaitKind.PAUSE.value, until=time.time() + 300, why="limited"
    )
    later = row(
        "checking", stage="review", waits_for=WaitKind.PAUSE.value, until=time.time() + 200, why="limited"
    )
    [line] = printed(capsys, paused, later)
    assert re.fullmatch(r"t-1 checking: review: again in .*: limited", line)


def test_a_pause_is_one_line_however_often_it_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    paused = row("ready", waits_for=WaitKind.PAUSE.value, until=time.time() + 300, why="the last try failed")
    assert len(printed(capsys, paused, paused)) == 1


@pytest.mark.parametrize("kind", [WaitKind.WORKTREE, WaitKind.SLOT, WaitKind.PLACE])
@pytest.mark.parametrize("state", ["ready", "checking"])
def test_what_is_over_in_a_moment_is_not_news(
    capsys: pytest.CaptureFixture[str], kind: WaitKind, state: str
) -> None:
    stage = "review" if state == "checking" else ""
    assert printed(capsys, row(state, stage=stage, waits_for=kind.value)) == []


def test_a_wait_with_a_reason_is_news_each_time_the_reason_changes(
    capsys: pytest.CaptureFixture[str],
) -> None:
    waits = [row("ready", waits_for=WaitKind.POOL.value, why=f"gpu {n}/4") for n in (4, 4, 3)]
    assert printed(capsys, *waits) == ["t-1 waits: gpu 4/4", "t-1 waits: gpu 3/4"]


def test_every_wait_has_words_of_its_own_or_those_of_what_it_waits_for() -> None:
    for kind in WaitKind:
        assert wait_words(row("ready", waits_for=kind.value, why="because"), now=0.0).endswith("because")
    assert wait_words(row("ready", waits_for=WaitKind.BASE_GATE.value), now=0.0)
    assert wait_words(row("running", stage=""), now=0.0) == ""
