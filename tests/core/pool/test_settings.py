"""What people may write, what it becomes, and what is refused with the way out."""

from __future__ import annotations

from dataclasses import asdict, fields
from enum import Enum
from typing import Any, get_origin, get_type_hints

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flyball.core.pool.setting_table import SETTINGS, merge_changes, resolve_pool
from flyball.core.pool.settings import (
    NAME_LIMIT,
    PROFILES,
    Growth,
    MachineSettings,
    PoolChanges,
    PoolSettings,
    ShareRule,
    check_machine,
    check_name,
    merge_machine,
)
from flyball.errors import UsageError
from tests.cases import every
from tests.core.kit import pool


def test_out_of_the_box_a_pool_has_eight_slots_and_room_to_sixteen() -> None:
    s = pool()
    assert (s.profile, s.cap, s.cap_floor, s.cap_ceiling, s.settle_s, s.probe_s) == (
        *("mixed", 8, 1, 16),
        *(120.0, 300.0),
    )


def test_settings_of_which_none_was_named_are_the_defaults_without_the_table() -> None:
    assert resolve_pool({}) == PoolSettings()


def test_the_agents_profile_has_the_constants_of_the_seed() -> None:
    s = pool(profile="agents")
    assert (s.cap, s.settle_s, s.probe_s, s.spacing_s, s.spacing_jitter) == (8, 120.0, 300.0, 3.0, 0.5)
    assert (s.cut_factor, s.burst_factor, s.burst_count, s.burst_window_s) == (2.0, 4.0, 3, 30.0)
    assert (s.trip_cuts, s.trip_window_s, s.break_s, s.break_max_s) == (3, 600.0, 300.0, 3600.0)
    assert (s.trial_timeout_s, s.rotation_s) == (1800.0, 60.0)


def test_the_calls_profile_has_the_constants_of_the_article() -> None:
    s = pool(profile="calls")
    assert (s.cap, s.cap_floor, s.cap_ceiling) == (2, 1, 12)
    assert (s.growth, s.step, s.cut_factor, s.settle_s, s.spacing_s) == (Growth.SUCCESS, 0.5, 2.0, 8.0, 0.0)


@pytest.mark.parametrize(("cap", "ceiling"), [(1, 2), (4, 8), (100, 200)])
def test_the_ceiling_is_twice_the_cap_unless_named(cap: int, ceiling: int) -> None:
    assert pool(cap=cap).cap_ceiling == ceiling
    assert pool(cap=cap, cap_ceiling=cap).cap_ceiling == cap


def test_a_profiles_ceiling_gives_way_to_a_named_cap_above_it() -> None:
    assert pool(profile="calls", cap=20).cap_ceiling == 40


def test_a_trial_is_judged_after_one_settle_unless_named() -> None:
    assert pool(settle_s=30.0).trial_clean_s == 30.0
    assert pool(settle_s=30.0, trial_clean_s=5.0).trial_clean_s == 5.0


def test_the_share_rule_is_a_word() -> None:
    assert pool(share="strict").share is ShareRule.STRICT
    assert pool(share="lend").share is ShareRule.LEND


@every(
    "changes",
    [
        {"profile": "fast"},
        {"share": "greedy"},
        {"cap": 0},
        {"cap": 1.5},
        {"cap": True},
        {"cap": "8"},
        {"cap": 10**10},
        {"cap": 8, "cap_ceiling": 4},
        {"cap": 8, "cap_floor": 9},
        {"cap_floor": 0},
        {"reserve": -1},
        {"cap": 4, "reserve": 4},
        {"adaptive": "yes"},
        {"settle_s": -1},
        {"settle_s": float("nan")},
        {"settle_s": float("inf")},
        {"ageing_s": 0},
        {"break_s": 0},
        {"probe_s": 0},
        {"spacing_s": "3s"},
        {"weights": {"a": -1}},
        {"weights": {"a": float("nan")}},
        {"maxima": {"a": -1}},
        {"maxima": {"a": 1.5}},
        {"cap_cieling": 4},
        {"cut_factor": 0},
    ],
)
def test_nonsense_is_refused(changes: PoolChanges) -> None:
    with pytest.raises(UsageError):
        resolve_pool(changes)


def test_a_refusal_names_the_setting_and_the_way_out() -> None:
    with pytest.raises(UsageError, match="cap_ceiling 4 is below cap 8; raise the ceiling or lower the cap"):
        pool(cap=8, cap_ceiling=4)


def test_zero_turns_spacing_off() -> None:
    assert pool(profile="agents", spacing_s=0.0).spacing_s == 0.0


def test_the_table_has_the_names_and_types_of_the_changes_and_the_defaults_of_the_settings() -> None:
    assert {name: row.type for name, row in SETTINGS.items()} == get_type_hints(PoolChanges)
    assert SETTINGS.keys() == {field.name for field in fields(PoolSettings)}
    defaults = asdict(PoolSettings())
    for row in SETTINGS.values():
        value = defaults[row.name]
        row.check(value.value if isinstance(value, Enum) else value)
        assert isinstance(value, get_origin(row.type) or row.type | Enum), row.name


@pytest.mark.parametrize("profile", PROFILES)
def test_what_a_profile_says_may_be_said(profile: str) -> None:
    for name, value in PROFILES[profile].items():
        SETTINGS[name].check(value)


# -- merging ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ({}, {"break_s": 7200.0, "break_max_s": 1800.0}),
        ({}, {"break_s": 7200.0}),
        ({"break_s": 600.0}, {"break_max_s": 60.0}),
        ({"break_s": 600.0}, {"profile": "calls"}),
    ],
)
def test_a_break_above_the_longest_break_is_refused(old: PoolChanges, new: PoolChanges) -> None:
    with pytest.raises(UsageError, match="raise the longest or lower the break"):
        merge_changes(old, new)


def test_a_state_with_such_a_break_from_before_is_still_read_and_changed_elsewhere() -> None:
    before = PoolChanges(break_s=7200.0, break_max_s=1800.0)
    assert merge_changes(before, {"cap": 3})["cap"] == 3
    assert merge_changes(before, {"break_s": 60.0})["break_s"] == 60.0


_changes = st.fixed_dictionaries(
    {},
    optional={
        "adaptive": st.booleans(),
        "cap": st.integers(5, 20),
        "settle_s": st.floats(0, 1000),
        "spacing_s": st.floats(0, 10),
        "reserve": st.integers(0, 4),
        "share": st.sampled_from(["strict", "lend"]),
        "weights": st.dictionaries(st.sampled_from("abc"), st.floats(0.1, 9)),
    },
)


@given(_changes, _changes)
def test_a_change_touches_only_what_it_names(old: PoolChanges, new: PoolChanges) -> None:
    merged = merge_changes(old, new)
    for key in old.keys() - new.keys():
        assert merged[key] == old[key]  # type: ignore[literal-required]
    for key in new.keys() - {"weights"}:
        assert merged[key] == new[key]  # type: ignore[literal-required]


@given(_changes)
def test_naming_nothing_changes_nothing(old: PoolChanges) -> None:
    assert merge_changes(old, {}) == old


def test_weights_merge_by_project_and_zero_removes() -> None:
    merged = merge_changes({"weights": {"a": 2.0, "b": 3.0}}, {"weights": {"b": 0, "c": 4.0}})
    assert merged["weights"] == {"a": 2.0, "c": 4.0}


def test_a_merge_that_makes_no_sense_is_refused() -> None:
    with pytest.raises(UsageError):
        merge_changes({"cap": 8, "reserve": 6}, {"cap": 4})


# -- machine and names ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "fields",
    [{"ceiling": 0}, {"ceiling": True}, {"memory_floor_bytes": -1}, {"resources": {"gpu": 0}}],
)
def test_a_machine_limit_that_makes_no_sense_is_refused(fields: dict[str, object]) -> None:
    with pytest.raises(UsageError):
        MachineSettings(**fields)  # type: ignore[arg-type]


@every(
    "new",
    [
        {"weights": {"a\nb": 2.0}},
        {"maxima": {"a\u202eb": 2}},
        {"windows": {"": "60/min"}},
        {"weights": 5},
        {"maxima": None},
    ],
)
def test_what_a_pool_is_told_by_name_has_names_that_can_be_shown(new: PoolChanges) -> None:
    with pytest.raises(UsageError):
        merge_changes({}, new)


def test_a_name_that_is_stored_already_can_be_removed() -> None:
    assert merge_changes({"weights": {"a\x7f": 2.0}}, {"weights": {"a\x7f": 0}})["weights"] == {}


@pytest.mark.parametrize("new", [{"cieling": 3}, {"resources": {"a\nb": 1}}, {"resources": 5}])
def test_a_change_of_the_machines_limits_that_makes_no_sense_is_refused(new: Any) -> None:
    with pytest.raises(UsageError):
        merge_machine(MachineSettings(ceiling=3), new)


@every("machine", [None, 5, "x", {"ceiling": 3}, MachineSettings(resources={"": 1})])
def test_only_limits_replace_the_machines_limits(machine: Any) -> None:
    with pytest.raises(UsageError):
        check_machine(machine)


@every(
    "name",
    ["a", "my app/ü 🚀", "👩\u200d🚀", "a\u00a0b", "x" * NAME_LIMIT, "provider:account", "'; DROP TABLE"],
)
def test_any_printable_name_is_fine(name: str) -> None:
    assert check_name("pool", name) == name


@every(
    "name",
    [
        *("", "a\nb", "\x00", "x" * (NAME_LIMIT + 1), "\ud83d", 7, None),
        *("a\x7f", "a\x85b", "\x9b31m", "a\u202eb", "a\u2028b", "\u2066a"),
    ],
)
def test_a_name_that_cannot_be_shown_or_stored_is_refused(name: str) -> None:
    with pytest.raises(UsageError, match="project"):
        check_name("project", name)


def test_settings_are_values() -> None:
    assert pool(cap=4) == pool(cap=4)
    assert pool(controller="measured") == PoolSettings()
