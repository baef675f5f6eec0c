from __future__ import annotations

import io
import sys
from pathlib import Path

import pytest

from tests.cli.kit import Cli

RECORDINGS = Path(__file__).parents[1] / "runtimes" / "recordings"


def files(name: str) -> list[str]:
    stdout = next(RECORDINGS.glob(f"{name}.stdout.*"))
    return ["--stdout", str(stdout), "--stderr", str(RECORDINGS / f"{name}.stderr.txt")]


def test_a_limited_run_as_json(cli: Cli) -> None:
    done = cli(
        "classify", "--runtime", "claude", *files("claude/tool_then_429"), "--exit-code", "1", "--json"
    )
    assert done.code == 0
    assert done.json | {"detail": "", "reason": ""} == {
        "runtime": "claude",
        "verdict": "limited",
        "signal": "throttled",
        "reason": "",
        "retry_after_s": None,
        "session": "9dfb7734-7226-4f3e-908f-fbf3a25b8a47",
        "tokens": {"input": 2000, "output": 25, "total": 2025},
        "cost_usd": 0.00273,
        "model": "claude-sonnet-5-5",
        "last_activity": "trying again after 429",
        "scope": "input-tokens",
        "detail": "",
        "certainty": "stated",
    }


@pytest.mark.parametrize(
    ("name", "exit_code", "runtime", "verdict"),
    [
        ("claude/ok_tool", 0, "claude", "finished"),
        ("codex/err_usage_limit", 1, "codex", "limited"),
        ("codex/err_credit__format_text", 1, "codex", "limited"),
        ("gemini/err_429__format_json", 173, "gemini", "limited"),
        ("gemini/midstream_overloaded", 0, "gemini", "unknown"),
        ("opencode/err_403", 1, "opencode", "failed"),
        ("opencode/err_429_long__sigint", -2, "command", "killed"),
    ],
)
def test_the_runtime_is_recognised_by_what_it_printed(
    cli: Cli, name: str, exit_code: int, runtime: str, verdict: str
) -> None:
    found = cli("classify", *files(name), f"--exit-code={exit_code}", "--json").json
    assert (found["runtime"], found["verdict"]) == (runtime, verdict)


def test_people_get_two_lines(cli: Cli) -> None:
    out = cli("classify", *files("claude/err_429_then_ok"), "--exit-code", "0").out.splitlines()
    assert out[0] == "claude: finished: it said it is done"
    assert "2,000 tokens in, 25 out" in out[1]


def test_a_wait_counts_from_when_the_file_was_written(cli: Cli, tmp_path: Path) -> None:
    old = tmp_path / "old.jsonl"
    old.write_bytes(next(RECORDINGS.glob("claude/err_429_ra45__default.stdout.*")).read_bytes())
    found = cli("classify", "--stdout", str(old), "--json").json
    assert found["verdict"] == "unknown"


def test_the_output_may_come_from_a_pipe(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    data = next(RECORDINGS.glob("codex/err_429.stdout.*")).read_bytes()
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(data)))
    found = cli("classify", "--stdout", "-", "--exit-code", "1", "--json").json
    assert (found["runtime"], found["verdict"]) == ("codex", "limited")


@pytest.mark.parametrize("place", ["nowhere.jsonl", "."])
def test_a_file_that_cannot_be_read_is_named(cli: Cli, place: str, tmp_path: Path) -> None:
    done = cli("classify", "--stdout", str(tmp_path / place))
    assert done.code == 2
    assert f"cannot read {tmp_path / place}" in done.err


def test_nothing_is_made_in_the_home(cli: Cli) -> None:
    cli("classify", *files("claude/ok_text"))
    assert not cli.home.exists()


def test_the_help_shows_an_example(cli: Cli) -> None:
    assert "flyball classify --stdout run.jsonl" in cli("classify", "--help").out
