"""``flyball board``: what a run is doing, or how the last one left things."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path

import pytest

from flyball.cli.ui.board import EVERYTHING, board_screen, room_for
from flyball.cli.ui.render import plain
from flyball.core.tasks.task_run import RunPhase, Step
from flyball.factory.run.board import Board, BoardRow, WaitingTask
from flyball.factory.state.ledger import Ledger
from flyball.factory.state.locks import RunLock
from tests.cli.kit import Cli
from tests.factory.kit import Project
from tests.waiting import until

WAITS = "wait_for(folder / 'go')\nwrite(f'pages/{task}.txt', 'page')"


def stale_board(site: Project, **fields: object) -> None:
    """What a run that is long gone has left."""
    state = site.root / ".flyball"
    state.mkdir(exist_ok=True)
    row = {"task": "t-9", "title": "Old news", "state": "running"}
    record = {"project": "blog", "run": "r-1", "pid": 4_000_000, "width": 3, "at": 0.0, "rows": [row]}
    (state / "board.json").write_text(json.dumps({**record, "waiting": [], **fields}))


def blocked(site: Project, task: str, why: str) -> None:
    ledger = Ledger(site.root / ".flyball", run="r-1")
    ledger.note(task, Step.CLAIM)
    ledger.note(task, Step.BLOCK, reason=why)
    ledger.close()


def seen(here: Cli) -> tuple[list[str], list[str]]:
    """The states of what is under way, and who waits."""
    board = here("board", "--json").json
    return [row["state"] for row in board["rows"]], [each["task"] for each in board["waiting"]]


# -- no run is going on -------------------------------------------------------------------------------


def test_outside_a_project_the_way_out_is_named(
    here: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    result = here("board")
    assert result.code == 2
    assert "flyball init" in result.err


def test_a_project_that_never_ran_says_so_and_is_not_touched(here: Cli, site: Project) -> None:
    result = here("board")
    assert (result.code, result.err) == (0, "")
    assert "nothing has been run here yet" in result.out
    assert "flyball run --dry-run" in result.out
    assert not (site.root / ".flyball").exists()


def test_the_board_of_a_run_that_is_gone_is_not_shown_as_live(here: Cli, site: Project) -> None:
    stale_board(site)
    assert "t-9" not in here("board").out
    assert here("board", "--json").json["pid"] == 0


def test_a_run_that_has_not_written_its_board_yet_is_not_mistaken_for_the_last_one(
    here: Cli, site: Project
) -> None:
    stale_board(site)
    lock = RunLock(site.root / ".flyball" / "run.lock")
    assert lock.take()
    try:
        found = here("board", "--json").json
    finally:
        lock.release()
    assert found["pid"] == os.getpid()
    assert found["rows"] == []


@pytest.mark.parametrize("text", ["", "{", '{"rows": 3}', "[]", '{"pid": "x"}'])
def test_a_damaged_board_does_not_hide_what_the_ledger_knows(here: Cli, site: Project, text: str) -> None:
    site.task("t-1")
    blocked(site, "t-1", "the key is wrong")
    (site.root / ".flyball" / "board.json").write_text(text)
    lock = RunLock(site.root / ".flyball" / "run.lock")
    assert lock.take()
    try:
        assert "the key is wrong" in here("board").out
    finally:
        lock.release()


def test_what_is_blocked_is_shown_with_its_reason_and_what_to_do(here: Cli, site: Project) -> None:
    site.task("t-1")
    blocked(site, "t-1", "the key is wrong")
    out = here("board").out
    assert "no run is going on" in out
    assert "the key is wrong" in out
    assert "flyball tail t-1" in out


def test_a_blocked_task_that_a_person_closed_waits_for_no_person_any_more(here: Cli, site: Project) -> None:
    path = site.task("t-1")
    blocked(site, "t-1", "the key is wrong")
    path.write_text(path.read_text().replace("status: open", "status: closed"))
    assert "t-1" not in here("board").out


def test_work_that_waits_for_a_person_names_the_verb(here: Cli, site: Project) -> None:
    site.configure(merge={"policy": "manual"})
    site.task("t-1")
    assert site.run().code == 0
    assert "flyball merge t-1 lands it" in here("board").out


# -- a run is going on --------------------------------------------------------------------------------


def test_a_live_run_shows_what_runs_and_why_the_rest_waits(here: Cli, site: Project) -> None:
    site.task("t-1", act="(folder / 'up').touch()\n" + WAITS)
    site.task("t-2", write="pages/t-1*")
    run = site.start("run")
    site.wait("up")
    until(lambda: seen(here) == (["running"], ["t-2"]), "the board to tell of both")
    found = here("board", "--json").json
    assert found["pid"] == run.pid
    assert [(row["task"], row["state"]) for row in found["rows"]] == [("t-1", "running")]
    assert [(each["task"], each["blocker"]) for each in found["waiting"]] == [("t-2", "t-1")]
    out = here("board").out
    assert "1 of 3 running" in out
    assert "writes pages/t-1*, which t-1" in out
    site.say("go")
    run.communicate(timeout=60)
    assert here("board", "--json").json["pid"] == 0


def test_after_a_kill_the_agent_that_lives_on_is_told_apart_from_a_dead_one(here: Cli, site: Project) -> None:
    site.configure(run={"width": 2})
    for name in ("t-1", "t-2"):
        site.task(name, act=f"(folder / 'up-{name}').touch()\n" + WAITS)
    run = site.start("run")
    for name in ("t-1", "t-2"):
        site.wait(f"up-{name}")
    run.kill()
    run.communicate()
    [dead] = site.began("t-2")
    os.killpg(os.getpgid(dead.pid), signal.SIGKILL)
    until(lambda: (site.folders("t-2")[0] / "status").exists(), "the keeper to write down its end")
    rows = {row["task"]: row for row in here("board", "--json").json["rows"]}
    assert rows["t-1"]["state"] == "running"
    assert "runs on by itself" in rows["t-1"]["why"]
    assert rows["t-2"]["state"] == "left"
    assert "flyball run goes on" in rows["t-2"]["why"]


def test_watching_through_a_pipe_gives_a_line_of_json_each_time_until_it_is_interrupted(
    site: Project,
) -> None:
    watching = site.start("board", "--watch", "0.1", "--json")
    assert watching.stdout is not None
    assert [json.loads(watching.stdout.readline())["project"] for _ in range(2)] == ["blog", "blog"]
    watching.send_signal(signal.SIGINT)
    watching.communicate(timeout=20)
    assert watching.returncode == 0


def test_watching_without_a_pause_is_refused(here: Cli, site: Project) -> None:
    result = here("board", "--watch", "0")
    assert result.code == 2
    assert "0.1 s" in result.err


# -- every project ------------------------------------------------------------------------------------


def test_all_shows_every_project_and_what_is_wrong_with_the_others(
    here: Cli, site: Project, tmp_path: Path
) -> None:
    assert "no project is registered" in here("board", "--all").out
    site.task("t-1")
    site.run()
    other = tmp_path / "other"
    other.mkdir()
    (other / "flyball.toml").write_text('[project]\nid = "other"\n')
    assert here("project", "add", str(other)).code == 0
    (other / "flyball.toml").unlink()
    result = here("board", "--all", "--json")
    assert result.code == 1
    assert [board["project"] for board in result.json["projects"]] == ["blog"]
    [unseen] = result.json["unseen"]
    assert unseen["project"] == "other"
    other.rmdir()
    assert "its folder is gone; flyball project remove other" in here("board", "--all").out


# -- how it looks -------------------------------------------------------------------------------------


def crowd(count: int) -> Board:
    rows = [
        BoardRow(task=f"t-{n}", title=f"Page {n}", state="blocked", why=f"reason {n}") for n in range(count)
    ]
    waiting = [WaitingTask(task=f"w-{n}", reason="room", words="no room") for n in range(count)]
    return Board(
        project="blog", run="r-1", pid=7, width=3, at=0.0, rows=rows, waiting=waiting, more_waiting=9
    )


def test_text_shows_all_of_500_tasks_and_a_terminal_as_many_as_fit() -> None:
    everything = plain(board_screen(crowd(500), room=EVERYTHING)).splitlines()
    assert sum(line.startswith("  t-") for line in everything) == 500
    fitting = plain(board_screen(crowd(500), room=room_for(24))).splitlines()
    assert len(fitting) <= 24
    assert any("and 490 more" in line for line in fitting)


def test_nothing_in_a_name_or_a_reason_steers_the_terminal() -> None:
    row = BoardRow(task="t-1", title="日本語 🚀", state="running", activity="\x1b[2Jgone\r\n\u202eevil")
    text = plain(board_screen(Board(project="blog", run="r", pid=7, width=3, at=0.0, rows=[row])))
    assert "\x1b" not in text
    assert "\u202e" not in text
    assert "\\x1b[2Jgone" in text


def test_merged_tasks_are_a_line_with_the_latest_first() -> None:
    rows = [BoardRow(task=f"t-{n}", title="", state="merged", since=float(n)) for n in range(1, 12)]
    text = plain(board_screen(Board(project="b", run="r", pid=7, width=3, at=0.0, rows=rows, merged=11)))
    assert "t-11, t-10, t-9" in text
    assert "and 3 more" in text


def test_columns_without_a_value_are_not_there() -> None:
    bare = BoardRow(task="t-1", title="", state="running")
    paid = BoardRow(task="t-2", title="", state="running", tokens=81_250, cost_usd=0.5)
    board = Board(project="b", run="r", pid=7, width=3, at=0.0, rows=[bare])
    assert "TOKENS" not in plain(board_screen(board))
    told = plain(board_screen(Board(project="b", run="r", pid=7, width=3, at=0.0, rows=[bare, paid])))
    assert "81.2k" in told
    assert "$0.50" in told


def test_a_landing_of_an_earlier_run_counts_as_left(here: Cli, site: Project) -> None:
    site.task("t-1")
    ledger = Ledger(site.root / ".flyball", run="r-1")
    for step, mark in (
        (Step.CLAIM, RunPhase.DONE),
        (Step.WORKTREE, RunPhase.DONE),
        (Step.LAUNCH, RunPhase.DONE),
        (Step.END, RunPhase.DONE),
        (Step.LAND, RunPhase.BEGUN),
    ):
        ledger.note("t-1", step, mark)
    ledger.close()
    [row] = here("board", "--json").json["rows"]
    assert (row["state"], "was landing" in row["why"]) == ("left", True)
