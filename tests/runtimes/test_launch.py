"""The command lines that start an agent: what is asked for is in them, once, and is what it was."""

from __future__ import annotations

import json
import tomllib
from dataclasses import replace

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from flyball.errors import UsageError
from flyball.runtimes.port import Assignment, Launch
from flyball.runtimes.registry import NAMES, load, pool_of, runtime_of
from flyball.testing import LAUNCH_CHECKS
from flyball.testing.runtime_checks import LaunchCheck

CLAUDE = ("-p", "--output-format=stream-json", "--verbose", "--permission-mode=acceptEdits")
CODEX = ("exec", "--json", "-c", 'sandbox_mode="workspace-write"', "-c", 'approval_policy="never"')
GEMINI = ("--output-format=stream-json", "--approval-mode=auto_edit", "--skip-trust")
OPENCODE = ("run", "--format=json")
AGENTS = [name for name in NAMES if name != "command"]
OURS = {
    "--output-format",
    "--verbose",
    "--permission-mode",
    "--model",
    "--effort",
    "--max-turns",
    "--max-budget-usd",
    "--resume",
    "--fork-session",
    "--json",
    "--approval-mode",
    "--skip-trust",
    "--format",
    "--session",
    "--fork",
    "--",
    "-p",
    "-c",
    "-",
}

words = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=12)
options = st.sampled_from(
    ["-x", "--", "-", "--model", "-m", "--model=x", "--yolo", "--json", "-c", "a b", ""]
)


@pytest.mark.parametrize("check", LAUNCH_CHECKS, ids=lambda check: check.__name__)
@pytest.mark.parametrize("name", NAMES)
def test_the_suite(name: str, check: LaunchCheck) -> None:
    check(load(name))


@pytest.mark.parametrize(
    ("name", "asked", "argv"),
    [
        ("claude", Assignment(), ("claude", *CLAUDE)),
        ("claude", Assignment(model="opus"), ("claude", *CLAUDE, "--model=opus")),
        ("claude", Assignment(effort="high"), ("claude", *CLAUDE, "--effort=high")),
        ("claude", Assignment(effort="high", args=["--effort=low"]), ("claude", *CLAUDE, "--effort=low")),
        ("codex", Assignment(effort="low"), ("codex", *CODEX, "-c", 'model_reasoning_effort="low"')),
        (
            "claude",
            Assignment(max_turns=40, max_cost_usd=2.5),
            ("claude", *CLAUDE, "--max-turns=40", "--max-budget-usd=2.5"),
        ),
        ("claude", Assignment(session="S"), ("claude", *CLAUDE, "--resume=S", "--fork-session")),
        (
            "claude",
            Assignment(program=("npx", "claude"), args=("--allowedTools", "Bash(make:*)", "Read")),
            ("npx", "claude", *CLAUDE, "--allowedTools", "Bash(make:*)", "Read"),
        ),
        ("codex", Assignment(), ("codex", *CODEX)),
        ("codex", Assignment(model="gpt-5.5"), ("codex", *CODEX, "-c", 'model="gpt-5.5"')),
        ("codex", Assignment(max_turns=40, max_cost_usd=2.5), ("codex", *CODEX)),
        (
            "codex",
            Assignment(session="S", args=("--sandbox", "read-only")),
            ("codex", *CODEX, "--sandbox", "read-only", "fork", "--", "S", "-"),
        ),
        ("gemini", Assignment(), ("gemini", *GEMINI)),
        (
            "gemini",
            Assignment(model="pro", session="S", max_turns=40),
            ("gemini", *GEMINI, "--model=pro", "--resume=S"),
        ),
        ("opencode", Assignment(), ("opencode", *OPENCODE)),
        (
            "opencode",
            Assignment(model="anthropic/opus", session="S", args=("--variant", "high")),
            ("opencode", *OPENCODE, "--model=anthropic/opus", "--session=S", "--fork", "--variant", "high"),
        ),
        ("command", Assignment(program=("python3", "agent.py"), args=("-v",)), ("python3", "agent.py", "-v")),
    ],
)
def test_the_command_line(name: str, asked: Assignment, argv: tuple[str, ...]) -> None:
    assert load(name).launch(asked).argv == argv


@pytest.mark.parametrize(
    ("name", "said", "ours"),
    [
        ("claude", ("--permission-mode", "plan"), "--permission-mode=acceptEdits"),
        ("claude", ("--dangerously-skip-permissions",), "--permission-mode=acceptEdits"),
        ("claude", ("--model=haiku",), "--model=a-model"),
        ("claude", ("-c",), "--resume=S"),
        ("gemini", ("-y",), "--approval-mode=auto_edit"),
        ("gemini", ("--approval-mode=yolo",), "--approval-mode=auto_edit"),
        ("gemini", ("-m", "flash"), "--model=a-model"),
        ("gemini", ("-o", "json"), "--output-format=stream-json"),
        ("opencode", ("-mopenai/gpt",), "--model=a-model"),
        ("opencode", ("--format", "default"), "--format=json"),
        ("opencode", ("--session=other",), "--session=S"),
        ("codex", ("--json",), "--json"),
    ],
)
def test_an_option_that_the_project_names_itself_is_not_said_twice(
    name: str, said: tuple[str, ...], ours: str
) -> None:
    runtime, plain = load(name), Assignment(model="a-model", session="S")
    assert ours in runtime.launch(plain).argv
    argv = runtime.launch(Assignment(model="a-model", session="S", args=said)).argv
    assert argv.count(ours) == said.count(ours)


def test_what_follows_two_dashes_names_no_option() -> None:
    assert "--model=opus" in load("claude").launch(Assignment(model="opus", args=("--", "--model"))).argv


def test_opencode_may_not_run_commands_unless_the_project_lets_it_have_all_it_asks_for() -> None:
    strict = load("opencode").launch(Assignment()).env["OPENCODE_PERMISSION"]
    assert '"bash":{"*":"deny"}' in strict
    # What is not mentioned stays as the project's own configuration has it.
    assert '"edit"' not in strict
    assert load("opencode").launch(Assignment(args=("--auto",))).env == {}


def test_a_command_is_told_its_model_and_has_to_be_named() -> None:
    asked = Assignment(program=("make", "work"), model="big")
    assert load("command").launch(asked) == Launch(("make", "work"), {"FLYBALL_MODEL": "big"})
    with pytest.raises(UsageError, match=r"set agent\.command"):
        load("command").launch(Assignment(model="big"))


@pytest.mark.parametrize("name", AGENTS)
def test_a_launch_is_recognised_as_its_runtimes(name: str) -> None:
    assert runtime_of(load(name).launch(Assignment(session="S")).argv) == name


def test_the_pool_of_an_opencode_launch_is_its_models_provider() -> None:
    assert pool_of(load("opencode").launch(Assignment(model="google/gemini-2.5-pro")).argv) == "google"


@example(model="\x7f", session="", args=[])
@given(model=words, session=words, args=st.lists(words | options, max_size=5))
@pytest.mark.parametrize("name", AGENTS)
def test_nothing_that_is_asked_for_gets_lost_or_becomes_an_option(
    name: str, model: str, session: str, args: list[str]
) -> None:
    argv = list(load(name).launch(Assignment(model=model, session=session, args=args)).argv)
    at = next(at for at in range(len(argv) + 1) if argv[at : at + len(args)] == args)
    ours = [*argv[:at], *argv[at + len(args) :]]
    if name == "codex" and session:
        assert ours[-4:] == ["fork", "--", session, "-"]
        ours = ours[:-4]
    assert all(not word.startswith("-") or word.partition("=")[0] in OURS for word in ours)
    said = args[: args.index("--")] if "--" in args else args
    if model and not any(word.startswith(("-m", "--model")) for word in said):
        assert model in [_model(word) for word in ours]


def _model(word: str) -> str | None:
    """The model that a word of a command line names."""
    if word.startswith("model="):
        return str(tomllib.loads(word)["model"])
    return word.removeprefix("--model=") if word.startswith("--model=") else None


# -- what it is told to run, it may run ------------------------------------------------------------------

TOLD = Assignment(commands=("cd web && npm test", "make (all)"), command_beginnings=("git add", "git rebase"))


def test_claude_may_run_exactly_the_commands_it_is_told_to() -> None:
    argv = load("claude").launch(TOLD).argv
    at = argv.index("--allowedTools")
    assert argv[at + 1 : at + 5] == (
        "Bash(git add:*)",
        "Bash(git rebase:*)",
        "Bash(cd web && npm test)",
        r"Bash(make \(all\))",
    )
    assert argv[at + 5].startswith("--"), "an option ends the list"


@pytest.mark.parametrize(
    "own", ["--allowedTools=Bash", "--allowed-tools=Bash", "--dangerously-skip-permissions"]
)
def test_what_a_project_says_of_claudes_tools_wins(own: str) -> None:
    argv = load("claude").launch(replace(TOLD, args=(own,))).argv
    assert [each for each in argv if "git rebase" in each] == []


def test_gemini_may_run_the_parts_of_the_commands_it_is_told_to() -> None:
    argv = load("gemini").launch(TOLD).argv
    allowed = [each.partition("=")[2] for each in argv if each.startswith("--allowed-tools=")]
    names = ("git add", "git rebase", "cd web", "npm test", "make (all)")
    assert allowed == [f"run_shell_command({name})" for name in names]


def test_opencode_may_run_the_commands_it_is_told_to_and_no_others() -> None:
    rules = json.loads(load("opencode").launch(TOLD).env["OPENCODE_PERMISSION"])["bash"]
    assert next(iter(rules.items())) == ("*", "deny"), "the last rule that fits decides"
    allowed = {name for name, rule in rules.items() if rule == "allow"}
    assert {"git add *", "git rebase", "cd web", "npm test", "cd web && npm test"} <= allowed
