"""``flyball persona``: list, show, install."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.cli.kit import Cli

CONFIG = """\
[project]
id = "blog"
[agent]
runtime = "codex"
[stages.docs]
persona = "scribe"
[review]
on = true
"""


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    root = tmp_path / "blog"
    root.mkdir()
    subprocess.run(["git", "init", "-q", str(root)], check=True)
    (root / "flyball.toml").write_text(CONFIG)
    monkeypatch.chdir(root)
    return root


def test_the_list_says_where_each_is_from_and_what_it_is_for(cli: Cli, root: Path) -> None:
    (root / ".agents/personas").mkdir(parents=True)
    (root / ".agents/personas/scribe.md").write_text("---\ndescription: writes\n---\nYou write.\n")
    found = {each["name"]: each for each in cli("persona", "list", "--json").json["personas"]}
    assert found["scribe"]["where"] == ".agents/personas/scribe.md"
    assert found["scribe"]["used_by"] == ["docs"]
    assert found["reviewer"]["used_by"] == ["review"]
    assert found["docs"]["used_by"] == []
    assert "bundled" in cli("persona", "list").out


def test_show_prints_what_it_is_told(cli: Cli, root: Path) -> None:
    shown = cli("persona", "show", "reviewer")
    assert shown.code == 0
    assert "You review work that another agent did." in shown.out
    missing = cli("persona", "show", "nobody")
    assert missing.code == 2
    assert ".agents/personas/nobody.md" in missing.err


def test_install_shows_first_writes_then_and_keeps_what_was_changed(cli: Cli, root: Path) -> None:
    path = root / ".agents/personas/reviewer.md"
    dry = cli("persona", "install", "reviewer", "--dry-run")
    assert "You review work" in dry.out
    assert "Nothing was written. To write: flyball persona install reviewer" in dry.out
    assert not path.exists()
    assert "wrote .agents/personas/reviewer.md" in cli("persona", "install", "reviewer").out
    assert "is there already" in cli("persona", "install", "reviewer").out
    path.write_text("Mine.")
    assert "was changed and stays" in cli("persona", "install", "reviewer").out
    assert path.read_text() == "Mine."
    forced = cli("persona", "install", "reviewer", "--force", "--json").json
    assert forced["written"] == [".agents/personas/reviewer.md"]
    assert forced["files"][0]["state"] == "changed"
