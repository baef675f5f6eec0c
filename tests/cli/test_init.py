"""``flyball init``: shown first, written when asked."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.cli.kit import Cli


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    root = tmp_path / "blog"
    root.mkdir()
    subprocess.run(["git", "init", "-q"], cwd=root, check=True)
    monkeypatch.chdir(root)
    return root


def test_outside_a_repository_it_is_wrong_usage(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    result = cli("init")
    assert result.code == 2
    assert "git init" in result.err


def test_an_unknown_runtime_is_wrong_usage(cli: Cli, repository: Path) -> None:
    assert cli("init", "--runtime", "gpt").code == 2


def test_without_write_every_file_is_shown_and_none_is_made(cli: Cli, repository: Path) -> None:
    result = cli("init", "--id", "shop", "--runtime", "codex")
    assert result.code == 0
    assert 'id = "shop"' in result.out
    assert "tasks/README.md" in result.out
    assert "Nothing was written. To write: flyball init --id shop --runtime codex --write" in result.out
    assert [file.name for file in repository.iterdir()] == [".git"]


def test_with_write_it_says_what_it_wrote_and_what_comes_next(cli: Cli, repository: Path) -> None:
    result = cli("init", "--write")
    assert result.out.startswith("wrote flyball.toml\nwrote tasks/README.md\n")
    assert "next: " in result.out
    assert (repository / "flyball.toml").is_file()


def test_a_second_time_nothing_is_missing(cli: Cli, repository: Path) -> None:
    cli("init", "--write")
    for words in (["init"], ["init", "--write"]):
        result = cli(*words)
        assert "flyball.toml is there and stays as it is" in result.out
        assert result.out.endswith("Nothing is missing.\n")


def test_as_json_the_files_come_with_their_content(cli: Cli, repository: Path) -> None:
    shown = cli("init", "--json").json
    assert shown["dry_run"] is True
    assert [file["path"] for file in shown["files"]] == ["flyball.toml", "tasks/README.md"]
    assert shown["written"] == []
    written = cli("init", "--write", "--json").json
    assert written["written"] == ["flyball.toml", "tasks/README.md"]
    assert written["files"][0]["content"] == (repository / "flyball.toml").read_text("utf-8")
