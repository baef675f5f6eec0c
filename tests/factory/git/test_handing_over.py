"""What an agent made comes over as checked data, whatever the agent did to its own repository."""

from __future__ import annotations

import os
import zlib
from pathlib import Path

import pytest

from flyball.errors import GitError
from flyball.factory.git.git import Git
from flyball.factory.git.repository import Repository
from flyball.factory.git.workspace import Workspace, Workspaces, open_to_all
from flyball.factory.guards.sandbox import SandboxedCommands, sandbox_problem
from tests.factory.kit import Project

WALLS = [
    "none",
    pytest.param("bwrap", marks=pytest.mark.skipif(bool(sandbox_problem()), reason=sandbox_problem())),
]


@pytest.fixture(params=WALLS)
def made(project: Project, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> Workspaces:
    monkeypatch.setenv("HOME", project.env["HOME"])
    project.write("lib/x", "one\n")
    project.commit("x")
    repository = Repository(project.root)
    wall = SandboxedCommands(objects=repository.common, home=project.home)
    return Workspaces(
        repository=repository,
        folder=project.home / "worktrees" / "blog",
        enclose=wall.of_git if request.param == "bwrap" else open_to_all,
    )


@pytest.fixture
def tree(made: Workspaces) -> Workspace:
    return made.ensure("t-1")


def gather(made: Workspaces) -> bool:
    return made.gather("t-1", "Do it", base=made.repository.base(), commit=True)


def commit(tree: Workspace, name: str, text: str = "x") -> str:
    (tree.path / name).write_text(text)
    git = Git(tree.path)
    git("add", "--all")
    git("commit", "--quiet", "--message", name)
    return git("rev-parse", "HEAD")


def test_commits_and_what_is_uncommitted_come_over(made: Workspaces, tree: Workspace) -> None:
    first = commit(tree, "page")
    (tree.path / "draft").write_text("half")
    assert gather(made)
    tip = made.repository.tip("agent/t-1")
    assert made.repository.git("rev-parse", f"{tip}^") == first
    assert made.repository.git("show", f"{tip}:draft") == "half"
    assert made.repository.git("for-each-ref", "--format=%(refname)").split() == [
        "refs/heads/agent/t-1",
        "refs/heads/main",
    ]


def test_no_ref_setting_or_object_of_the_users_is_within_reach(made: Workspaces, tree: Workspace) -> None:
    def standing() -> tuple[list[str], bytes]:
        refs = made.repository.git("for-each-ref").splitlines()
        settings = (made.repository.common / "config").read_bytes()
        return [ref for ref in refs if not ref.endswith("refs/heads/agent/t-1")], settings

    before = standing()
    git = Git(tree.path)
    for words in (
        ["update-ref", "refs/heads/main", commit(tree, "page")],
        ["symbolic-ref", "refs/heads/agent/t-1", "refs/heads/main"],
        ["config", "filter.x.clean", "false"],
        ["tag", "v9"],
        ["branch", "agent/t-2"],
    ):
        git(*words)
    commit(tree, "more")
    assert gather(made)
    assert standing() == before


@pytest.mark.parametrize("where", ["config", "commondir", "config.worktree"])
def test_no_program_that_its_settings_name_is_run(
    made: Workspaces, tree: Workspace, tmp_path: Path, where: str
) -> None:
    state, ran = tree.path / ".git", tmp_path / "ran"
    settings = f'[core]\n\tfsmonitor = "touch {ran}; false"\n[filter "x"]\n\tclean = "touch {ran}; cat"\n'
    settings += f"\thooksPath = {tmp_path}\n[extensions]\n\tworktreeConfig = true\n"
    (state / "info").mkdir(exist_ok=True)
    (state / "info/attributes").write_text("* filter=x\n")
    if where == "commondir":
        other = tree.path / "other"
        other.mkdir()
        (other / "config").write_text(settings)
        (state / "commondir").write_text(f"{other}\n")
    else:
        (state / where).write_text((state / "config").read_text() + settings)
    (tree.path / "page").write_text("x")
    assert gather(made)
    assert not ran.exists()
    assert made.repository.git("show", "agent/t-1:page") == "x"


@pytest.mark.parametrize("name", ["", "HEAD", "refs", "rebase-merge/head-name", "logs/HEAD"])
def test_a_link_in_its_git_folder_is_refused_by_name(
    made: Workspaces, tree: Workspace, tmp_path: Path, name: str
) -> None:
    commit(tree, "page")
    path = tree.path / ".git" / name if name else tree.path / ".git"
    path.parent.mkdir(exist_ok=True)
    if os.path.lexists(path):
        path.rename(tmp_path / "elsewhere")
    path.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(GitError, match="is not what git makes there"):
        gather(made)
    assert made.repository.tip("agent/t-1") == made.repository.base()


def test_a_pipe_in_its_git_folder_hangs_nothing(made: Workspaces, tree: Workspace) -> None:
    (tree.path / ".git/rebase-merge").mkdir()
    os.mkfifo(tree.path / ".git/rebase-merge/head-name")
    with pytest.raises(GitError, match="is not what git makes there"):
        gather(made)


def test_an_object_that_is_not_what_its_name_says_does_not_come_over(
    made: Workspaces, tree: Workspace
) -> None:
    commit(tree, "page", "honest\n")
    blob = Git(tree.path)("rev-parse", "HEAD:page")
    loose = tree.path / ".git/objects" / blob[:2] / blob[2:]
    loose.chmod(0o600)
    loose.write_bytes(zlib.compress(b"blob 7\0hostile"))
    with pytest.raises(GitError):
        gather(made)
    assert made.repository.tip("agent/t-1") == made.repository.base()
    assert made.repository.commit(blob) is None


def test_a_tree_that_would_write_into_a_git_folder_does_not_come_over(
    made: Workspaces, tree: Workspace
) -> None:
    git = Git(tree.path)
    blob = git("hash-object", "-w", "--stdin", stdin=b"[core]\n")
    inner = git("mktree", stdin=f"100644 blob {blob}\tconfig\n".encode())
    outer = git("mktree", stdin=f"040000 tree {inner}\t.git\n".encode())
    made_commit = git("commit-tree", outer, "-p", "HEAD", "-m", "hostile")
    git("update-ref", "refs/heads/agent/t-1", made_commit)
    with pytest.raises(GitError):
        made.take_in("t-1")
    assert made.repository.tip("agent/t-1") == made.repository.base()


def test_the_workspace_follows_what_a_person_committed_to_the_branch(
    made: Workspaces, tree: Workspace, project: Project
) -> None:
    commit(tree, "page")
    gather(made)
    project.git("checkout", "--quiet", "agent/t-1")
    project.write("mine", "a person's")
    project.git("add", "mine")
    project.git("commit", "--quiet", "--message", "mine")
    project.git("checkout", "--quiet", "main")
    made.ensure("t-1")
    assert (tree.path / "mine").read_text() == "a person's"
    commit(tree, "more")
    assert gather(made)
    assert {"mine", "page", "more"} <= set(made.repository.git("ls-tree", "--name-only", "agent/t-1").split())


def test_where_a_person_and_the_agent_both_went_on_nothing_is_lost(
    made: Workspaces, tree: Workspace, project: Project
) -> None:
    commit(tree, "page")
    gather(made)
    project.git("checkout", "--quiet", "agent/t-1")
    project.write("mine", "a person's")
    project.git("add", "mine")
    project.git("commit", "--quiet", "--message", "mine")
    tip = project.git("rev-parse", "HEAD")
    project.git("checkout", "--quiet", "main")
    own = commit(tree, "more")
    with pytest.raises(GitError, match="has moved both in"):
        gather(made)
    assert made.repository.tip("agent/t-1") == tip
    assert Git(tree.path)("rev-parse", "HEAD") == own


def test_a_branch_that_a_person_has_checked_out_is_not_moved_under_them(
    made: Workspaces, tree: Workspace, project: Project
) -> None:
    project.git("checkout", "--quiet", "agent/t-1")
    commit(tree, "page")
    with pytest.raises(GitError, match="is checked out in"):
        gather(made)
    project.git("checkout", "--quiet", "main")
    assert gather(made)


def test_settings_with_a_login_in_them_stay_with_the_user(made: Workspaces, project: Project) -> None:
    project.git("config", "remote.origin.url", "https://ann:secret@example.org/blog.git")
    project.git("config", "http.extraHeader", "Authorization: secret")
    project.git("config", "core.autocrlf", "input")
    settings = (made.ensure("t-2").path / ".git/config").read_text()
    assert "secret" not in settings
    assert "autocrlf" in settings


def test_objects_are_borrowed_and_not_copied(made: Workspaces, tree: Workspace) -> None:
    assert [path for path in (tree.path / ".git/objects").rglob("*") if path.is_file()] == [
        tree.path / ".git/objects/info/alternates"
    ]
    assert Git(tree.path)("log", "--oneline", "main")
