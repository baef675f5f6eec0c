"""``flyball pool``: a set changes exactly what it names."""

from __future__ import annotations

import pytest

from flyball.core.signals import Signal, SignalKind
from flyball.governor.governor import Governor
from tests.cli.kit import Cli, People

THROTTLED = Signal(SignalKind.THROTTLED)


def named(cli: Cli, pool: str = "anthropic") -> dict[str, object]:
    found: dict[str, object] = cli("pool", "show", pool, "--json").json["named"]
    return found


def test_a_set_that_names_one_thing_keeps_the_others(cli: Cli) -> None:
    cli(
        "pool",
        "set",
        "anthropic",
        "--cap",
        "12",
        "--settle",
        "90s",
        "--weight",
        "blog=2",
        "--share",
        "strict",
    )
    cli("pool", "set", "anthropic", "--adaptive")
    cli("pool", "set", "anthropic", "--break", "10m")
    assert named(cli) == {
        "adaptive": True,
        "cap": 12,
        "settle_s": 90.0,
        "break_s": 600.0,
        "weights": {"blog": 2.0},
        "share": "strict",
    }


def test_an_empty_name_is_the_default_pool(cli: Cli, governor: Governor) -> None:
    cli("pool", "set", "", "--cap", "3")
    assert named(cli, "") == named(cli, "anthropic") == {"cap": 3}
    assert cli("pool", "reset", "", "--settings").code == 0
    assert named(cli) == {}
    lease = governor.acquire("")
    assert [pool["name"] for pool in cli("status", "", "--json").json["pools"]] == ["anthropic"]
    assert [held["id"] for held in cli("lease", "list", "--pool", "", "--json").json["leases"]] == [lease.id]
    lease.release()


def test_a_pool_is_not_removed_by_an_empty_name(cli: Cli, governor: Governor) -> None:
    governor.set_pool("anthropic", cap=3)
    assert cli("pool", "remove", "").code == 2
    assert named(cli) == {"cap": 3}


def test_a_set_touches_no_other_pool(cli: Cli) -> None:
    cli("pool", "set", "anthropic", "--cap", "3")
    cli("pool", "set", "openai", "--static", "--cap", "4")
    assert named(cli) == {"cap": 3}


def test_every_flag_reaches_its_setting(cli: Cli) -> None:
    result = cli(
        *("pool", "set", "anthropic", "--cap", "6", "--adaptive", "--floor", "2", "--ceiling", "10"),
        *("--profile", "calls", "--settle", "10s", "--probe", "1m", "--break", "30s", "--break-max", "1h30m"),
        *("--trial-clean", "5s", "--trial-timeout", "3m", "--spacing", "250ms", "--share", "strict"),
        *("--weight", "blog=2", "--weight", "shop=0.5", "--max", "shop=3", "--reserve", "1"),
        *("--ageing", "30s", "--retry-after-max", "2m"),
        *("--heartbeat", "500ms", "--grace", "1m", "--allotment", "even", "--estimates", "min"),
    )
    assert result.code == 0
    assert named(cli) == {
        "profile": "calls",
        "adaptive": True,
        "cap": 6,
        "cap_floor": 2,
        "cap_ceiling": 10,
        "settle_s": 10.0,
        "probe_s": 60.0,
        "break_s": 30.0,
        "break_max_s": 5400.0,
        "trial_clean_s": 5.0,
        "trial_timeout_s": 180.0,
        "spacing_s": 0.25,
        "retry_after_max_s": 120.0,
        "share": "strict",
        "weights": {"blog": 2.0, "shop": 0.5},
        "maxima": {"shop": 3},
        "reserve": 1,
        "ageing_s": 30.0,
        "heartbeat_s": 0.5,
        "grace_s": 60.0,
        "allotment": "even",
        "estimates": "min",
    }


def test_an_adaptive_pool_is_said_to_move_between_its_bounds(cli: Cli) -> None:
    out = cli("pool", "set", "anthropic", "--cap", "6").out
    assert out == "anthropic: 6 slots now, moves between 1 and 12 by itself; --static fixes it at 6\n"


def test_a_time_of_zero_that_turns_nothing_off_says_what_it_means(cli: Cli) -> None:
    cli("pool", "set", "anthropic", "--retry-after-max", "0", "--trial-timeout", "0", "--spacing", "0")
    shown = {line.split()[0]: line for line in cli("pool", "show", "anthropic").out.splitlines()}
    assert "no Retry-After is heeded" in shown["--retry-after-max"]
    assert "at once" in shown["--trial-timeout"]
    assert shown["--spacing"].split()[1] == "off"


def test_a_static_pool_is_said_to_be_fixed(cli: Cli) -> None:
    out = cli("pool", "set", "openai", "--cap", "4", "--static").out
    assert out == "openai: 4 slots, fixed; --adaptive lets it find the real limit\n"


def test_a_pool_that_its_controller_fixes_is_not_said_to_move(cli: Cli) -> None:
    out = cli("pool", "set", "x", "--cap", "4", "--controller", "fixed").out
    way_out = "--controller measured lets it find the real limit"
    assert out == f"x: 4 slots, fixed by its controller; {way_out}; controller fixed\n"
    assert "cap       4, fixed by its controller\n" in cli("status").out


def test_one_slot_is_one(cli: Cli) -> None:
    assert "x: 1 slot now, moves between" in cli("pool", "set", "x", "--cap", "1").out
    assert "adaptive, 1 slot now" in cli("pool", "show", "x").out


def test_a_setting_that_a_static_pool_does_not_use_is_said_to_be_unused(cli: Cli) -> None:
    assert "spacing 3 s (unused while static)" in cli("pool", "set", "x", "--static", "--spacing", "3s").out


def test_spacing_0_turns_it_off(cli: Cli) -> None:
    cli("pool", "set", "anthropic", "--profile", "agents")
    assert "spacing off" in cli("pool", "set", "anthropic", "--spacing", "0").out
    assert cli("pool", "show", "anthropic", "--json").json["settings"]["spacing_s"] == 0


def test_weights_and_maxima_merge_by_project_and_0_removes_one(cli: Cli) -> None:
    cli("pool", "set", "anthropic", "--weight", "blog=2", "--weight", "shop=3", "--max", "shop=3")
    cli("pool", "set", "anthropic", "--weight", "blog=0", "--max", "infra=1")
    assert named(cli) == {"weights": {"shop": 3.0}, "maxima": {"shop": 3, "infra": 1}}


def test_a_project_may_have_an_equals_sign_and_any_letters(cli: Cli) -> None:
    cli("pool", "set", "größe 🚀", "--weight", "a=b=0.5", "--max", "x y=z=2")
    assert named(cli, "größe 🚀") == {"weights": {"a=b": 0.5}, "maxima": {"x y=z": 2}}


def test_naming_nothing_is_wrong_usage_with_an_example(cli: Cli) -> None:
    result = cli("pool", "set", "anthropic")
    assert result.code == 2
    assert "flyball pool set anthropic --cap 12" in result.err
    assert not cli.home.exists()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--cap", "0"], "cap must be a whole number of at least 1"),
        (["--cap", "many"], "'many' is not a whole number"),
        (["--cap", "4", "--ceiling", "3"], "raise the ceiling or lower the cap"),
        (["--reserve", "8"], "reserve must be between 0 and cap - 1"),
        (["--settle", "soon"], "'soon' is not a duration; write 90s, 10m or 1h30m"),
        (["--break", "0"], "break_s must be above 0 seconds"),
        (["--break", "2h", "--break-max", "30m"], "raise the longest or lower the break"),
        (["--break", "2h"], "break_s 7200 is above break_max_s 3600"),
        (["--break-max", "1m"], "break_s 300 is above break_max_s 60"),
        (["--weight", "blog"], "'blog' is not NAME=NUMBER"),
        (["--weight", "blog=-1"], "'blog=-1' is not NAME=NUMBER"),
        (["--max", "blog"], "'blog' is not NAME=NUMBER"),
        (["--profile", "fast"], "cannot be 'fast'; choose one of mixed"),
        (["--heartbeat", "0"], "heartbeat_s must be above 0 seconds"),
        (["--heartbeat", "often"], "'often' is not a duration"),
        (["--grace", "-1s"], "--grace"),
        (["--allotment", "fair"], "--allotment: cannot be 'fair'; choose one of even, demand"),
        (["--estimates", "sum"], "--estimates: cannot be 'sum'; choose one of median, min"),
        (["--adaptive", "--static"], "not allowed with"),
    ],
)
def test_a_wrong_value_is_refused_and_changes_nothing(cli: Cli, words: list[str], message: str) -> None:
    cli("pool", "set", "anthropic", "--settle", "77s")
    result = cli("pool", "set", "anthropic", *words)
    assert result.code == 2
    assert message in result.err
    assert named(cli) == {"settle_s": 77.0}


def test_an_error_is_an_object_with_json(cli: Cli) -> None:
    result = cli("pool", "set", "anthropic", "--cap", "0", "--json")
    assert result.json == {
        "error": "UsageError",
        "message": "cap must be a whole number of at least 1, not 0",
        "exit": 2,
    }


def test_a_named_cap_reseeds_the_dynamic_one(cli: Cli, governor: Governor) -> None:
    governor.report("anthropic", THROTTLED, project="blog", name="t")
    assert cli("pool", "show", "anthropic", "--json").json["cap_now"] == 4
    assert cli("pool", "set", "anthropic", "--cap", "6", "--json").json["cap_now"] == 6


def test_another_setting_keeps_the_dynamic_cap(cli: Cli, governor: Governor) -> None:
    governor.report("anthropic", THROTTLED, project="blog", name="t")
    assert cli("pool", "set", "anthropic", "--spacing", "1s", "--json").json["cap_now"] == 4


def test_a_new_pool_that_looks_like_an_old_one_is_questioned(cli: Cli) -> None:
    cli("pool", "set", "anthropic", "--cap", "4")
    assert "this is a new pool; did you mean 'anthropic'?" in cli("pool", "set", "antropic", "--cap", "4").out
    assert "new pool" not in cli("pool", "set", "openai", "--cap", "4").out


def test_show_says_who_decided_each_value(cli: Cli) -> None:
    cli("pool", "set", "anthropic", "--profile", "agents", "--settle", "90s")
    rows = [line.split(maxsplit=1) for line in cli("pool", "show", "anthropic").out.splitlines()]
    table = {row[0]: " ".join(row[1].split()) for row in rows if len(row) == 2}
    assert table["--settle"] == "90 s (unused by the controller measured) you"
    assert table["--spacing"] == "3 s profile agents"
    assert table["--ceiling"] == "16 2 x cap"
    assert table["--trial-clean"] == "90 s one settle"
    assert table["--share"] == "lend default"


def test_the_terms_of_share_leases_are_shown_with_the_others(cli: Cli) -> None:
    cli("pool", "set", "anthropic", "--heartbeat", "500ms", "--grace", "30s")
    rows = [line.split() for line in cli("pool", "show", "anthropic").out.splitlines()]
    table = {row[0]: row[1:] for row in rows if row}
    assert table["--heartbeat"] == ["0.5", "s", "you"]
    assert table["--grace"] == ["30", "s", "you"]
    assert table["--allotment"] == ["demand", "default"]
    assert table["--estimates"] == ["median", "default"]
    settings = cli("pool", "show", "anthropic", "--json").json["settings"]
    assert (settings["heartbeat_s"], settings["grace_s"]) == (0.5, 30.0)
    assert (settings["allotment"], settings["estimates"]) == ("demand", "median")


def test_show_of_an_unused_pool_shows_how_it_would_start_and_makes_nothing(cli: Cli) -> None:
    out = cli("pool", "show", "openai").out
    assert out.startswith("openai  adaptive, not used yet; it starts like this")
    assert cli("pool", "show", "--json").json[0]["used"] is False
    assert not cli.home.exists()


def test_reset_forgets_what_was_learned_and_keeps_settings(cli: Cli, governor: Governor) -> None:
    cli("pool", "set", "anthropic", "--cap", "8", "--settle", "90s")
    governor.report("anthropic", THROTTLED, project="blog", name="t")
    result = cli("pool", "reset", "anthropic")
    assert result.code == 0
    assert "8 slots now" in result.out
    status = governor.status().pools[0]
    assert (status.cap, status.throttle_count, status.settling) == (8, 0, "")
    assert named(cli) == {"cap": 8, "settle_s": 90.0}


def test_reset_of_an_unknown_pool_names_the_known_ones(cli: Cli) -> None:
    assert "in use: none yet" in cli("pool", "reset", "openai").err
    assert not cli.home.exists()
    cli("pool", "set", "anthropic", "--cap", "8")
    result = cli("pool", "reset", "antropic")
    assert result.code == 2
    assert "did you mean 'anthropic'?" in result.err


def test_reset_with_settings_goes_back_to_the_defaults(cli: Cli) -> None:
    before = cli("pool", "show", "anthropic", "--json").json["settings"]
    cli("pool", "set", "anthropic", "--cap", "3", "--static", "--weight", "blog=2", "--heartbeat", "100ms")
    result = cli("pool", "reset", "anthropic", "--settings", "--json")
    assert result.json["named"] == {}
    assert result.json["settings"] == before
    assert "the defaults again" in cli("pool", "reset", "anthropic", "--settings").out


def test_a_removed_pool_is_gone_from_everything_that_shows_pools(cli: Cli, governor: Governor) -> None:
    cli("pool", "set", "openai", "--cap", "4")
    cli("pool", "set", "demo", "--cap", "4")
    governor.release(governor.acquire("demo", project="blog", name="t-1"), "throttled")
    assert "demo" in {fact.pool for fact in governor.facts()}
    assert cli("pool", "remove", "demo", "--json").json == {"removed": "demo"}
    assert [pool["name"] for pool in cli("status", "--json").json["pools"]] == ["openai"]
    assert "demo" not in {fact.pool for fact in governor.facts()}
    shown = [cli("status"), cli("pool", "show"), cli("doctor"), cli("why", "t-1")]
    assert not [result.out for result in shown if "demo" in result.out]
    assert cli("pool", "show", "demo", "--json").json["named"] == {}


def test_a_pool_with_leases_or_waiters_is_not_removed_and_the_way_out_is_said(
    cli: Cli, governor: Governor, people: People
) -> None:
    governor.set_pool("demo", cap=1, adaptive=False)
    people.holds("demo", "blog", "t-1")
    people.waits("demo", "blog", "t-2")
    result = cli("pool", "remove", "demo")
    assert result.code == 2
    assert "leases: 1, waiting: 1" in result.err
    assert "flyball status demo" in result.err
    assert cli("status", "--json").json["pools"][0]["in_use"] == 1


def test_what_dead_processes_hold_does_not_keep_a_pool(cli: Cli, governor: Governor, people: People) -> None:
    people.holds("demo", "blog", "t-1")
    people.all_die()
    assert cli("pool", "remove", "demo").code == 0
    assert cli("status", "--json").json["pools"] == []


def test_remove_of_an_unknown_pool_names_the_known_ones(cli: Cli) -> None:
    assert "in use: none yet" in cli("pool", "remove", "openai").err
    assert not cli.home.exists()
    cli("pool", "set", "anthropic", "--cap", "8")
    assert "did you mean 'anthropic'?" in cli("pool", "remove", "antropic").err


def test_an_action_is_needed(cli: Cli) -> None:
    assert cli("pool").code == 2


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("--settle 10s", "settle 10 s (unused by the controller measured; it is for article, koryph, "),
        ("--probe 60s", "probe 60 s (unused by the controller measured; it is for article, koryph)"),
        ("--controller gradient2 --confirm 5s", "confirm 5 s (unused by the controller gradient2; it is for"),
        ("--controller fixed --break 60s", "break 60 s (unused by the controller fixed)"),
        ("--static --settle 10s", "settle 10 s (unused while static)"),
    ],
)
def test_a_setting_that_its_controller_does_not_use_is_said_to_be_unused(
    cli: Cli, words: str, said: str
) -> None:
    assert said in cli("pool", "set", "x", *words.split()).out


@pytest.mark.parametrize(
    "words",
    ["--controller koryph --settle 10s --probe 60s", "--controller gradient2 --settle 10s", "--confirm 5s"],
)
def test_a_setting_that_its_controller_uses_is_not(cli: Cli, words: str) -> None:
    assert "unused" not in cli("pool", "set", "x", *words.split()).out
    assert cli("pool", "show", "x", "--json").json["unused"] == []


def test_a_script_can_see_what_is_unused(cli: Cli) -> None:
    view = cli("pool", "set", "x", "--settle", "10s", "--cap", "4", "--json").json
    assert view["unused"] == ["settle_s"]


def test_a_setting_without_an_option_goes_by_its_own_name(cli: Cli, governor: Governor) -> None:
    governor.set_pool("x", burst_count=5)
    assert "burst_count 5 (unused by the controller measured" in cli("pool", "set", "x", "--cap", "4").out


def test_a_window_that_no_call_counts_in_by_itself_is_said_to_need_a_cost(cli: Cli) -> None:
    out = cli("pool", "set", "x", "--window", "token=200k/min", "--window", "gpu=5/min").out
    assert "window 'token' counts only calls whose cost names it; did you mean 'tokens'?" in out
    assert "window 'gpu' counts only calls whose cost names it\n" in out
    assert "window '" not in cli("pool", "set", "x", "--window", "requests=60/min", "--window", "gpu=0").out
