"""Where a project is, seen from inside it."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from flyball.errors import UsageError
from flyball.factory.project.paths import find_root


def git(*words: str, where: Path) -> None:
    named = ["-c", "user.name=t", "-c", "user.email=t@example.org"]
    subprocess.run(["git", *named, *words], cwd=where, check=True, capture_output=True)


@pytest.fixture
def project(tmp_path: Path) -> Path:
    root = tmp_path / "blög"
    root.mkdir()
    git("init", "-q", where=root)
    (root / "flyball.toml").write_text('[project]\nid = "blog"\n', encoding="utf-8")
    (root / "src").mkdir()
    (root / "src" / "a.py").touch()
    return root


def commit(root: Path) -> None:
    git("add", "-A", where=root)
    git("commit", "-q", "-m", "first", where=root)


def test_nowhere_is_said_with_the_way_out(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="flyball init"):
        find_root(tmp_path)


def test_a_folder_that_does_not_exist_is_in_no_project(tmp_path: Path) -> None:
    with pytest.raises(UsageError):
        find_root(tmp_path / "gone" / "deeper")


def test_a_worktree_whose_repository_is_gone_is_a_project_of_its_own(project: Path, tmp_path: Path) -> None:
    commit(project)
    git("worktree", "add", "-q", str(tmp_path / "wt"), where=project)
    project.rename(tmp_path / "moved")
    assert find_root(tmp_path / "wt" / "src") == tmp_path / "wt"


def test_it_is_the_nearest_folder_upwards(project: Path) -> None:
    assert find_root(project / "src") == find_root(project) == project


def test_a_project_inside_a_repository_is_nearer_than_the_repositorys(project: Path) -> None:
    inner = project / "packages" / "web"
    inner.mkdir(parents=True)
    (inner / "flyball.toml").touch()
    assert find_root(inner) == inner


def test_from_a_linked_worktree_it_is_the_main_one(project: Path, tmp_path: Path) -> None:
    commit(project)
    git("worktree", "add", "-q", str(tmp_path / "t-1"), where=project)
    assert find_root(tmp_path / "t-1" / "src") == project


def test_from_a_worktree_inside_the_project_it_is_the_main_one(project: Path) -> None:
    commit(project)
    git("worktree", "add", "-q", str(project / ".worktrees" / "t-1"), where=project)
    assert find_root(project / ".worktrees" / "t-1" / "src") == project


def test_a_flyball_toml_that_git_does_not_track_is_found_from_a_worktree_too(
    project: Path, tmp_path: Path
) -> None:
    git("add", "src", where=project)
    git("commit", "-q", "-m", "first", where=project)
    git("worktree", "add", "-q", str(tmp_path / "t-1"), where=project)
    assert not (tmp_path / "t-1" / "flyball.toml").exists()
    assert find_root(tmp_path / "t-1" / "src") == project


def test_the_nearest_one_also_counts_in_the_main_worktree(project: Path, tmp_path: Path) -> None:
    inner = project / "packages" / "web"
    inner.mkdir(parents=True)
    (inner / "flyball.toml").touch()
    commit(project)
    git("worktree", "add", "-q", str(tmp_path / "t-1"), where=project)
    assert find_root(tmp_path / "t-1" / "packages" / "web") == inner


def test_a_worktree_of_a_bare_repository_is_the_project_itself(project: Path, tmp_path: Path) -> None:
    commit(project)
    git("clone", "-q", "--bare", str(project), str(tmp_path / "bare.git"), where=tmp_path)
    git("worktree", "add", "-q", str(tmp_path / "wt"), where=tmp_path / "bare.git")
    assert find_root(tmp_path / "wt" / "src") == tmp_path / "wt"
