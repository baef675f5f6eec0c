"""``flyball pool import``: settings and learned state of a koryph ``governor.json``."""

from __future__ import annotations

import json
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from flyball.core.pool.learned import CooldownState
from flyball.core.pool.model import Phase
from flyball.core.pool.settings import MachineSettings
from flyball.errors import UsageError
from flyball.governor import koryph_import
from flyball.governor.governor import Governor
from flyball.governor.internals import internals
from tests.cli.kit import Cli

WALL = 1_760_000_000.0
NOW = 5_000.0


def at(seconds: float, wall: float = WALL) -> str:
    """A wall-clock text as koryph writes it, so many seconds from ``wall``."""
    return datetime.fromtimestamp(wall + seconds, UTC).isoformat().replace("+00:00", "Z")


def learned(wall: float = WALL) -> dict[str, Any]:
    """An adaptive pool in the middle of trouble, as koryph writes it."""
    return {
        "max_global_agents": 12,
        "adaptive": True,
        "hard_max": 20,
        "dynamic_cap": 3,
        "last_decrease_at": at(-40, wall),
        "last_rate_limit_at": at(-10, wall),
        "last_probe_at": at(-900, wall),
        "rate_limit_events": 14,
        "settle_seconds": 100,
        "settle_until": at(60, wall),
        "recent_rate_limit_events": [
            {"at": at(-10, wall), "project": "blog", "bead": "t-1"},
            {"at": at(-50, wall), "project": "blog", "bead": "t-2"},
        ],
        "recent_decreases": [at(-40, wall), at(-200, wall), at(-700, wall)],
        "break_seconds": 120,
        "breaker_state": "open",
        "breaker_open_at": at(-40, wall),
        "breaker_break_seconds": 240,
        "breaker_reopen_count": 1,
        "min_dispatch_interval_seconds": 5,
        "last_admit_at": at(-41, wall),
    }


def one(document: object) -> koryph_import.ImportedPool:
    (pool,) = koryph_import.read(document, wall=WALL, now=NOW).pools
    return pool


def test_learned_state_is_kept_as_distances_on_the_stores_clock() -> None:
    cap = one({"pools": {"anthropic": learned()}}).memory.cap
    assert (cap.level, cap.throttle_count) == (3.0, 14)
    assert (cap.settle_until, cap.settling) == (NOW + 60, CooldownState.CUT)
    assert (cap.last_cut_at, cap.last_throttle_at) == (NOW - 40, NOW - 10)
    assert cap.cuts == (NOW - 40, NOW - 200)
    assert cap.throttles == ((NOW - 10, "blog", "t-1"),)


def test_settings_are_named_under_the_agents_profile_and_koryphs_own_controller() -> None:
    assert one({"pools": {"anthropic": learned()}}).changes == {
        "profile": "agents",
        "controller": "koryph",
        "adaptive": True,
        "cap": 12,
        "cap_ceiling": 20,
        "settle_s": 100.0,
        "break_s": 120.0,
        "spacing_s": 5.0,
    }


def test_a_break_longer_than_our_longest_is_taken_over_as_the_longest(
    cli: Cli, governor: Governor, tmp_path: Path
) -> None:
    file = tmp_path / "governor.json"
    file.write_text(json.dumps({"pools": {"anthropic": {**learned(), "break_seconds": 7200}}}))
    assert cli("pool", "import", str(file)).code == 0
    named = internals(governor).named_settings("anthropic")
    assert (named["break_s"], named["break_max_s"]) == (7200.0, 7200.0)


def test_an_open_breaker_stays_open_for_the_rest_of_its_break() -> None:
    breaker = one({"pools": {"anthropic": learned()}}).memory.breaker
    assert (breaker.phase, breaker.open_until, breaker.reopens) == (Phase.OPEN, NOW + 200, 1)


def test_a_half_open_breaker_tries_again_with_the_next_ask() -> None:
    pool = {**learned(), "breaker_state": "half-open", "probe_project": "blog", "probe_bead": "t-1"}
    assert one({"pools": {"anthropic": pool}}).memory.breaker.phase is Phase.TRIAL


def test_a_pool_without_adaptive_is_static_and_its_breaker_closed() -> None:
    pool = one({"pools": {"openai": {**learned(), "adaptive": False}}})
    assert pool.changes == {"adaptive": False, "cap": 12}
    assert pool.memory.breaker.phase is Phase.CLOSED
    assert pool.memory.cap.throttle_count == 14


def test_a_flat_file_is_the_pool_anthropic() -> None:
    pool = one(learned())
    assert pool.name == "anthropic"
    assert pool.memory.cap.level == 3.0


def test_an_empty_provider_is_the_pool_anthropic() -> None:
    assert one({"pools": {"": {"max_global_agents": 3}}}).name == "anthropic"


def test_gos_field_names_are_understood_too() -> None:
    pool = one({"Pools": {"anthropic": {"MaxGlobalAgents": 6, "Adaptive": True, "DynamicCap": 2}}})
    assert (pool.changes["cap"], pool.memory.cap.level) == (6, 2.0)


def test_a_missing_cap_is_koryphs_default() -> None:
    assert one({"pools": {"x": {"adaptive": True}}}).changes["cap"] == 8


def test_a_hard_maximum_below_the_cap_wins() -> None:
    pool = one({"pools": {"x": {"adaptive": True, "max_global_agents": 8, "hard_max": 5}}})
    assert (pool.settings.cap, pool.settings.cap_ceiling) == (5, 5)


def test_a_clock_from_the_future_cannot_close_a_pool_for_longer_than_its_settings() -> None:
    pool = {**learned(), "settle_until": at(1e8), "breaker_open_at": at(1e8), "last_decrease_at": at(1e8)}
    memory = one({"pools": {"anthropic": pool}}).memory
    assert memory.cap.settle_until == NOW + 100
    assert memory.breaker.open_until == NOW + 240
    assert memory.cap.last_cut_at == NOW


def test_gos_zero_time_means_never() -> None:
    pool = one({"pools": {"x": {"adaptive": True, "last_decrease_at": "0001-01-01T00:00:00Z"}}})
    assert pool.memory.cap.last_cut_at is None


def test_quiet_time_before_the_import_counts_for_the_next_probe() -> None:
    pool = {"adaptive": True, "settle_until": at(-1000), "last_probe_at": at(-100)}
    assert one({"pools": {"x": pool}}).memory.cap.settle_until == NOW - 100


def test_the_machines_part_is_taken_over_and_what_has_no_counterpart_is_named() -> None:
    document = {
        "pools": {
            "a": {"min_free_memory_mb": 2048, "est_per_agent_mb": 1536},
            "b": {"min_free_memory_mb": -1},
        },
        "max_machine_agents": 9,
        "resources": {"kinds": {"docker": {"capacity": 2, "probe": "docker ps"}, "gpu": {}}},
    }
    imported = koryph_import.read(document, wall=WALL, now=NOW)
    assert (imported.ceiling, imported.memory_floor_bytes) == (9, 2 << 30)
    assert imported.resources == {"docker": 2, "gpu": 1}
    assert imported.ignored == ("est_per_agent_mb", "resources.probe")


@pytest.mark.parametrize(
    ("document", "message"),
    [
        ([], "must be a JSON object, not a list"),
        ({}, "neither pools nor a pool's settings"),
        ({"name": "x"}, "neither pools nor a pool's settings"),
        ({"pools": {}}, "there is nothing to import"),
        ({"pools": []}, "pools must be a JSON object"),
        ({"pools": {"a": 3}}, "pool 'a' must be a JSON object, not a number"),
        ({"pools": {"a": {"max_global_agents": "8"}}}, "max_global_agents must be a whole number, not '8'"),
        ({"pools": {"a": {"max_global_agents": 1.5}}}, "max_global_agents must be a whole number"),
        ({"pools": {"a": {"adaptive": 1}}}, "adaptive must be true or false"),
        ({"pools": {"a": {"adaptive": True, "settle_until": "soon"}}}, "settle_until must be a time such as"),
        ({"pools": {"a": {"adaptive": True, "breaker_state": "ajar"}}}, "breaker_state 'ajar' is none of"),
        ({"pools": {"a": {"adaptive": True, "recent_decreases": "x"}}}, "recent_decreases must be a list"),
        ({"pools": {"": {"adaptive": True}, "anthropic": {}}}, "names the pool 'anthropic' twice"),
        ({"pools": {"a\nb": {}}}, "contains control characters"),
        ({"pools": {"a": {"max_global_agents": 10**10}}}, "cap is absurdly large"),
    ],
)
def test_what_does_not_fit_is_refused(document: object, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        koryph_import.read(document, wall=WALL, now=NOW)


# -- the command --------------------------------------------------------------------------------


def written(tmp_path: Path, document: object) -> str:
    path = tmp_path / "governor.json"
    path.write_text(json.dumps(document))
    return str(path)


def test_the_governor_goes_on_where_koryph_was(cli: Cli, governor: Governor, tmp_path: Path) -> None:
    wall = time.time()
    document = {
        "pools": {"anthropic": learned(wall), "openai": {"max_global_agents": 4}},
        "max_machine_agents": 9,
    }
    result = cli("pool", "import", written(tmp_path, document))
    assert result.code == 0
    assert "anthropic: 3 slots now, moves between 1 and 20" in result.out
    assert "14 throttles counted; breaker open" in result.out
    anthropic, openai = governor.status().pools
    assert (anthropic.operator_cap, anthropic.cap, anthropic.throttle_count) == (12, 3, 14)
    assert anthropic.settling == "cut"
    assert anthropic.settle_ends_in_s == pytest.approx(60, abs=5)
    assert (anthropic.breaker, anthropic.breaker_reopens) == ("open", 1)
    assert anthropic.closed_for_s == pytest.approx(200, abs=5)
    assert anthropic.last_cut_s_ago == pytest.approx(40, abs=5)
    assert (openai.adaptive, openai.cap) == (False, 4)
    assert internals(governor).store.machine() == MachineSettings(9)


def test_an_import_keeps_what_the_file_does_not_name(cli: Cli, governor: Governor, tmp_path: Path) -> None:
    cli("pool", "set", "anthropic", "--weight", "blog=2")
    cli("pool", "set", "google", "--cap", "3")
    cli("machine", "set", "--memory-floor", "1GiB", "--resource", "gpu=1")
    cli("pool", "import", written(tmp_path, {"max_global_agents": 5}))
    shown = {view["name"]: view["named"] for view in cli("pool", "show", "--json").json}
    assert shown == {
        "anthropic": {"adaptive": False, "cap": 5, "weights": {"blog": 2.0}},
        "google": {"cap": 3},
    }
    assert internals(governor).store.machine() == MachineSettings(None, 1 << 30, {"gpu": 1})


def test_a_dry_run_says_the_same_and_changes_nothing(cli: Cli, tmp_path: Path) -> None:
    file = written(tmp_path, learned(time.time()))
    told = cli("pool", "import", file, "--dry-run").out
    assert not cli.home.exists()
    assert told.startswith("would import")
    assert told.splitlines()[1:] == cli("pool", "import", file).out.splitlines()[1:]


@pytest.mark.parametrize("content", ["", "{", "\x00\x00", '{"pools": {"anthropic": {"adaptive": "yes"}}}'])
def test_a_corrupt_file_is_a_clear_error_and_nothing_changes(cli: Cli, tmp_path: Path, content: str) -> None:
    path = tmp_path / "governor.json"
    path.write_text(content)
    result = cli("pool", "import", str(path))
    assert result.code == 2
    assert str(path) in result.err
    assert "nothing was imported" in result.err
    assert not cli.home.exists()


def test_one_wrong_pool_imports_none(cli: Cli, tmp_path: Path) -> None:
    document = {"pools": {"anthropic": {"max_global_agents": 3}, "openai": {"max_global_agents": True}}}
    assert cli("pool", "import", written(tmp_path, document)).code == 2
    assert not cli.home.exists()


def test_a_missing_file_is_named(cli: Cli, tmp_path: Path) -> None:
    result = cli("pool", "import", str(tmp_path / "nothing.json"))
    assert result.code == 2
    assert "nothing.json: No such file" in result.err


def test_json_lists_what_was_imported(cli: Cli, tmp_path: Path) -> None:
    report = cli("pool", "import", written(tmp_path, learned(time.time())), "--json").json
    assert report["dry_run"] is False
    assert [(pool["pool"], pool["cap_now"]) for pool in report["pools"]] == [("anthropic", 3)]


@pytest.mark.parametrize("field", ["settle_seconds", "max_global_agents", "hard_max"])
def test_a_number_beyond_all_measure_is_refused_by_name(cli: Cli, tmp_path: Path, field: str) -> None:
    document = {"pools": {"anthropic": {"adaptive": True, "max_global_agents": 4, field: 10**400}}}
    result = cli("pool", "import", written(tmp_path, document))
    assert (result.code, field in result.err) == (2, True), result.err
