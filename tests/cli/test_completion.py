"""Help and completion: every verb explains itself."""

from __future__ import annotations

import subprocess
import sys

import pytest

from flyball.cli.completion import SHELLS
from flyball.cli.main import VERBS, build_parser
from tests.cli.kit import Cli


@pytest.mark.parametrize("shell", SHELLS)
def test_a_script_knows_every_verb_and_the_arguments_of_its_actions(cli: Cli, shell: str) -> None:
    result = cli("completion", shell)
    assert result.code == 0
    for word in (*VERBS, "trial-clean", "memory-floor", "no-wait"):
        assert word in result.out, word


def test_bash_completes_actions_options_and_choices(cli: Cli) -> None:
    script = cli("completion", "bash").out

    def completed(*words: str) -> list[str]:
        typed = " ".join(f"'{word}'" for word in words)
        ask = f"COMP_WORDS=({typed}); COMP_CWORD={len(words) - 1}; _shtab_flyball; echo ${{COMPREPLY[@]}}"
        done = subprocess.run(["bash", "-c", f"{script}\n{ask}"], capture_output=True, text=True, check=True)
        return done.stdout.split()

    assert completed("flyball", "pool", "se") == ["set"]
    assert completed("flyball", "pool", "set", "x", "--trial") == ["--trial-clean", "--trial-timeout"]
    assert completed("flyball", "pool", "set", "x", "--share", "s") == ["strict"]
    assert completed("flyball", "pool", "set", "x", "--heart") == ["--heartbeat"]
    assert completed("flyball", "pool", "set", "x", "--allotment", "d") == ["demand"]


def test_an_unknown_shell_is_told_which_ones_there_are(cli: Cli) -> None:
    result = cli("completion", "nushell")
    assert result.code == 2
    assert "there is no completion for 'nushell'; there is for bash, zsh, fish, tcsh" in result.err


def test_json_wraps_the_script(cli: Cli) -> None:
    assert "flyball" in cli("completion", "zsh", "--json").json["script"]


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_has_help_with_an_example_and_json(cli: Cli, verb: str) -> None:
    result = cli(verb, "--help")
    assert result.code == 0
    assert "example:" in result.out
    assert f"flyball {verb}" in result.out.partition("example:")[2]


@pytest.mark.parametrize(("verb", "action"), [("pool", a) for a in ("set", "show", "reset", "import")])
def test_every_action_has_help_with_an_example_and_json(cli: Cli, verb: str, action: str) -> None:
    result = cli(verb, action, "--help")
    assert "--json" in result.out
    assert f"flyball {verb} {action}" in result.out.partition("example:")[2]


def test_the_short_tree_imports_no_verb() -> None:
    code = (
        "import sys; from flyball.cli.main import build_parser; build_parser();"
        "print([m for m in sys.modules if m.startswith(('flyball.cli.', 'rich', 'shtab', 'msgspec'))])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "['flyball.cli.parser', 'flyball.cli.main']"


def test_the_whole_tree_builds() -> None:
    assert build_parser(whole=True).prog == "flyball"
