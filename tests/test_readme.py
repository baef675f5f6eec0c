"""What the README says is true: its examples run, its commands parse, its figures are the committed ones."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from bench import service, startup
from bench.__main__ import OWN_RESULTS, RESULTS
from bench.quote import RUNBOOK, quoted, runbook, table
from flyball.cli.main import load_verb, verb_parser
from tests.cases import every

REPOSITORY = Path(__file__).parents[1]
README = (REPOSITORY / "README.md").read_text(encoding="utf-8")


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", README, flags=re.DOTALL)


@pytest.mark.parametrize("code", blocks("python"))
def test_the_examples_run(
    code: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("FLYBALL_HOME", str(tmp_path))
    exec(compile(code, "README.md", "exec"), {})
    for expected in re.findall(r"print\(.*# (.+)", code):
        assert expected in capsys.readouterr().out


def test_the_examples_leave_only_a_pool_of_their_own(tmp_path: Path) -> None:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("FLYBALL_")}
    env = {**kept, "HOME": str(tmp_path)}
    for code in blocks("python"):
        subprocess.run([sys.executable, "-c", code], env=env, check=True, capture_output=True)
    look = [sys.executable, "-m", "flyball", "status", "--json"]
    shown = json.loads(subprocess.run(look, env=env, check=True, capture_output=True).stdout)
    assert [pool["name"] for pool in shown["pools"]] == ["demo"]


@every("line", [line for block in blocks("sh") for line in block.splitlines() if line.startswith("flyball ")])
def test_the_commands_parse(line: str) -> None:
    words = shlex.split(line, comments=True)[1:]
    verb_parser(words[0], load_verb(words[0])).parse_args(words[1:])


def test_a_working_example_comes_within_thirty_lines() -> None:
    first = README.index("```python")
    assert README[:first].count("\n") < 30


def test_the_figures_are_those_of_the_committed_results() -> None:
    records = [json.loads(path.read_text(encoding="utf-8")) for path in (RESULTS, OWN_RESULTS[startup.NAME])]
    assert quoted(README) == table(*records)


SERVICE = OWN_RESULTS[service.NAME]


@pytest.mark.skipif(not SERVICE.exists(), reason="make bench has not measured the service yet")
def test_the_runbook_is_that_of_the_committed_results() -> None:
    assert quoted(RUNBOOK.read_text(encoding="utf-8")) == runbook(json.loads(SERVICE.read_text("utf-8")))


WRITTEN = ("*.md", "docs/**/*.md", "bench/**/*.md")
"""Where our pages are. Whatever was installed beside them brings pages of its own."""


@every(
    "page",
    sorted(path.relative_to(REPOSITORY) for folder in WRITTEN for path in REPOSITORY.glob(folder)),
)
def test_links_lead_somewhere(page: Path) -> None:
    text = (REPOSITORY / page).read_text(encoding="utf-8")
    for target in re.findall(r"\]\((?!https?:)([^)#]+)", text):
        assert (REPOSITORY / page).parent.joinpath(target).exists(), target
