"""The usage windows of an account, over processes: one agent measures, all others keep to it."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

import flyball
from flyball.core.pool.verdict import Reason
from flyball.errors import PoolClosedError
from flyball.governor.account_windows import AccountWindowStatus, account_windows
from flyball.governor.internals import internals

RECORDING = (
    Path(__file__).parents[1] / "runtimes" / "recordings" / "claude" / "ok_near_limit__oauth.stdout.jsonl"
)
FLYBALL = [sys.executable, "-m", "flyball"]


class Claude:
    """A ``claude`` on the PATH that prints what it did once, as if it were now."""

    def __init__(self, folder: Path) -> None:
        self._prints = folder / "prints"
        script = folder / "claude"
        script.write_text(f"#!/bin/sh\ncat > {folder}/stdin\ncat {self._prints}\n")
        script.chmod(0o755)

    def will_have_used(self, part: float, *, resets_in_s: float = 4200.0) -> None:
        """Of its five hours, with 40 % of the seven days."""
        text = RECORDING.read_text().replace("0.92", str(part))
        first = min(int(number) for number in re.findall(r'"resetsAt":(\d+)', text))
        ahead = int(time.time() + resets_in_s) - first
        self._prints.write_text(
            re.sub(r'"resetsAt":(\d+)', lambda m: f'"resetsAt":{int(m[1]) + ahead}', text)
        )


@pytest.fixture
def claude(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Claude:
    monkeypatch.delenv("CLAUDE_CONFIG_DIR", raising=False)
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    return Claude(folder)


@pytest.fixture
def repository(tmp_path: Path) -> Callable[[str], Path]:
    def make(name: str) -> Path:
        folder = tmp_path / name
        subprocess.run(["git", "init", "-q", str(folder)], check=True)
        return folder

    return make


def flyball_in(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*FLYBALL, *words], cwd=folder, capture_output=True, text=True, timeout=60, stdin=subprocess.DEVNULL
    )


def claude_in(folder: Path, *options: str) -> subprocess.CompletedProcess[str]:
    command = ["claude", "-p", "x", "--output-format", "stream-json", "--verbose"]
    return flyball_in(folder, "exec", *options, "--", *command)


def windows() -> dict[str, AccountWindowStatus]:
    governor = flyball.Governor()
    snapshot = internals(governor).store.snapshot()
    governor.close()
    return {each.name: each for each in account_windows(snapshot, "default:claude")}


def test_what_one_repository_measures_parks_the_other_until_the_reset(
    claude: Claude, repository: Callable[[str], Path]
) -> None:
    blog, shop = repository("blog"), repository("shop")
    flyball_in(blog, "pool", "set", "anthropic", "--usage-drain", "90%")
    claude.will_have_used(0.92)
    first = claude_in(blog)
    assert first.returncode == 0
    assert "default:claude: 92 % of 5h used, resets in 70 min (reported " in first.stderr
    assert (windows()["5h"].used, windows()["7d"].used) == (0.92, 0.4)

    second = claude_in(shop, "--wait", "0.2s")
    assert second.returncode == 75
    assert "nothing starts for 70 min: 5h window 92 % used (reported)" in second.stderr
    assert "flyball pool set anthropic --usage-drain 0 lets all start" in second.stderr

    flyball_in(shop, "pool", "set", "anthropic", "--usage-drain", "0")
    claude.will_have_used(0.5)
    assert claude_in(shop).returncode == 0


def test_the_end_of_the_window_is_the_persons(claude: Claude, repository: Callable[[str], Path]) -> None:
    blog = repository("blog")
    flyball_in(blog, "pool", "set", "anthropic", "--usage-keep", "20%")
    claude.will_have_used(0.92)
    claude_in(blog)
    governor = flyball.Governor()
    with pytest.raises(PoolClosedError) as refused:
        governor.acquire_nowait("anthropic")
    assert refused.value.reason == Reason.USED_UP_SOON.value
    assert refused.value.retry_after_s is not None
    assert 4000 < refused.value.retry_after_s <= 4200
    governor.acquire_nowait("anthropic", priority=1).release()
    governor.close()


def test_status_and_why_say_how_full_the_account_is(
    claude: Claude, repository: Callable[[str], Path]
) -> None:
    blog = repository("blog")
    flyball_in(blog, "pool", "set", "anthropic", "--usage-drain", "90%")
    claude.will_have_used(0.92)
    claude_in(blog)
    shown = flyball_in(blog, "status").stdout
    assert re.search(r"default:claude: 92 % of 5h used, resets in 70 min \(reported \d+ s ago\)", shown)
    assert re.search(r"account +default:claude: 40 % of 7d used", shown)
    (pool,) = json.loads(flyball_in(blog, "status", "--json").stdout)["pools"]
    assert {each["name"]: each["used"] for each in pool["usage_windows"]} == {"5h": 0.92, "7d": 0.4}
    waiting = subprocess.Popen([*FLYBALL, "exec", "--name", "t-1", "--quiet", "--", "true"], cwd=blog)
    try:
        end = time.monotonic() + 60
        while "waits in anthropic" not in (told := flyball_in(blog, "why", "t-1").stdout):
            assert time.monotonic() < end
        assert "nothing starts for 70 min: 5h window 92 % used" in told
    finally:
        waiting.kill()
        waiting.wait()


def test_an_account_of_another_folder_is_told_apart(
    claude: Claude, repository: Callable[[str], Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CLAUDE_CONFIG_DIR", str(tmp_path / "work-login"))
    claude.will_have_used(0.92)
    assert "claude:work-login: 92 % of 5h used" in claude_in(repository("blog")).stderr
    assert windows() == {}


def test_with_json_the_warning_is_a_record(claude: Claude, repository: Callable[[str], Path]) -> None:
    claude.will_have_used(0.92)
    said = [json.loads(line) for line in claude_in(repository("blog"), "--json").stderr.splitlines()]
    (warning,) = [record for record in said if "window" in record]
    assert (warning["window"], warning["account"], warning["used"]) == ("5h", "default:claude", 0.92)


def test_two_pools_of_one_account_know_the_same(claude: Claude, repository: Callable[[str], Path]) -> None:
    blog = repository("blog")
    flyball_in(blog, "pool", "set", "night", "--usage-drain", "90%")
    claude.will_have_used(0.5)
    claude_in(blog, "--pool", "night")
    claude.will_have_used(0.92)
    claude_in(blog)
    assert claude_in(blog, "--pool", "night", "--no-wait").returncode == 75


def test_what_is_not_nearly_full_is_not_said_and_quiet_says_nothing(
    claude: Claude, repository: Callable[[str], Path]
) -> None:
    blog = repository("blog")
    claude.will_have_used(0.79)
    assert "used" not in claude_in(blog).stderr
    claude.will_have_used(0.92)
    assert claude_in(blog, "--quiet").stderr == ""
    flyball_in(blog, "pool", "set", "anthropic", "--usage-warn", "0")
    assert "used" not in claude_in(blog).stderr
