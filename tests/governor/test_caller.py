"""Who is asking, when nobody said."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from flyball import Governor
from flyball.core.settings import check_name
from flyball.governor.caller import default_name, default_project


def _git(*words: str, where: Path) -> None:
    named = ["-c", "user.name=t", "-c", "user.email=t@example.org"]
    subprocess.run(["git", *named, *words], cwd=where, check=True, capture_output=True)


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    folder = tmp_path / "blog"
    folder.mkdir()
    _git("init", "-q", where=folder)
    _git("commit", "-q", "--allow-empty", "-m", "first", where=folder)
    return folder


def test_the_project_is_the_repository_around_the_folder(repository: Path) -> None:
    deep = repository / "src" / "deep"
    deep.mkdir(parents=True)
    assert default_project(deep) == default_project(repository) == "blog"


def test_a_worktree_counts_as_its_repository(repository: Path, tmp_path: Path) -> None:
    _git("worktree", "add", "-q", str(tmp_path / "agent-t-14"), where=repository)
    assert default_project(tmp_path / "agent-t-14") == "blog"


def test_a_worktree_inside_its_repository_with_a_relative_pointer_does_too(repository: Path) -> None:
    worktree = repository / "wt"
    worktree.mkdir()
    (worktree / ".git").write_text("gitdir: ../.git/worktrees/wt\n")
    assert default_project(worktree) == "blog"


def test_a_submodule_is_a_project_of_its_own(repository: Path) -> None:
    module = repository / "theme"
    module.mkdir()
    (module / ".git").write_text("gitdir: ../.git/modules/theme\n")
    assert default_project(module) == "theme"


def test_without_a_repository_it_is_the_folder(tmp_path: Path) -> None:
    folder = tmp_path / "notes"
    folder.mkdir()
    assert default_project(folder) == "notes"


def test_the_root_has_a_name_too() -> None:
    assert default_project(Path("/")) == "root"


@pytest.mark.parametrize("name", ["münchen 🍺", "with space", "x" * 250, "new\nline"])
def test_whatever_the_folder_is_called_it_can_be_asked_with(tmp_path: Path, name: str) -> None:
    folder = tmp_path / name
    folder.mkdir()
    project = default_project(folder)
    assert check_name("project", project) == project


def test_a_folder_whose_name_is_not_text_can_be_asked_with(tmp_path: Path) -> None:
    folder = os.path.join(os.fsencode(tmp_path), b"caf\xe9")
    os.mkdir(folder)
    project = default_project(Path(os.fsdecode(folder)))
    assert check_name("project", project) == project
    assert project.startswith("caf")


def test_the_name_is_the_program_and_its_pid(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.argv", ["/usr/bin/agent", "--flag"])
    assert default_name() == f"agent-{os.getpid()}"


@pytest.mark.parametrize("argv", [[], [""], ["-c"], ["-m"]])
def test_a_nameless_program_is_python(monkeypatch: pytest.MonkeyPatch, argv: list[str]) -> None:
    monkeypatch.setattr("sys.argv", argv)
    assert default_name() == f"python-{os.getpid()}"


def test_who_says_nothing_asks_with_the_defaults(
    gov: Governor, repository: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(repository)
    with gov.slot() as lease:
        assert (lease.pool, lease.project, lease.name) == ("anthropic", "blog", default_name())


def test_an_empty_pool_is_the_default_pool(gov: Governor) -> None:
    """Seed: "" normalizes to anthropic at every entry point."""
    with gov.slot("") as lease:
        assert lease.pool == "anthropic"
    gov.set_pool("", cap=3)
    gov.demand("", "blog")
    gov.reset_pool("")
    assert [pool.name for pool in gov.status().pools if pool.name in ("", "anthropic")] == ["anthropic"]
