"""A workspace per task: made, used again, gathered from, removed when nothing in it would be lost."""

from __future__ import annotations

import shutil
import threading
from pathlib import Path

import pytest

from flyball.errors import GitError, UsageError
from flyball.factory.git.git import Git
from flyball.factory.git.repository import Repository
from flyball.factory.git.workspace import DirtyError, Workspaces
from flyball.factory.git.workspace_setup import BootstrapError
from tests.factory.kit import Project


@pytest.fixture
def made(project: Project, monkeypatch: pytest.MonkeyPatch) -> Workspaces:
    monkeypatch.setenv("HOME", project.env["HOME"])
    project.write("lib/x", "one\n")
    project.commit("x")
    return Workspaces(repository=Repository(project.root), folder=project.home / "worktrees" / "blog")


def gather(trees: Workspaces, *, commit: bool = True, base: str = "") -> bool:
    return trees.gather("t-1", "Do it", base=base or trees.repository.base(), commit=commit)


# -- making -----------------------------------------------------------------------------------------------


def test_a_path_that_is_something_else_is_refused_and_kept(made: Workspaces) -> None:
    made.path("t-1").mkdir(parents=True)
    (made.path("t-1") / "precious").write_text("x")
    with pytest.raises(UsageError, match="move it away"):
        made.ensure("t-1")
    assert (made.path("t-1") / "precious").exists()


def test_an_empty_folder_in_its_place_is_used(made: Workspaces) -> None:
    made.path("t-1").mkdir(parents=True)
    assert (made.ensure("t-1").path / "lib/x").exists()


def test_one_that_is_there_is_used_again_as_it_is(made: Workspaces) -> None:
    tree = made.ensure("t-1")
    (tree.path / "draft").write_text("mine")
    again = made.ensure("t-1")
    assert again == tree
    assert (tree.path / "draft").read_text() == "mine"


def test_a_folder_that_was_deleted_is_made_again_with_its_commits(made: Workspaces) -> None:
    tree = made.ensure("t-1")
    (tree.path / "page").write_text("x")
    assert gather(made)
    shutil.rmtree(tree.path)
    assert (made.ensure("t-1").path / "page").exists()


def test_one_that_was_cut_short_while_it_was_made_is_made_anew(made: Workspaces) -> None:
    """What an agent finds there must never be taken for what it did."""
    half = made.folder / ".making-t-1"
    (half / "lib").mkdir(parents=True)
    (half / "lib/stray").touch()
    tree = made.ensure("t-1")
    assert (tree.path / "lib/x").read_text() == "one\n"
    assert not made.uncommitted(tree.path)
    assert not half.exists()
    assert not gather(made)


def test_a_worktree_of_an_earlier_flyball_is_replaced_unless_work_would_be_lost(made: Workspaces) -> None:
    path = made.path("t-1")
    path.parent.mkdir(parents=True)
    made.repository.git("worktree", "add", "--quiet", "-b", "agent/t-1", str(path), "HEAD")
    (path / "draft").write_text("mine")
    with pytest.raises(DirtyError, match="an earlier flyball"):
        made.ensure("t-1")
    Git(path)("add", "--all")
    Git(path)("commit", "--quiet", "--message", "Keep it")
    assert (made.ensure("t-1").path / "draft").read_text() == "mine"
    assert len(made.repository.checkouts()) == 1


def test_a_bootstrap_that_was_cut_short_is_done_again(made: Workspaces, project: Project) -> None:
    once = project.place / "once"
    slow = Workspaces(
        repository=made.repository,
        folder=made.folder,
        bootstrap=[f"test -e {once} || {{ touch {once}; exit 1; }}; touch ready"],
    )
    with pytest.raises(BootstrapError, match="exited with 1"):
        slow.ensure("t-1")
    assert (slow.ensure("t-1").path / "ready").exists()


def test_a_bootstrap_that_takes_too_long_is_said(made: Workspaces) -> None:
    slow = Workspaces(
        repository=made.repository, folder=made.folder, bootstrap=["sleep 60"], bootstrap_timeout_s=0.1
    )
    with pytest.raises(BootstrapError, match=r"took longer than 0.1 s"):
        slow.ensure("t-1")


def test_copied_files_are_brought_in_and_links_are_not_followed(made: Workspaces, project: Project) -> None:
    project.write(".env", "TOKEN=1")
    (project.root / "leak").symlink_to("/etc/passwd")
    copying = Workspaces(
        repository=made.repository, folder=made.folder, copy=[".env", "leak", "missing", "deep/none"]
    )
    tree = copying.ensure("t-1")
    assert (tree.path / ".env").read_text() == "TOKEN=1"
    assert not (tree.path / "leak").exists()


def test_many_made_at_once_all_succeed(made: Workspaces) -> None:
    failed: list[BaseException] = []

    def make(name: str) -> None:
        try:
            made.ensure(name)
            made.remove(name)
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=make, args=(f"t-{n}",)) for n in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failed == []


# -- after an agent ---------------------------------------------------------------------------------------


def test_nothing_done_is_nothing_gathered(made: Workspaces) -> None:
    made.ensure("t-1")
    assert not gather(made)


def test_work_left_uncommitted_is_committed_only_when_that_is_wanted(made: Workspaces) -> None:
    tree = made.ensure("t-1")
    (tree.path / "page").write_text("x")
    assert not gather(made, commit=False)
    assert gather(made)
    assert Git(tree.path)("log", "-1", "--format=%s") == "Do it"


def test_what_was_copied_in_is_not_committed(made: Workspaces, project: Project) -> None:
    project.write("conf/.env", "TOKEN=1")
    copying = Workspaces(repository=made.repository, folder=made.folder, copy=["conf/.env"])
    tree = copying.ensure("t-1")
    (tree.path / "conf" / "page").write_text("x")
    assert gather(copying)
    assert Git(tree.path)("show", "--format=", "--name-only") == "conf/page"
    assert not copying.uncommitted(tree.path)
    copying.remove("t-1")
    assert not tree.path.exists()


def test_a_lock_that_a_killed_git_left_is_removed(made: Workspaces) -> None:
    tree = made.ensure("t-1")
    (tree.path / ".git/index.lock").touch()
    (tree.path / "page").write_text("x")
    assert gather(made)


def test_a_merge_left_in_the_middle_is_not_committed(made: Workspaces) -> None:
    tree = made.ensure("t-1")
    for branch, text in (("side", "two\n"), ("agent/t-1", "three\n")):
        Git(tree.path).run("checkout", "-q", "-B" if branch == "side" else "-q", branch)
        (tree.path / "lib/x").write_text(text)
        Git(tree.path)("commit", "-qam", text)
        if branch == "side":
            Git(tree.path)("checkout", "-q", "agent/t-1")
    assert not Git(tree.path).ok("merge", "side")
    with pytest.raises(GitError, match="in the middle of a merge: lib/x"):
        gather(made)


def in_a_rebase(made: Workspaces, project: Project) -> Path:
    """A worktree that was left in the middle of a rebase that clashes."""
    tree = made.ensure("t-1")
    (tree.path / "lib/x").write_text("agent\n")
    gather(made)
    project.write("lib/x", "person\n")
    project.commit("x")
    assert not Git(tree.path).ok("rebase", made.repository.base())
    return tree.path


def test_a_rebase_left_in_the_middle_is_not_committed(made: Workspaces, project: Project) -> None:
    in_a_rebase(made, project)
    with pytest.raises(GitError, match="in the middle of a"):
        gather(made)


def test_a_rebase_that_was_cut_short_is_undone_before_another_attempt(
    made: Workspaces, project: Project
) -> None:
    path = in_a_rebase(made, project)
    before = made.repository.tip("agent/t-1")
    assert gather(made, commit=False), "a failed agent's commits are still there"
    (path / ".git/index.lock").touch()
    made.ensure("t-1")
    assert Git(path)("symbolic-ref", "--short", "HEAD") == "agent/t-1"
    assert made.repository.tip("agent/t-1") == before
    assert (path / "lib/x").read_text() == "agent\n"


def test_another_branch_is_never_moved_by_us(made: Workspaces) -> None:
    tree = made.ensure("t-1")
    Git(tree.path)("checkout", "-q", "-b", "elsewhere")
    before = Git(tree.path)("rev-parse", "elsewhere")
    (tree.path / "page").write_text("x")
    assert gather(made)
    assert made.repository.tip("elsewhere") is None
    assert Git(tree.path)("rev-parse", "elsewhere") != before
    assert Git(tree.path)("symbolic-ref", "--short", "HEAD") == "agent/t-1"


def test_work_beside_its_own_branch_is_an_error_that_names_both(made: Workspaces) -> None:
    tree = made.ensure("t-1")
    (tree.path / "a").write_text("a")
    assert gather(made)
    Git(tree.path)("checkout", "-q", "-b", "elsewhere", "HEAD~1")
    (tree.path / "b").write_text("b")
    with pytest.raises(GitError, match="elsewhere instead of agent/t-1"):
        gather(made)
    assert (tree.path / "b").exists()


# -- before another attempt -------------------------------------------------------------------------------


def test_a_retry_starts_on_top_of_what_landed_meanwhile(made: Workspaces, project: Project) -> None:
    tree = made.ensure("t-1")
    (tree.path / "page").write_text("x")
    gather(made)
    project.write("lib/y", "new")
    project.commit("y")
    fresh = made.refresh(tree)
    assert (tree.path / "lib/y").exists()
    assert (tree.path / "page").exists()
    assert fresh.base == project.git("rev-parse", "main")


def test_a_retry_that_would_clash_stays_where_it_is(made: Workspaces, project: Project) -> None:
    tree = made.ensure("t-1")
    (tree.path / "lib/x").write_text("agent\n")
    gather(made)
    before = Git(tree.path)("rev-parse", "HEAD")
    project.write("lib/x", "person\n")
    project.commit("x")
    made.refresh(tree)
    assert Git(tree.path)("rev-parse", "HEAD") == before
    assert Git(tree.path)("status", "--porcelain") == ""


def test_a_retry_with_uncommitted_work_keeps_it(made: Workspaces, project: Project) -> None:
    tree = made.ensure("t-1")
    (tree.path / "draft").write_text("half")
    project.write("lib/y", "new")
    project.commit("y")
    made.refresh(tree)
    assert (tree.path / "draft").read_text() == "half"


# -- removing ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("what", ["untracked", "changed", "staged"])
def test_uncommitted_work_is_never_removed(made: Workspaces, what: str) -> None:
    tree = made.ensure("t-1")
    (tree.path / ("draft" if what == "untracked" else "lib/x")).write_text("mine")
    if what == "staged":
        Git(tree.path)("add", "-A")
    with pytest.raises(DirtyError, match="left as it is"):
        made.remove("t-1")
    assert tree.path.exists()


def test_ignored_files_keep_nothing(made: Workspaces, project: Project) -> None:
    project.write(".gitignore", "cache/\n")
    project.commit("ignore")
    tree = made.ensure("t-1")
    (tree.path / "cache").mkdir()
    (tree.path / "cache/x").write_text("x")
    made.remove("t-1")
    assert not tree.path.exists()


def test_removing_what_is_not_there_is_not_an_error(made: Workspaces) -> None:
    made.remove("t-9")
    tree = made.ensure("t-1")
    shutil.rmtree(tree.path)
    made.remove("t-1")
    assert len(made.repository.checkouts()) == 1
