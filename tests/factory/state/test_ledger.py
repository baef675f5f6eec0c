"""The factory's memory: only ever added to, readable while it is written, refused when it makes no sense."""

from __future__ import annotations

import signal
import sqlite3
import subprocess
import sys
import threading
from contextlib import closing
from pathlib import Path

import pytest

import flyball
from flyball.core.tasks.task_run import RunPhase, State, Step
from flyball.errors import InvariantError, StoreFullError, StoreUnreadableError
from flyball.factory.state.ledger import (
    FILE_NAME,
    Ledger,
    RequestAnswer,
    RequestOutcome,
    answer_done,
    answer_refused,
)
from flyball.host.process import me


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    return Ledger(tmp_path, run="r-1")


def rows(folder: Path) -> list[tuple[object, ...]]:
    with sqlite3.connect(folder / FILE_NAME) as db:
        return db.execute("SELECT * FROM entry ORDER BY id").fetchall()


def read_again(ledger: Ledger) -> Ledger:
    again = Ledger(ledger.path.parent, run="r-2")
    again.load()
    return again


def to_running(ledger: Ledger, task: str = "t-1") -> None:
    ledger.note(task, Step.CLAIM)
    ledger.note(task, Step.WORKTREE, RunPhase.BEGUN)
    ledger.note(task, Step.WORKTREE, worktree="w", branch=f"agent/{task}", base="b")
    ledger.note(task, Step.LAUNCH, RunPhase.BEGUN, folder="f")
    ledger.note(task, Step.LAUNCH, holder=me(), keeper=me(), claim_id=7)


# -- what cannot be ---------------------------------------------------------------------------------------


def test_an_entry_that_cannot_be_is_not_written(ledger: Ledger, tmp_path: Path) -> None:
    with pytest.raises(InvariantError):
        ledger.note("t-1", Step.MERGED)
    ledger.note("t-1", Step.CLAIM)
    with pytest.raises(InvariantError):
        ledger.note("t-1", Step.MERGED)
    assert len(rows(tmp_path)) == 1
    assert ledger.records["t-1"].state is State.CLAIMED


def test_a_full_disk_is_said_with_the_way_out_and_the_trip_stays_where_it_was(ledger: Ledger) -> None:
    ledger.note("t-1", Step.CLAIM)
    ledger._db.execute("PRAGMA max_page_count = 1")
    with pytest.raises(StoreFullError, match="no room on the disk"):
        ledger.note("t-1", Step.WORKTREE, RunPhase.BEGUN, reason="x" * 100_000)
    ledger._db.execute("PRAGMA max_page_count = 100000")
    ledger.note("t-1", Step.WORKTREE)
    assert read_again(ledger).records["t-1"].state is State.READY


def test_a_file_that_is_not_a_database_is_refused_and_kept(tmp_path: Path) -> None:
    (tmp_path / FILE_NAME).write_bytes(b"not a database at all, but valuable" * 100)
    with pytest.raises(StoreUnreadableError, match="move it away"):
        Ledger(tmp_path)
    assert (tmp_path / FILE_NAME).read_bytes().startswith(b"not a database")


def test_a_ledger_of_a_newer_flyball_is_refused(ledger: Ledger, tmp_path: Path) -> None:
    ledger.close()
    with sqlite3.connect(tmp_path / FILE_NAME) as db:
        db.execute("PRAGMA user_version = 99")
    with pytest.raises(StoreUnreadableError, match="upgrade flyball"):
        Ledger(tmp_path)


@pytest.mark.parametrize(
    "values",
    [
        ("t-1", "dance", "done", "{}"),
        ("t-1", "merged", "done", "{}"),
        ("t-1", "back", "done", "{}"),
        ("t-1", "launch", "begun", "not json"),
        ("t-1", "launch", "done", '{"holder": {"pid": 1}}'),
    ],
)
def test_entries_that_make_no_sense_are_refused_with_the_way_out(
    ledger: Ledger, tmp_path: Path, values: tuple[str, ...]
) -> None:
    ledger.note("t-1", Step.CLAIM)
    with sqlite3.connect(tmp_path / FILE_NAME) as db:
        db.execute(
            "INSERT INTO entry (at, run, task, step, mark, fields) VALUES (1.0, 'r', ?, ?, ?, ?)", values
        )
    again = Ledger(tmp_path)
    with pytest.raises(StoreUnreadableError, match="commits are not touched"):
        again.load_task("t-1")


def test_reading_where_there_is_no_ledger_makes_none(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        Ledger(tmp_path, read_only=True)
    assert not (tmp_path / FILE_NAME).exists()


def test_a_ledger_whose_making_was_cut_short_is_made(tmp_path: Path) -> None:
    (tmp_path / FILE_NAME).touch()
    Ledger(tmp_path).note("t-1", Step.CLAIM)
    assert len(rows(tmp_path)) == 1


def test_one_that_is_only_half_made_is_not_there_for_a_reader(tmp_path: Path) -> None:
    (tmp_path / FILE_NAME).touch()
    with pytest.raises(FileNotFoundError):
        Ledger(tmp_path, read_only=True)


def test_the_ledger_is_for_its_owner_alone(ledger: Ledger) -> None:
    assert ledger.path.stat().st_mode & 0o777 == 0o600


# -- what it remembers ------------------------------------------------------------------------------------


def test_what_was_noted_is_read_again_as_it_was(ledger: Ledger) -> None:
    to_running(ledger)
    assert read_again(ledger).records["t-1"] == ledger.records["t-1"]
    assert ledger.records["t-1"].agent.process.holder == me()


def test_entries_are_only_ever_added(ledger: Ledger, tmp_path: Path) -> None:
    to_running(ledger)
    before = rows(tmp_path)
    ledger.note("t-1", Step.END, end="finished")
    ledger.note("t-1", Step.BLOCK, reason="no")
    ledger.note("t-1", Step.CLAIM)
    assert rows(tmp_path)[: len(before)] == before


def test_what_is_over_is_not_loaded_but_can_be_asked_for(ledger: Ledger) -> None:
    to_running(ledger, "t-1")
    to_running(ledger, "t-2")
    ledger.note("t-1", Step.END)
    ledger.note("t-1", Step.BLOCK, reason="no")
    again = read_again(ledger)
    assert list(again.records) == ["t-2"]
    assert list(again.runs_in(State.BLOCKED)) == ["t-1"]
    found = again.load_task("t-1")
    assert found is not None
    assert found.reason == "no"
    assert again.load_task("t-9") is None


def test_merged_are_those_whose_last_trip_landed(ledger: Ledger) -> None:
    for name in ("t-1", "t-2"):
        to_running(ledger, name)
        ledger.note(name, Step.END)
        ledger.note(name, Step.LAND, RunPhase.BEGUN)
        ledger.note(name, Step.MERGED)
    ledger.note("t-2", Step.CLAIM)
    assert ledger.merged_tasks() == {"t-1"}


def land(ledger: Ledger, task: str, *, told: bool) -> None:
    to_running(ledger, task)
    ledger.note(task, Step.END)
    ledger.note(task, Step.LAND, RunPhase.BEGUN)
    ledger.note(task, Step.TELL, RunPhase.BEGUN)
    if told:
        ledger.note(task, Step.TELL)
    ledger.note(task, Step.MERGED)


def test_untold_are_those_that_landed_and_whose_closing_was_not_confirmed(ledger: Ledger) -> None:
    for name, told in (("t-1", True), ("t-2", False), ("t-3", False), ("t-4", False)):
        land(ledger, name, told=told)
    ledger.note("t-3", Step.CLAIM)
    ledger.note("t-4", Step.TELL, RunPhase.BEGUN)
    ledger.note("t-4", Step.TELL)
    to_running(ledger, "t-5")
    ledger.note("t-5", Step.END)
    ledger.note("t-5", Step.LAND, RunPhase.BEGUN)
    ledger.note("t-5", Step.TELL, RunPhase.BEGUN)
    assert ledger.unreported_tasks() == {"t-2"}


def test_telling_a_source_again_leaves_a_trip_over(ledger: Ledger) -> None:
    """It is the last entry of the trip, and says nothing about where that stands."""
    land(ledger, "t-1", told=False)
    ledger.note("t-1", Step.TELL, RunPhase.BEGUN)
    again = read_again(ledger)
    assert again.records == {}
    assert again.merged_tasks() == {"t-1"}
    assert list(again.runs_in(State.MERGED)) == ["t-1"]


def test_names_and_words_of_any_kind_are_kept(ledger: Ledger) -> None:
    words = "\u4efb\u52a1 \U0001f600 ' \" \\ \n \x00"
    to_running(ledger, "aufgabe-\u00e4")
    ledger.note("aufgabe-\u00e4", Step.END, reason=words)
    assert read_again(ledger).records["aufgabe-\u00e4"].reason == words


def test_many_threads_write_without_losing_an_entry(ledger: Ledger, tmp_path: Path) -> None:
    threads = [threading.Thread(target=to_running, args=(ledger, f"t-{n}")) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(rows(tmp_path)) == 40
    assert len(read_again(ledger).records) == 8


def test_requests_are_answered_once_and_then_gone(ledger: Ledger) -> None:
    number = ledger.ask("nudge", "t-1", message="look")
    assert ledger.requests() == [(number, "nudge", "t-1", {"message": "look"})]
    assert ledger.answer_to(number) is None
    ledger.answer(number, answer_done("went out"))
    ledger.answer(number, answer_refused("again"))
    assert ledger.requests() == []
    assert ledger.answer_to(number) == answer_done("went out")


@pytest.mark.parametrize("outcome", RequestOutcome)
def test_what_became_of_a_request_is_read_as_it_was_written(ledger: Ledger, outcome: RequestOutcome) -> None:
    number = ledger.ask("merge", "t-1")
    answer = RequestAnswer(outcome, "words that cannot be mistaken for an outcome")
    ledger.answer(number, answer)
    assert ledger.answer_to(number) == answer


def test_a_ledger_from_before_outcomes_is_upgraded_with_its_answers(tmp_path: Path) -> None:
    """Layout 3: an answer was its words alone."""
    Ledger(tmp_path).close()
    with closing(sqlite3.connect(tmp_path / FILE_NAME)) as db, db:
        db.execute("ALTER TABLE answer DROP COLUMN outcome")
        db.execute("INSERT INTO request VALUES (1, 0.0, 'drain', '', '{}')")
        db.execute("INSERT INTO answer VALUES (1, 0.0, 'r', 'draining')")
        db.execute("PRAGMA user_version = 3")
    for _ in range(2):
        upgraded = Ledger(tmp_path)
        assert upgraded.answer_to(1) == answer_done("draining")
        upgraded.close()


def test_no_environment_variable_of_tests_is_read_by_the_product() -> None:
    read = [
        path.name
        for path in Path(flyball.__file__).parent.rglob("*.py")
        if "FLYBALL_TEST" in path.read_text("utf-8")
    ]
    assert read == []


@pytest.mark.faults
@pytest.mark.parametrize(("when", "written"), [("before", 1), ("after", 2)])
def test_a_test_can_have_it_killed_before_or_after_an_entry(tmp_path: Path, when: str, written: int) -> None:
    code = (
        "from pathlib import Path; from flyball.core.tasks.task_run import Step\n"
        "from flyball.factory.state.ledger import Ledger\n"
        "from tests.factory.killed_flyball import kill_at\n"
        f"kill_at('{when}:claim.done#2')\n"
        f"ledger = Ledger(Path({str(tmp_path)!r}))\n"
        "ledger.note('t-1', Step.CLAIM)\nledger.note('t-2', Step.CLAIM)\nledger.note('t-3', Step.CLAIM)"
    )
    answer_done = subprocess.run([sys.executable, "-c", code], cwd=Path(__file__).parents[3], timeout=30)
    assert answer_done.returncode == -signal.SIGKILL
    assert len(rows(tmp_path)) == written
