"""What cannot be read on the command line: one line with a way out, JSON if asked for, exit code 2."""

from __future__ import annotations

import json

import pytest

from tests.cli.kit import Cli


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("exce -- true", "there is no verb 'exce'; did you mean exec?"),
        ("frobnicate", "there is no verb 'frobnicate'; see flyball --help"),
        ("--no-wait exec -- true", "options come after the verb: flyball exec --no-wait"),
        ("--jsn", "unknown option --jsn; see flyball --help"),
        ("status --jsn", "unknown option --jsn; did you mean --json?"),
        ("exec --prioriti=3 -- true", "unknown option --prioriti; did you mean --priority?"),
        ("exec --prioriti 3 -- true", "unknown option --prioriti; did you mean --priority?"),
        ("pool sett x", "there is no action 'sett'; did you mean set?"),
        ("pool set x --cpa 3", "unknown option --cpa; did you mean --cap?"),
        ("pool set x --frobnicate", "unknown option --frobnicate; see flyball pool --help"),
        ("pool set x --controller mesured", "--controller: cannot be 'mesured'; did you mean measured?"),
        ("pool set x --profile robots", "--profile: cannot be 'robots'; choose one of mixed, agents, calls"),
        ("pool set x --cap many", "--cap: 'many' is not a whole number; see flyball pool set --help"),
        (
            "pool set -- -x --cap 2",
            "--cap is in the wrong place; options come after the action and before any --",
        ),
        (
            "pool --cap=2 set x",
            "--cap is in the wrong place; options come after the action and before any --",
        ),
        ("exec --slots x -- true", "--slots: 'x' is not a whole number; see flyball exec --help"),
        ("exec --priority high -- true", "--priority: 'high' is not a whole number"),
        ("why x --limit -1", "--limit: '-1' is below 0; see flyball why --help"),
        ("demo --seed x", "--seed: 'x' is not a whole number"),
        ("pool", "required: ACTION; see flyball pool --help"),
        ("why", "required: NAME|PID; see flyball why --help"),
        ("why a b", "too many words: b; see flyball why --help"),
        ("exec --wait", "--wait: expected one argument; see flyball exec --help"),
        ("exec --wait 1s --no-wait -- true", "not allowed with argument --wait"),
    ],
)
def test_what_cannot_be_read_is_one_line_with_a_way_out(cli: Cli, line: str, said: str) -> None:
    result = cli(*line.split())
    assert (result.code, result.out) == (2, "")
    assert result.err.startswith("flyball: ")
    assert said in result.err
    assert result.err.count("\n") == 1
    assert not cli.home.exists()


@pytest.mark.parametrize(
    "line",
    [
        "--json status",
        "frobnicate --json",
        "status --json --frobnicate",
        "pool set x --cap many --json",
        "why --json",
    ],
)
def test_a_script_gets_it_as_json(cli: Cli, line: str) -> None:
    result = cli(*line.split())
    assert (result.code, result.json["error"], result.json["exit"]) == (2, "UsageError", 2)
    assert result.json["message"] in result.err


def test_exec_leaves_stdout_to_its_command(cli: Cli) -> None:
    result = cli("exec", "--json", "--prioriti", "3", "--", "true")
    assert (result.code, result.out) == (2, "")
    assert json.loads(result.err)["message"] == "unknown option --prioriti; did you mean --priority?"


def test_help_is_not_an_error(cli: Cli) -> None:
    for line in (["--help"], ["pool", "--help"], ["pool", "set", "--help"]):
        result = cli(*line)
        assert (result.code, "usage: flyball" in result.out) == (0, True)
