"""An agent that holds one slot and cannot be looked into is told how many subagents it may have."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from flyball.cli.main import main
from flyball.governor.governor import Governor
from flyball.hooks.native_limit import AT_ONCE, DEPTH

Told = Callable[..., dict[str, str]]


@pytest.fixture
def told(person: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Told:
    """What a claude of ours that only prints its environment was told, under ``flyball exec``."""
    program = tmp_path / "bin" / "claude"
    program.parent.mkdir()
    program.write_text("#!/bin/sh\nenv\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")
    for name in (AT_ONCE, DEPTH, "ANTHROPIC_API_KEY", "CLAUDE_CODE_OAUTH_TOKEN"):
        monkeypatch.delenv(name, raising=False)

    def run(*options: str, **env: str) -> dict[str, str]:
        done = subprocess.run(
            [sys.executable, "-m", "flyball", "exec", *options, "--", "claude", "-p", "x"],
            env={**os.environ, **env},
            capture_output=True,
            text=True,
            timeout=60,
        )
        assert done.returncode == 0, done.stderr
        lines = dict(line.split("=", 1) for line in done.stdout.splitlines() if "=" in line)
        return {name: lines[name] for name in (AT_ONCE, DEPTH) if name in lines}

    return run


@pytest.mark.parametrize("options", [(), ("--replace",)], ids=["read", "replace"])
def test_two_at_once_and_none_below_these_unless_the_pool_says_more(
    options: tuple[str, ...], told: Told
) -> None:
    assert told(*options) == {AT_ONCE: "2", DEPTH: "1"}
    Governor().set_pool("anthropic", subagents=5)
    assert told(*options) == {AT_ONCE: "5", DEPTH: "1"}


def test_what_a_person_has_set_stays(told: Told) -> None:
    assert told(**{AT_ONCE: "9"}) == {AT_ONCE: "9", DEPTH: "1"}


def test_where_hooks_count_its_subagents_the_pool_bounds_them_and_nothing_else(told: Told) -> None:
    assert main(["hooks", "install", "claude"]) == 0
    assert told() == {}
    assert told(FLYBALL_HOOKS="off") == {AT_ONCE: "2", DEPTH: "1"}


def test_where_the_gateway_counts_its_calls_it_is_not_bounded(told: Told) -> None:
    assert told(ANTHROPIC_API_KEY="k") == {}
