"""Which project is asking, when the caller did not say."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

from flyball import Governor
from flyball.core.pool.settings import check_name
from flyball.governor.ask import default_name, default_project


def _git(*words: str, where: Path) -> None:
    named = ["-c", "user.name=t", "-c", "user.email=t@example.org"]
    subprocess.run(["git", *named, *words], cwd=where, check=True, capture_output=True)


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home of the test's own: this machine's registry must not matter."""
    monkeypatch.setenv("FLYBALL_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


def register(home: Path, project: str, path: Path, **other: object) -> Path:
    """As ``flyball project add`` does, whatever is wrong with it."""
    projects = home / "registry" / "projects"
    projects.mkdir(parents=True, exist_ok=True)
    file = projects / f"{project}.json"
    entry = {"id": project, "path": str(path), "added": "2026-11-15T10:00:00+00:00", **other}
    (projects / "new").write_text(json.dumps(entry), encoding="utf-8")
    return (projects / "new").rename(file)


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    folder = tmp_path / "blog"
    folder.mkdir()
    _git("init", "-q", where=folder)
    _git("commit", "-q", "--allow-empty", "-m", "first", where=folder)
    return folder


@pytest.mark.parametrize(("said", "project"), [(True, "blog"), (False, "root")])
def test_a_caller_in_a_removed_folder_belongs_to_what_it_was_in(
    repository: Path, monkeypatch: pytest.MonkeyPatch, said: bool, project: str
) -> None:
    folder = repository / "build"
    folder.mkdir()
    monkeypatch.chdir(folder)
    folder.rmdir()
    monkeypatch.setenv("PWD", str(folder) if said else "")
    assert default_project() == project


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


def test_a_caller_that_says_nothing_asks_with_the_defaults(
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


# -- registered projects --------------------------------------------------------------------------


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"null", b'{"id": "shop"}', b"\xff", b"[" * 50_000])
def test_an_entry_that_cannot_be_read_names_no_project(repository: Path, home: Path, content: bytes) -> None:
    register(home, "shop", repository).write_bytes(content)
    assert default_project(repository) == "blog"


def test_an_entry_under_another_name_names_no_project(repository: Path, home: Path) -> None:
    register(home, "shop", repository, id="x" * 500)
    assert default_project(repository) == "blog"


@pytest.mark.parametrize("named", ["", "   ", "~no-user-of-this-name/x", "/dev/null"])
def test_a_home_that_cannot_be_used_names_no_project(
    repository: Path, monkeypatch: pytest.MonkeyPatch, named: str
) -> None:
    monkeypatch.setenv("FLYBALL_HOME", named)
    assert default_project(repository) == "blog"


def test_a_registry_that_is_a_file_names_no_project(repository: Path, home: Path) -> None:
    (home / "registry").mkdir(parents=True)
    (home / "registry" / "projects").touch()
    assert default_project(repository) == "blog"


def test_a_registered_project_goes_by_its_id(repository: Path, home: Path) -> None:
    register(home, "shop", repository)
    (repository / "src").mkdir()
    assert default_project(repository / "src") == default_project(repository) == "shop"


def test_of_several_the_innermost_counts(repository: Path, home: Path) -> None:
    inner = repository / "packages" / "web"
    inner.mkdir(parents=True)
    register(home, "everything", repository.parent)
    register(home, "web", inner)
    register(home, "shop", repository)
    assert default_project(inner) == "web"
    assert default_project(repository) == "shop"


def test_a_folder_whose_name_only_begins_like_a_project_is_not_in_it(repository: Path, home: Path) -> None:
    register(home, "shop", repository)
    beside = repository.parent / "blog-old"
    beside.mkdir()
    assert default_project(beside) == "blog-old"


def test_a_linked_worktree_counts_as_the_registered_main_repository(
    repository: Path, home: Path, tmp_path: Path
) -> None:
    _git("worktree", "add", "-q", str(tmp_path / "t-14"), where=repository)
    register(home, "shop", repository)
    register(home, "everything", tmp_path)
    assert default_project(tmp_path / "t-14") == "shop"


def test_a_worktree_of_the_factory_belongs_to_its_project_even_when_an_agent_broke_it(
    repository: Path, home: Path
) -> None:
    register(home, "shop", repository)
    worktree = home / "worktrees" / "shop" / "t-14"
    _git("worktree", "add", "-q", str(worktree), where=repository)
    assert default_project(worktree) == "shop"
    (worktree / ".git").unlink()
    assert default_project(worktree) == "shop"


def test_a_path_through_a_link_is_the_same_place(repository: Path, home: Path, tmp_path: Path) -> None:
    register(home, "shop", repository)
    (tmp_path / "link").symlink_to(repository)
    assert default_project(tmp_path / "link") == "shop"


def test_a_change_of_the_registry_is_noticed(repository: Path, home: Path) -> None:
    assert default_project(repository) == "blog"
    file = register(home, "shop", repository)
    assert default_project(repository) == "shop"
    file.unlink()
    assert default_project(repository) == "blog"


def test_without_a_registry_nothing_else_is_looked_at(
    repository: Path, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []
    monkeypatch.setattr("os.listdir", asked.append)
    monkeypatch.setattr("os.path.realpath", asked.append)
    assert default_project(repository) == "blog"
    assert asked == []
