"""``flyball why``: how a task stands and what happened to it, in words."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from contextlib import suppress

import pytest

from flyball.core.pool.model import Outcome
from flyball.core.signals import Signal, SignalKind
from flyball.governor.ask import asking_for
from flyball.governor.governor import Governor
from flyball.governor.internals import internals
from tests.cli.kit import Cli, People, edit


@pytest.fixture
def full(governor: Governor, people: People) -> int:
    """A pool of one slot that blog/t-14 holds; its pid."""
    governor.set_pool("anthropic", cap=1, adaptive=False)
    return people.holds("anthropic", "blog", "t-14", model="opus")


def test_a_running_task_says_where_since_when_and_as_which_process(cli: Cli, full: int) -> None:
    result = cli("why", "t-14")
    assert result.code == 0
    assert "blog/t-14 runs in anthropic for 1 s, granted without waiting" in result.out
    assert f"pid {full}; model opus" in result.out
    assert "recorded as already running" in result.out


def test_a_waiting_task_says_its_place_reason_and_blocker(cli: Cli, full: int, people: People) -> None:
    people.waits("anthropic", "shop", "t-2")
    people.waits("anthropic", "shop", "t-3")
    out = cli("why", "shop/t-3").out
    assert "shop/t-3 waits in anthropic for 1 s" in out
    assert "2 in line" in out
    assert "anthropic 1 of 1 in use; the longest is blog/t-14, " in out
    assert "not known yet" in out


def test_a_task_that_waited_says_how_long_after_all(
    cli: Cli, full: int, governor: Governor, people: People
) -> None:
    people.waits("anthropic", "shop", "t-3")
    edit(cli, "UPDATE claim SET asked_at = asked_at - 600")
    people.dies(full)
    governor.reap()
    out = cli("why", "t-3").out
    assert "shop/t-3 runs in anthropic for 1 s, granted after waiting 10 min" in out
    assert out.count("granted after waiting") == 2  # how it stands, and what happened


def test_a_refused_task_says_so(cli: Cli, full: int, people: People) -> None:
    people.is_refused("anthropic", "shop", "t-9")
    out = cli("why", "t-9").out
    assert "shop/t-9 neither runs nor waits now; last refused 1 s ago: anthropic 1 of 1 in use" in out


def test_a_process_is_found_by_its_pid_and_by_who_launched_it(
    cli: Cli, governor: Governor, people: People
) -> None:
    lease = governor.acquire_nowait("anthropic", project="blog", name="t-1")
    pid = people.start()
    internals(governor).rebind(lease, pid)
    for query in (str(pid), str(lease.pid)):
        out = cli("why", query).out
        assert "blog/t-1 runs" in out
        assert f"pid {pid}, launched by pid {lease.pid}" in out
    governor.release(lease, Outcome.FINISHED)


def test_a_name_in_two_projects_gives_both(cli: Cli, people: People) -> None:
    people.holds("anthropic", "blog", "t-1")
    people.holds("openai", "shop", "t-1")
    assert [(m["project"], m["name"]) for m in cli("why", "t-1", "--json").json["matches"]] == [
        ("blog", "t-1"),
        ("shop", "t-1"),
    ]
    out = cli("why", "shop/t-1").out
    assert "shop/t-1 runs in openai" in out
    assert "blog" not in out


def test_a_dead_holder_is_called_dead(cli: Cli, full: int, people: People) -> None:
    people.dies(full)
    out = cli("why", "t-14").out
    assert "blog/t-14 is dead and still counted in anthropic" in out
    assert "flyball doctor --fix" in out


def test_what_happened_to_its_pool_is_told_too(cli: Cli, governor: Governor, people: People) -> None:
    people.holds("anthropic", "blog", "t-1")
    governor.report("anthropic", Signal(SignalKind.THROTTLED), project="shop", name="t-9")
    governor.report("openai", Signal(SignalKind.THROTTLED), project="shop", name="t-9")
    out = cli("why", "t-1").out
    assert "AND TO ITS POOL" in out
    assert out.count("cap 8 -> 4: throttled (shop/t-9)") == 1


def test_facts_come_newest_last_and_no_more_than_asked_for(cli: Cli, full: int, people: People) -> None:
    for _ in range(4):
        people.is_refused("anthropic", "shop", "t-9")
    (match,) = cli("why", "t-9", "--json", "--limit", "3").json["matches"]
    ages = [fact["s_ago"] for fact in match["facts"]]
    assert len(ages) == 3
    assert ages == sorted(ages, reverse=True)


def test_nothing_found_names_the_nearest_and_exits_1(cli: Cli, full: int) -> None:
    result = cli("why", "t-15")
    assert result.code == 1
    assert "'t-15' neither runs nor waits" in result.out
    assert "blog/t-14" in result.out
    assert cli("why", "t-15", "--json").json == {"query": "t-15", "matches": [], "nearest": ["blog/t-14"]}


def test_without_any_state_it_says_so_and_makes_none(cli: Cli) -> None:
    result = cli("why", "t-1")
    assert result.code == 1
    assert "no pool has been used yet" in result.out
    assert not cli.home.exists()


def test_any_letters_will_do(cli: Cli, people: People) -> None:
    people.holds("anthropic", "größe", "fix the 🚀 / now")
    assert "größe/fix the 🚀 / now runs" in cli("why", "größe/fix the 🚀 / now").out


def test_a_run_that_ended_says_how(cli: Cli, governor: Governor) -> None:
    lease = governor.acquire_nowait("anthropic", project="blog", name="t-1")
    lease.release(Outcome.ABANDONED, words="limited: the provider throttled it (429),\n retry after 45 s")
    out = cli("why", "t-1").out
    ended = "limited: the provider throttled it (429), retry after 45 s (after 1 s)"
    assert f"blog/t-1 neither runs nor waits now; last ended 1 s ago: {ended}" in out


def test_a_run_that_was_killed_while_it_rested_is_not_said_to_be_tried_again(
    cli: Cli, governor: Governor
) -> None:
    asking = asking_for("anthropic", project="blog", name="t-1")
    internals(governor).rest(asking, for_s=15, why="limited: throttled (429); trying again in 15 s")
    edit(cli, "UPDATE claim SET start = 1")
    out = cli("why", "t-1").out
    assert "dead, will not be tried again" in out
    assert "again  " not in out
    governor.reap()
    assert "trying again in 15 s; it was killed before that" in cli("why", "t-1").out


def test_a_run_that_was_told_to_stop_while_it_rested_gave_up(cli: Cli, governor: Governor) -> None:
    asking = asking_for("anthropic", project="blog", name="t-1")
    with (
        suppress(SystemExit),
        internals(governor).rest(asking, for_s=15, why="limited; trying again in 15 s"),
    ):
        raise SystemExit(143)
    assert "gave up after resting" in cli("why", "t-1").out


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_waiter_that_is_told_to_stop_is_remembered_like_one_whose_time_was_up(
    cli: Cli, governor: Governor, people: People, number: int
) -> None:
    governor.set_pool("anthropic", cap=1, adaptive=False)
    people.holds("anthropic", "blog", "t-1")
    command = ["exec", "--project", "blog", "--name", "t-2", "--", "true"]
    waiter = subprocess.Popen([sys.executable, "-m", "flyball", *command], stderr=subprocess.PIPE)
    assert waiter.stderr is not None
    waiter.stderr.readline()
    time.sleep(1.1)  # a shorter wait is not worth a line in the history
    waiter.send_signal(number)
    waiter.communicate(timeout=60)
    assert waiter.returncode == 128 + number
    assert "gave up after waiting" in cli("why", "t-2").out


def test_a_run_that_waits_out_a_limit_says_until_when(cli: Cli, governor: Governor) -> None:
    asking = asking_for("anthropic", project="blog", name="t-1")
    with internals(governor).rest(asking, for_s=2700, why="limited: throttled (429); trying again in 45 min"):
        out, asked = cli("why", "t-1").out, cli("why", str(os.getpid()), "--json").json
    assert "blog/t-1 rests for 1 s" in out
    assert "limited: throttled (429); trying again in 45 min" in out
    assert "in 45 min" in out
    assert "neither runs nor waits" not in out
    assert asked["matches"][0]["resting"][0]["pool"] == "anthropic"


def test_a_fact_that_an_earlier_version_stored_does_not_say_its_kind_twice(
    cli: Cli, full: int, people: People
) -> None:
    people.is_refused("anthropic", "shop", "t-9")
    now = cli("why", "t-9")
    edit(cli, "UPDATE fact SET words = 'refused: ' || words WHERE kind = 'refused'")
    earlier = cli("why", "t-9")
    assert "refused: " not in earlier.out.replace("last refused", "")
    [[told]] = [
        [fact["words"] for fact in match["facts"]] for match in cli("why", "t-9", "--json").json["matches"]
    ]
    assert told in now.out
    assert not told.startswith("refused")
