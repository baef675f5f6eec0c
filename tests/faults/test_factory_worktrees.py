"""Agents that misuse their worktree: leave their branch, delete it, stop in the middle of a merge."""

from __future__ import annotations

import pytest

from tests.factory.kit import Project

pytestmark = pytest.mark.faults


@pytest.fixture
def project(project: Project) -> Project:
    """Without the fence, which would refuse the most of this: landing must not depend on it."""
    project.configure(guard={"hooks": False})
    project.commit("no fence")
    return project


@pytest.mark.parametrize("made", ["commit", "write"])
def test_an_agent_that_deletes_its_workspace_is_told_from_one_that_did_nothing(
    project: Project, made: str
) -> None:
    project.task("t-1", act=f"import shutil\n{made}('pages/t-1.txt', 'x')\nshutil.rmtree(os.getcwd())")
    ran = project.run()
    assert ran.code == 1
    assert "deleted its workspace" in ran.out
    assert project.leases() == []


def test_a_task_whose_workspace_was_deleted_can_be_done_again(project: Project) -> None:
    project.task("t-1")
    project.act("t-1", "import shutil\nshutil.rmtree(os.getcwd())\nsys.exit(1)", launch=1)
    assert project.run().code == 0
    assert project.wrongs(["t-1"]) == []


@pytest.mark.parametrize("inside", [False, True], ids=["worktrees elsewhere", "worktrees in the project"])
def test_an_agent_that_removes_its_link_to_git_never_makes_us_commit_elsewhere(
    project: Project, inside: bool
) -> None:
    """git looks upwards for a repository: beneath the user's own it would find that one."""
    if inside:
        project.write(".gitignore", "wt/\n")
        project.configure(worktree={"folder": "wt"})
        project.commit("worktrees inside")
    project.task("t-1", act="commit('pages/t-1.txt', 'x')\nos.unlink('.git')\nwrite('pages/u.txt', 'u')")
    before = project.git("rev-parse", "main")
    ran = project.run()
    assert project.git("status", "--porcelain") == "", ran.said
    assert project.git("log", "--format=%an", f"{before}..main").splitlines() in ([], ["Someone"]), ran.said
    assert [words for words in project.wrongs(project.landed()) if "main" in words] == []


SWITCHES = {
    "to a new branch": "git('checkout', '-q', '-b', 'elsewhere')\ncommit('pages/t-1.txt', 'x')",
    "to a detached commit": "git('checkout', '-q', '--detach')\ncommit('pages/t-1.txt', 'x')",
    "with uncommitted work": "git('checkout', '-q', '-b', 'elsewhere')\nwrite('pages/t-1.txt', 'x')",
    "detached, uncommitted": "git('checkout', '-q', '--detach')\nwrite('pages/t-1.txt', 'x')",
    "after committing": "commit('pages/t-1.txt', 'x')\ngit('checkout', '-q', '-b', 'elsewhere')",
    "and deletes its own": "git('checkout', '-q', '-b', 'elsewhere')\ngit('branch', '-qD', f'agent/{task}')\n"
    "commit('pages/t-1.txt', 'x')",
}


@pytest.mark.parametrize("script", SWITCHES.values(), ids=SWITCHES.keys())
def test_work_that_an_agent_did_on_another_branch_lands(project: Project, script: str) -> None:
    project.task("t-1", act=script)
    ran = project.run()
    assert ran.code == 0, ran.said
    assert "pages/t-1.txt" in project.files()
    assert project.wrongs(["t-1"]) == []


def test_work_on_a_branch_that_does_not_build_on_its_own_is_kept_and_said(project: Project) -> None:
    project.task(
        "t-1",
        act="commit('pages/a.txt', 'a')\n"
        "git('checkout', '-q', '-b', 'elsewhere', 'HEAD~1')\ncommit('pages/b.txt', 'b')",
    )
    ran = project.run()
    assert ran.code == 1
    assert "elsewhere" in ran.out
    assert (project.workspace("t-1") / "pages" / "b.txt").exists()
    assert project.landed() == []


def test_an_agent_that_went_to_the_default_branch_does_not_move_it(project: Project) -> None:
    project.git("checkout", "-q", "-b", "mine")
    project.task("t-1", act="git('checkout', '-q', 'main')\nwrite('pages/t-1.txt', 'bad')")
    before = project.git("rev-parse", "main")
    ran = project.run()
    assert ran.code == 1
    assert project.git("rev-parse", "main") == before


def test_a_merge_left_in_the_middle_is_not_taken_for_finished_work(project: Project) -> None:
    project.write("pages/shared.txt", "old\n")
    project.commit("shared")
    project.task(
        "t-1",
        act="git('checkout', '-qb', 'other')\ncommit('pages/shared.txt', 'one\\n')\n"
        "git('checkout', '-q', f'agent/{task}')\ncommit('pages/shared.txt', 'two\\n')\n"
        "subprocess.run(['git', 'merge', 'other'])",
    )
    ran = project.run()
    assert "<<<<" not in project.git("show", "main:pages/shared.txt"), ran.said


def test_a_lock_left_by_a_killed_git_does_not_end_the_run(project: Project) -> None:
    lock = "Path(git('rev-parse', '--git-path', 'index.lock')).touch()\n"
    project.task("t-1", act=lock + "write('pages/t-1.txt', 'x')")
    ran = project.run()
    assert ran.code == 0, ran.said
    assert project.wrongs(["t-1"]) == []


def test_a_repository_made_inside_the_worktree_does_not_end_the_run(project: Project) -> None:
    project.task("t-1", act="git('init', '-q', 'inner')\nwrite('inner/x', 'x')\nwrite('pages/t-1.txt', 'x')")
    ran = project.run()
    assert ran.code in (0, 1)
    assert project.leases() == []
    assert "Traceback" not in ran.err


def test_a_worktree_with_unlanded_work_is_never_removed(project: Project) -> None:
    project.configure(run={"attempts": 1})
    project.task("t-1", act="write('pages/t-1.txt', 'precious')\nsys.exit(1)")
    assert project.run().code == 1
    assert (project.workspace("t-1") / "pages" / "t-1.txt").read_text() == "precious"
