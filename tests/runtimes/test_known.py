"""Telling runtimes apart by the command line, and going on with a session."""

from __future__ import annotations

import subprocess
import sys

import pytest

from flyball.errors import UsageError
from flyball.runtimes.registry import load, pool_of, runtime_of
from tests.cases import every


@every(
    "command, runtime",
    [
        ("claude -p x", "claude"),
        ("/opt/homebrew/bin/claude", "claude"),
        ("env A=1 B=2 claude -p x", "claude"),
        ("env -u HOME claude", "claude"),
        ("nice -n 5 codex exec x", "codex"),
        ("timeout -k 5 600 codex exec x", "codex"),
        ("npx @anthropic-ai/claude-code -p x", "claude"),
        ("npx -y @openai/codex@latest exec x", "codex"),
        ("npx --package @google/gemini-cli gemini -p x", "gemini"),
        ("pnpm dlx opencode-ai run x", "opencode"),
        ("npm exec -- @google/gemini-cli -p x", "gemini"),
        ("node --no-warnings /usr/lib/node_modules/@google/gemini-cli/dist/index.js -p x", "gemini"),
        ("direnv exec . opencode run x", "opencode"),
        ("nohup setsid gemini -p x", "gemini"),
        ("sh -c claude", "command"),
        ("grep claude notes.txt", "command"),
        ("node build.js", "command"),
        ("python3 codex.py", "command"),
        ("env", "command"),
        ("", "command"),
    ],
)
def test_the_runtime_is_recognised_through_what_launches_it(command: str, runtime: str) -> None:
    assert runtime_of(command.split()) == runtime


@every(
    "command, pool",
    [
        ("claude", "anthropic"),
        ("npx @openai/codex", "openai"),
        ("gemini", "google"),
        ("opencode run --model google/gemini-2.5-pro x", "google"),
        ("opencode run --model=openai/gpt-5.5 x", "openai"),
        ("opencode run x", "anthropic"),
        ("make", "anthropic"),
    ],
)
def test_a_command_lines_pool_is_its_runtimes(command: str, pool: str) -> None:
    assert pool_of(command.split()) == pool


@every(
    "argv, resumed",
    [
        (
            ["claude", "-p", "fix it", "--output-format", "stream-json", "--verbose"],
            ["claude", "-p", "Continue.", "--output-format", "stream-json", "--verbose", "--resume", "S"],
        ),
        (
            ["npx", "-y", "@anthropic-ai/claude-code", "-p", "--model", "sonnet", "fix it"],
            [
                "npx",
                "-y",
                "@anthropic-ai/claude-code",
                "-p",
                "--model",
                "sonnet",
                "Continue.",
                "--resume",
                "S",
            ],
        ),
        (
            ["claude", "-p", "fix it", "--session-id", "A", "--allowedTools", "Bash", "Edit"],
            ["claude", "-p", "Continue.", "--allowedTools", "Bash", "Edit", "--resume", "S"],
        ),
        (["claude", "-p"], ["claude", "-p", "-p", "Continue.", "--resume", "S"]),
        (["claude", "-p", "go on", "--resume", "A"], ["claude", "-p", "Continue.", "--resume", "S"]),
        (
            ["codex", "exec", "--json", "-m", "gpt-5.5", "fix it"],
            ["codex", "exec", "resume", "--json", "-m", "gpt-5.5", "S", "Continue."],
        ),
        (
            ["codex", "-c", "a=1", "exec", "resume", "A", "go on"],
            ["codex", "-c", "a=1", "exec", "resume", "S", "Continue."],
        ),
        (["codex", "login"], ["codex", "login"]),
        (["gemini", "-p", "fix it", "-m", "x"], ["gemini", "-p", "fix it", "-m", "x", "--resume", "S"]),
        (
            ["opencode", "run", "--format", "json", "fix", "it", "-f", "a.txt", "b.txt"],
            ["opencode", "run", "Continue.", "--session", "S", "--format", "json", "-f", "a.txt", "b.txt"],
        ),
        (["make", "test"], ["make", "test"]),
    ],
)
def test_the_command_line_that_goes_on_with_a_session(argv: list[str], resumed: list[str]) -> None:
    assert load(runtime_of(argv)).resuming(argv, "S") == resumed


def test_an_unknown_runtime_is_refused_with_those_there_are() -> None:
    with pytest.raises(UsageError, match="there are claude, codex, gemini, opencode, command"):
        load("copilot")


def test_recognising_a_command_line_loads_no_reader() -> None:
    code = (
        "import sys; from flyball.runtimes.registry import runtime_of; runtime_of(['claude']); "
        "heavy = ('msgspec', 'flyball.runtimes.claude', 'flyball.runtimes.port'); "
        "print([m for m in heavy if m in sys.modules])"
    )
    printed = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert printed.stdout.strip() == "[]"
