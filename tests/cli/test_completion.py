"""Help and completion: every verb explains itself."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from importlib.resources import files
from pathlib import Path

import pytest

from flyball.cli.commands.installation.completion import SHELLS
from flyball.cli.main import build_parser, load_verb, verb_parser
from flyball.cli.verbs import FOLDERS, GROUPS
from tests.cli.kit import Cli


@pytest.mark.parametrize("shell", SHELLS)
def test_a_script_knows_every_verb_and_the_arguments_of_its_actions(cli: Cli, shell: str) -> None:
    result = cli("completion", shell)
    assert result.code == 0
    for word in (*FOLDERS, "trial-clean", "memory-floor", "no-wait"):
        assert word in result.out, word


class Bash:
    """A shell that has read the script: what it completes a line to."""

    def __init__(self, cli: Cli) -> None:
        self._script = cli("completion", "bash").out

    def completed(self, *words: str) -> list[str]:
        typed = " ".join(f"'{word}'" for word in words)
        place = f"COMP_WORDS=({typed}); COMP_CWORD={len(words) - 1}"
        return self.says(f"{place}; _shtab_flyball; echo ${{COMPREPLY[@]}}").split()

    def says(self, command: str) -> str:
        line = ["bash", "-c", f"{self._script}\n{command}"]
        return subprocess.run(line, capture_output=True, text=True, check=True).stdout


@pytest.fixture
def bash(cli: Cli) -> Bash:
    return Bash(cli)


def test_bash_completes_actions_options_and_choices(bash: Bash) -> None:
    completed = bash.completed
    assert completed("flyball", "pool", "se") == ["set"]
    assert completed("flyball", "pool", "set", "x", "--trial") == ["--trial-clean", "--trial-timeout"]
    assert completed("flyball", "pool", "set", "x", "--share", "s") == ["strict"]
    assert completed("flyball", "pool", "set", "x", "--heart") == ["--heartbeat"]
    assert completed("flyball", "pool", "set", "x", "--allotment", "d") == ["demand"]
    assert sorted(completed("flyball", "completion", "")) == sorted(SHELLS)


@pytest.mark.parametrize(
    "line",
    ["classify --stdout", "pool import", "batch submit", "exec -- cat", "exec --pool x -- cat a"],
)
def test_bash_completes_files_where_a_file_belongs(bash: Bash, tmp_path: Path, line: str) -> None:
    (tmp_path / "xylem.log").touch()
    found = bash.completed("flyball", *line.split(), str(tmp_path / "xyl"))
    assert found == [str(tmp_path / "xylem.log")]


def test_bash_completes_folders_only_where_a_folder_belongs(bash: Bash, tmp_path: Path) -> None:
    (tmp_path / "xylem.log").touch()
    (tmp_path / "xylem").mkdir()
    found = bash.completed("flyball", "project", "add", str(tmp_path / "xyl"))
    assert found == [str(tmp_path / "xylem")]


def test_bash_completes_commands_after_the_dashes(bash: Bash) -> None:
    assert "cat" in bash.completed("flyball", "exec", "--", "ca")


def test_bash_completes_files_where_nothing_better_is_known(bash: Bash) -> None:
    assert "-o default" in bash.says("complete -p flyball")


def test_an_unknown_shell_is_told_which_ones_there_are(cli: Cli) -> None:
    result = cli("completion", "nushell")
    assert result.code == 2
    assert "cannot be 'nushell'; choose one of bash, zsh, fish, tcsh" in result.err


def test_json_wraps_the_script(cli: Cli) -> None:
    assert "flyball" in cli("completion", "zsh", "--json").json["script"]


@pytest.mark.parametrize("verb", FOLDERS)
def test_every_verb_has_help_with_an_example_and_json(cli: Cli, verb: str) -> None:
    result = cli(verb, "--help")
    assert result.code == 0
    assert "example:" in result.out
    assert f"flyball {verb}" in result.out.partition("example:")[2]


@pytest.mark.parametrize("verb", FOLDERS)
def test_the_examples_of_every_verb_can_be_read(verb: str) -> None:
    lines = [line for line in load_verb(verb).EXAMPLE.splitlines() if line.startswith("flyball ")]
    assert lines
    for command in (part.strip() for line in lines for part in re.split(r"[|<>]| && |  ", line)):
        if command.startswith("flyball "):
            words = shlex.split(command, comments=True)[1:]
            verb_parser(words[0], load_verb(words[0])).parse_args(words[1:])


@pytest.mark.parametrize(
    ("verb", "action"), [("pool", a) for a in ("set", "show", "reset", "remove", "import")]
)
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
    assert done.stdout.strip() == "['flyball.cli.parser', 'flyball.cli.verbs', 'flyball.cli.main']"


def test_the_whole_tree_builds() -> None:
    assert build_parser(whole=True).prog == "flyball"


def test_the_help_lists_every_verb_once_under_the_title_of_its_group(cli: Cli) -> None:
    text = cli("--help").out
    listed = re.findall(r"^  ([a-z]+) ", text.partition("example:")[0], re.MULTILINE)
    titles = re.findall(r"^([a-z].*):$", text, re.MULTILINE)
    assert [each for each in titles if each not in ("options", "example")] == [
        group.title for group in GROUPS
    ]
    assert listed == [verb for group in GROUPS for verb in group.verbs]
    assert len(set(listed)) == len(listed)


def test_every_file_of_the_commands_is_a_verb_of_its_group_or_part_of_one() -> None:
    commands = Path(str(files("flyball.cli.commands")))
    found = {(path.parent.name, path.stem.rstrip("_")) for path in commands.glob("*/[!_]*.py")}
    verbs = {(group.folder, verb) for group in GROUPS for verb in group.verbs}
    assert verbs <= found
    # `flyball task why` is long enough for a file of its own.
    assert found - verbs == {("projects", "task_why")}
