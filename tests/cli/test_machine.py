"""``flyball machine``: limits over all pools, off by default, set one by one."""

from __future__ import annotations

import pytest

from flyball.core.pool.settings import MachineSettings
from flyball.governor.governor import Governor
from flyball.governor.internals import internals
from tests.cli.kit import Cli


def test_a_memory_floor_that_nothing_can_start_above_is_warned_of(cli: Cli) -> None:
    result = cli("machine", "set", "--memory-floor", "1000TiB")
    assert result.code == 0
    assert "nothing will start: this machine has " in result.out
    assert "flyball machine set --memory-floor off" in cli("machine", "show").out
    refused = cli("exec", "--no-wait", "--", "true")
    assert refused.code == 75
    assert "the floor is 1048576000 MiB\n" in refused.err, "and no promise of a slot"
    assert "nothing will start" not in cli("machine", "set", "--memory-floor", "1MiB").out


def test_there_are_no_limits_out_of_the_box_and_showing_makes_no_state(cli: Cli) -> None:
    result = cli("machine", "show")
    assert "No limit over all pools" in result.out
    assert not cli.home.exists()


def test_a_set_changes_only_what_it_names(cli: Cli, governor: Governor) -> None:
    cli("machine", "set", "--ceiling", "20", "--resource", "docker=2", "--resource", "gpu=1")
    cli("machine", "set", "--memory-floor", "2GiB")
    cli("machine", "set", "--resource", "docker=4")
    assert internals(governor).store.machine() == MachineSettings(20, 2 << 30, {"docker": 4, "gpu": 1})


def test_off_and_0_take_a_limit_away(cli: Cli, governor: Governor) -> None:
    cli("machine", "set", "--ceiling", "20", "--memory-floor", "500MB", "--resource", "docker=2")
    cli("machine", "set", "--ceiling", "off", "--resource", "docker=0")
    assert internals(governor).store.machine() == MachineSettings(None, 500_000_000, {})
    cli("machine", "set", "--memory-floor", "off")
    assert internals(governor).store.machine() == MachineSettings()


def test_json_shows_limits_and_use(cli: Cli) -> None:
    shown = cli("machine", "set", "--ceiling", "20", "--json").json
    assert (shown["ceiling"], shown["in_use"], shown["resources"]) == (20, 0, {})
    assert cli("machine", "show", "--json").json["ceiling"] == 20


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "for example: flyball machine set --ceiling 20"),
        (["--ceiling", "-3"], "ceiling must be a whole number above 0"),
        (["--ceiling", "many"], "'many' is not a whole number"),
        (["--memory-floor", "2 potatoes"], "'2 potatoes' is not a size; write 2GiB or 500MB"),
        (["--resource", "docker"], "'docker' is not NAME=NUMBER"),
    ],
)
def test_wrong_values_are_refused_with_the_way_out(cli: Cli, words: list[str], message: str) -> None:
    result = cli("machine", "set", *words)
    assert result.code == 2
    assert message in result.err
