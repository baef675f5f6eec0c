"""``flyball status`` says what happens, why, and what next; and touches nothing."""

from __future__ import annotations

import os
import sqlite3
import time

import msgspec
import pytest

from flyball.core.pool.breaker import BreakerState
from flyball.core.pool.learned import CapState
from flyball.core.pool.model import Ask, Phase
from flyball.core.pool.plan import LearnedState
from flyball.core.pool.settings import MachineSettings
from flyball.core.signals import Signal, SignalKind
from flyball.governor.ask import asking_for
from flyball.governor.governor import Governor
from flyball.governor.internals import internals
from flyball.governor.status import Status
from flyball.host.process import identify
from tests.cli.kit import Cli, People

THROTTLED = Signal(SignalKind.THROTTLED)


def test_an_empty_home_says_what_to_do_next_and_stays_empty(cli: Cli) -> None:
    result = cli("status")
    assert result.code == 0
    assert "no pool is in use yet" in result.out
    assert "flyball exec --" in result.out
    assert not cli.home.exists()


def test_shows_who_runs_who_waits_and_why(cli: Cli, governor: Governor, people: People) -> None:
    governor.set_pool("anthropic", cap=1, adaptive=False)
    holder = people.holds("anthropic", "blog", "t-14", model="opus")
    waiter = people.waits("anthropic", "shop", "t-3")
    out = cli("status").out
    assert "1 of 1 slot in use, 0 free, 1 waiting" in out
    running, waiting = (next(line for line in out.splitlines() if name in line) for name in ("t-14 ", "t-3 "))
    assert running.split() == ["blog/t-14", str(holder), "1", "s", "opus"]
    assert waiting.split()[:5] == ["1", "shop/t-3", str(waiter), "1", "s"]
    assert waiting.endswith("1 of 1 in use; the longest is blog/t-14, 1 s")
    assert "flyball why shop/t-3" in out


def test_an_adaptive_pool_shows_operator_cap_dynamic_cap_bounds_and_settle(
    cli: Cli, governor: Governor
) -> None:
    governor.set_pool("anthropic", cap=8, profile="agents", controller="koryph")
    governor.report("anthropic", THROTTLED, project="blog", name="t-14")
    out = cli("status").out
    assert "4 now, koryph between 1 and 16; starts at 8; breaker closed" in out
    assert "1 so far, the last 1 s ago; cap last cut 1 s ago" in out
    assert "after a cut: no change for 2 min" in out
    assert "3 s between starts" in out


def test_a_static_pool_is_called_fixed(cli: Cli, governor: Governor) -> None:
    governor.set_pool("openai", cap=4, adaptive=False)
    assert "4, fixed" in cli("status").out


def test_an_open_breaker_says_until_when_and_why(cli: Cli, governor: Governor) -> None:
    governor.set_pool("anthropic", cap=1)
    governor.report("anthropic", THROTTLED, project="blog", name="t-14")
    out = cli("status").out
    assert "open for 5 min: a throttle at the floor" in out
    assert "flyball pool reset anthropic" in out


def test_a_half_open_breaker_names_its_trial(cli: Cli, governor: Governor, people: People) -> None:
    now = internals(governor).store.now()
    breaker = BreakerState(Phase.OPEN, open_until=now - 1, reopens=1, since=now - 300, why="cuts")
    internals(governor).import_pool("anthropic", {"cap": 4}, LearnedState(CapState(1.0), breaker))
    assert "half open: the next ask becomes the trial, re-opened 1 time" in cli("status").out
    lease = governor.acquire_nowait("anthropic", project="blog", name="t-1")
    assert "half open: blog/t-1 is the trial for 1 s; others wait for it" in cli("status").out
    lease.release()


def test_a_retry_after_closes_the_pool_for_all_to_see(cli: Cli, governor: Governor) -> None:
    governor.set_pool("openai", cap=4, adaptive=False)
    governor.report("openai", Signal(SignalKind.THROTTLED, retry_after_s=60))
    assert "nothing starts for 60 s: the provider said to retry later" in cli("status").out


def test_dead_leases_are_shown_as_dead_and_still_counted(
    cli: Cli, governor: Governor, people: People
) -> None:
    pid = people.holds("anthropic", "blog", "t-14", slots=2)
    people.dies(pid)
    for _ in range(2):  # looking removes nothing
        out = cli("status").out
        assert "2 of 8 slots in use, 6 free" in out
        assert "dead, still counted" in out
    assert "1 dead lease" in out
    assert "doctor --fix" in out


def test_projects_show_share_weight_maximum_and_demand(cli: Cli, governor: Governor, people: People) -> None:
    governor.set_pool("anthropic", cap=4, weights={"blog": 3.0}, maxima={"shop": 2})
    people.holds("anthropic", "blog", "t-1")
    people.holds("anthropic", "shop", "t-2")
    governor.demand("anthropic", "infra")
    rows = {line.split()[0]: line.split() for line in cli("status").out.splitlines() if line.strip()}
    assert rows["PROJECT"] == ["PROJECT", "(lend)", "USES", "WAITS", "SHARE", "WEIGHT", "MAX"]
    assert rows["blog"][:2] == ["blog", "1"]
    assert rows["blog"][4:] == ["3", "-"]
    assert rows["shop"][4:] == ["1", "2"]
    assert "announced" in rows["infra"]


def test_the_machines_limits_are_shown_where_there_are_any(
    cli: Cli, governor: Governor, people: People
) -> None:
    people.holds("anthropic", "blog", "t-1")
    assert "over all pools" not in cli("status").out
    governor.set_machine(MachineSettings(ceiling=20, memory_floor_bytes=2 << 30, resources={"docker": 2}))
    out = cli("status").out
    assert "1 of at most 20 slots over all pools; starts need 2 GiB of free memory; docker 0 of 2" in out


def test_looking_writes_nothing(cli: Cli, governor: Governor, people: People) -> None:
    governor.set_pool("anthropic", cap=2, profile="calls")
    people.dies(people.holds("anthropic", "blog", "t-1"))
    governor.close()
    watcher = sqlite3.connect(cli.database)
    before = _fingerprint(cli, watcher)
    for words in (["status"], ["status", "--json"], ["why", "t-1"], ["doctor"], ["pool", "show"]):
        cli(*words)
    assert _fingerprint(cli, watcher) == before
    watcher.close()


def _fingerprint(cli: Cli, watcher: sqlite3.Connection) -> tuple[object, ...]:
    """``data_version`` moves with any process's commit; the journal is made by reading, and stays empty."""
    journal = cli.home / "governor.db-wal"
    written = journal.read_bytes() if journal.exists() else b""
    names = {path.name for path in cli.home.iterdir()} - {"governor.db-wal", "governor.db-shm"}
    version = watcher.execute("PRAGMA data_version").fetchone()
    return cli.database.read_bytes(), cli.database.stat().st_mtime_ns, version, written, names


def test_json_is_the_whole_record(cli: Cli, governor: Governor, people: People) -> None:
    governor.set_pool("anthropic", cap=1, adaptive=False)
    people.holds("anthropic", "blog", "größe 🚀")
    people.waits("anthropic", "blog", "t-2")
    result = cli("status", "--json")
    status = msgspec.json.decode(result.out, type=Status)
    assert [lease.name for lease in status.pools[0].leases] == ["größe 🚀"]
    assert [ask.position for ask in status.pools[0].asks] == [1]
    assert result.out.startswith("{\n")


def test_only_the_named_pools_are_shown(cli: Cli, governor: Governor) -> None:
    governor.set_pool("anthropic", cap=4)
    governor.set_pool("openai", cap=4)
    out = cli("status", "openai").out
    assert "openai" in out
    assert "anthropic" not in out


def test_an_unknown_pool_is_answered_with_the_nearest_name(cli: Cli, governor: Governor) -> None:
    governor.set_pool("anthropic", cap=4)
    result = cli("status", "antropic")
    assert result.code == 2
    assert "did you mean 'anthropic'?" in result.err


def test_a_long_line_is_cut_short_and_says_so(cli: Cli, governor: Governor, people: People) -> None:
    governor.set_pool("anthropic", cap=1, adaptive=False)
    pid = people.holds("anthropic", "blog", "t-0")
    for number in range(25):
        governor.hold(pid, "openai", project="blog", name=f"t-{number}")
    assert "and 5 more leases; --json lists what is known" in cli("status").out


def test_watching_shows_it_again_until_interrupted(
    cli: Cli, governor: Governor, monkeypatch: pytest.MonkeyPatch
) -> None:
    governor.set_pool("anthropic", cap=4)
    naps: list[float] = []

    def nap(seconds: float) -> None:
        naps.append(seconds)
        if len(naps) == 3:
            raise KeyboardInterrupt

    monkeypatch.setattr(time, "sleep", nap)
    result = cli("status", "--watch", "5s")
    assert result.code == 0
    assert naps == [5.0] * 3
    assert result.out.count("anthropic  0 of 4 slots") == 3
    naps.clear()
    lines = cli("status", "--watch", "--json").out.splitlines()
    assert len([msgspec.json.decode(line, type=Status) for line in lines]) == 3


def test_watching_a_pool_needs_no_interval(
    cli: Cli, governor: Governor, monkeypatch: pytest.MonkeyPatch
) -> None:
    governor.set_pool("anthropic", cap=4)
    governor.set_pool("openai", cap=4)

    def interrupt(_seconds: float) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(time, "sleep", interrupt)
    assert "openai" not in cli("status", "--watch", "anthropic").out


def test_a_watch_that_would_never_rest_is_refused(cli: Cli) -> None:
    refused = cli("status", "--watch", "0")
    assert (refused.code, "at most" in refused.err) == (2, True)


def test_a_closed_pool_says_what_closed_it(cli: Cli, governor: Governor) -> None:
    used_up = Signal(SignalKind.WINDOW_USED_UP, retry_after_s=1800, scope="5h")
    governor.report("anthropic", used_up)
    assert "nothing starts for 30 min: the 5h window is used up" in cli("status").out
    governor.set_pool("openai", cap=4)
    for name in ("a", "b"):
        governor.report("openai", THROTTLED, project="blog", name=name)
    (pool,) = (pool for pool in governor.status().pools if pool.name == "openai")
    assert pool.closed_why == "waiting out a refusal"


def test_starts_that_a_refusal_spaces_are_shown_as_spaced(cli: Cli, governor: Governor) -> None:
    """The operator who waits for it must find it: the setting says that spacing is off."""
    governor.set_pool("openai", cap=8)
    # How long a refusal takes is unknown until one was timed: the starts are spaced for minutes.
    governor.report("openai", Signal(SignalKind.THROTTLED))
    (pool,) = (pool for pool in governor.status().pools if pool.name == "openai")
    assert pool.spacing_s > 0
    assert "s between starts" in cli("status", "openai").out


def test_a_run_that_waits_out_a_limit_is_seen_and_holds_nothing(cli: Cli, governor: Governor) -> None:
    asking = asking_for("anthropic", project="blog", name="t-14")
    with internals(governor).rest(
        asking, for_s=2700, why="limited: throttled (429);\n trying again in 45 min"
    ):
        out = cli("status").out
        (pool,) = cli("status", "--json").json["pools"]
    assert "1 pool, 0 leases, 0 waiting, 1 resting" in out
    resting = next(line for line in out.splitlines() if "blog/t-14" in line)
    assert resting.split()[:6] == ["blog/t-14", str(os.getpid()), "1", "s", "45", "min"]
    assert resting.endswith("limited: throttled (429); trying again in 45 min")
    assert (pool["in_use"], pool["leases"], len(pool["resting"])) == (0, [], 1)
    assert "resting" not in cli("status").out


def test_a_dead_run_that_rested_will_not_go_on(cli: Cli, governor: Governor, people: People) -> None:
    pid = people.start()
    ask = Ask(pool="anthropic", project="blog", name="t-14", holder=identify(pid))
    internals(governor).store.pause(ask, for_s=2700, why="limited")
    people.dies(pid)
    assert "dead, will not be tried again" in cli("status").out
    governor.reap()
    assert "blog/t-14" not in cli("status").out
