"""What the benches make of what they saw."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from bench.agents_log import CapCheck, SeatTime, ServedCall, check_cap, in_flight_s, seat_time
from bench.agents_log import Look as AgentsLook
from bench.handoff import Turn, inversions, latencies
from bench.peers.json_store import JsonStore
from bench.recording import Recording, Step, recorded
from bench.report import Figure, Target, beside, percentile, shown
from bench.steps import best_s
from bench.steps_run import Load, Look, Outcome
from flyball.sim.provider.capacity import Capacity


def test_a_percentile_is_a_value_that_was_seen() -> None:
    values = [float(n) for n in range(1, 101)]
    assert percentile(values, 50) == 50
    assert percentile(values, 99) == 99
    assert percentile([7.0], 99) == 7


@pytest.mark.parametrize(
    ("value", "text"), [(0.0421, "0.04 ms"), (12.34, "12.3 ms"), (1234.5, "1,234 ms"), (0.0, "0 ms")]
)
def test_three_digits_are_shown(value: float, text: str) -> None:
    assert shown(value, "ms") == text


def test_a_figure_is_the_ratio_of_medians_with_the_spread_of_the_rounds() -> None:
    figure = beside("x", [2.0, 3.0, 10.0], [1.0, 2.0, 2.0], unit="us", name="bare")
    assert figure.ratio == 1.5
    assert figure.spread == (1.5, 5.0)


def test_beside_nothing_there_is_no_ratio() -> None:
    figure = beside("x", [2.0, 3.0], [0.0, 1.0], unit="", name="bare")
    assert figure.spread is None


@pytest.mark.parametrize(
    ("target", "met"),
    [
        (Target("ratio", 2.0), True),
        (Target("ratio", 3.0, at_least=True), False),
        (Target("beyond", 9.0), False),
        (Target("value", 20.0), True),
    ],
)
def test_a_target_judges_the_number_it_names(target: Target, met: bool) -> None:
    assert Figure(what="x", ours=20.0, unit="ms", theirs=10.0, target=target).met is met


def test_releases_and_grants_are_matched_in_order_of_time() -> None:
    first = Turn(0, "p", granted=1.0, releasing=2.0, released=2.1)
    second = Turn(1, "p", granted=1.1, releasing=2.1, released=2.2)
    third = Turn(2, "p", granted=2.2, releasing=3.0, released=3.1)
    fourth = Turn(3, "p", granted=2.5, releasing=3.1, released=3.1)
    found = latencies([first, second, third, fourth], opened=[0.9, 0.9])
    assert found == pytest.approx([0.1, 0.2, 0.2, 0.4])


def test_only_askers_of_the_same_project_can_be_out_of_order() -> None:
    assert inversions([1, 0, 3, 2], projects=2) == 0
    assert inversions([2, 0, 1, 3], projects=2) == 1


def test_a_recording_that_missed_a_statement_is_refused() -> None:
    recording = Recording(steps=[Step("BEGIN", ())], traced=["BEGIN", "SELECT 1"])
    with pytest.raises(AssertionError, match="SQLite ran"):
        recording.take()


def test_a_recording_knows_statements_parameters_and_how_rows_were_read(tmp_path: Path) -> None:
    import sqlite3

    with recorded() as recording:
        connection = sqlite3.connect(str(tmp_path / "x.db"), isolation_level=None)
        connection.execute("CREATE TABLE t (x)")
        recording.take()
        connection.execute("INSERT INTO t VALUES (?)", (5,))
        connection.execute("SELECT x FROM t").fetchone()
        steps = recording.take()
        connection.close()
    assert [(step.sql, step.parameters, step.fetch) for step in steps] == [
        ("INSERT INTO t VALUES (?)", (5,), ""),
        ("SELECT x FROM t", (), "one"),
    ]


def test_the_json_store_keeps_to_its_cap_and_takes_back_the_slots_of_the_dead(tmp_path: Path) -> None:
    store = JsonStore(tmp_path, cap=1)
    gone = subprocess.Popen([sys.executable, "-c", "pass"])
    gone.wait()
    assert store.acquire("blog", "t-1", gone.pid) is not None
    held = store.acquire("blog", "t-2", _alive())
    assert held is not None
    assert store.acquire("blog", "t-3", _alive()) is None
    store.release(held)
    assert store.acquire("blog", "t-3", _alive()) is not None
    store.close()


def test_the_json_store_shares_its_cap_between_projects_with_work(tmp_path: Path) -> None:
    store = JsonStore(tmp_path, cap=2)
    store.announce("blog", _alive())
    store.announce("shop", _alive())
    assert store.acquire("blog", "t-1", _alive()) is not None
    assert store.acquire("blog", "t-2", _alive()) is None
    assert store.acquire("shop", "t-1", _alive()) is not None
    store.close()


def _alive() -> int:
    import os

    return os.getpid()


def test_the_best_time_follows_the_seats() -> None:
    load = Load(capacity="2,3:1,6:2", tokens=[20] * 6, clients=4, tokens_per_s=10.0, retry_after_s=1.0)
    # Two until 2 s, two until 4 s, one of them on the only seat from 4 to 6 s, one more from 6 s on.
    assert best_s(load) == 8.0


def test_the_cap_over_time_names_each_change_once() -> None:
    looks = (Look(0.2, 8, 3), Look(0.5, 8, 8), Look(0.7, 4, 8))
    assert Outcome(1.0, 0, (), looks).caps() == "0.2 s: 8, 0.7 s: 4"


def served(began_s: float, ended_s: float, *, open: int = 1, owner: str = "T-01") -> ServedCall:
    return ServedCall(owner, began_s, ended_s, accepted=True, open=open)


def test_a_seat_that_is_empty_while_a_call_is_in_hand_is_lost() -> None:
    calls = [served(0, 4), served(1, 3)]
    looks = [AgentsLook(float(second), 2, 2, 3 if second < 4 else 0) for second in range(6)]
    assert seat_time(calls, looks, Capacity.parse("2"), from_s=0, to_s=5) == SeatTime(6.0, 8.0)
    assert seat_time(calls, looks, Capacity.parse("2"), from_s=1, to_s=3).share == 1.0


def test_calls_that_go_on_after_the_seats_fell_below_them_earn_nothing() -> None:
    looks = [AgentsLook(float(second), 2, 2, 2) for second in range(5)]
    found = seat_time([served(0, 4), served(0, 4)], looks, Capacity.parse("2,2:1"), from_s=0, to_s=4)
    assert found == SeatTime(6.0, 6.0)


def test_a_call_is_above_the_cap_where_no_cap_of_the_moment_allows_it() -> None:
    looks = [AgentsLook(tenth / 10, 3 if tenth < 50 else 2, 2, 3) for tenth in range(100)]
    assert check_cap([served(0.5, 1, open=3), served(7, 8, open=2)], looks) == CapCheck()
    assert check_cap([served(0.5, 1, open=4), served(7, 8, open=3)], looks) == CapCheck(above=2)


def test_a_cap_that_may_have_come_and_gone_between_two_looks_judges_no_call() -> None:
    looks = [AgentsLook(at_s, 3, 3, 3) for at_s in (0.0, 0.1, 0.9, 1.0)]
    assert check_cap([served(0.5, 1, open=4)], looks) == CapCheck(unjudged=1)


def test_a_life_with_two_calls_at_once_is_in_flight_once() -> None:
    refused = ServedCall("T-01", 5, 9, accepted=False, open=1)
    calls = [served(0, 2), served(1, 3), served(4, 5), served(0, 9, owner="T-02"), refused]
    assert in_flight_s(calls, "T-01") == 4.0
