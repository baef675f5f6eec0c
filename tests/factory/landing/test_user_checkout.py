"""The user's own checkout, while work lands on the branch that it stands on."""

from __future__ import annotations

import os
import shutil
import subprocess

import pytest

from tests.factory.kit import Project


def left_alone(project: Project, said: str) -> bool:
    return f"{project.root} has uncommitted work" in said


EDITS = "write('lib/x', 'landed')"


def test_uncommitted_work_stays_to_the_byte_while_everything_else_follows(project: Project) -> None:
    project.write("lib/x", "committed\n")
    project.commit("x")
    project.task("t-1")
    project.write("lib/x", b"half a thought\r\n\xff")
    project.git("add", "lib/x")
    project.write("lib/x", b"and more\n")
    project.write("loose", "untracked")
    staged = project.git("ls-files", "--stage", "lib/x")
    ran = project.run()
    assert ran.code == 0
    assert not left_alone(project, ran.out)
    assert project.landed() == ["t-1"]
    assert (project.root / "lib/x").read_bytes() == b"and more\n"
    assert project.git("ls-files", "--stage", "lib/x") == staged
    assert (project.root / "loose").read_text() == "untracked"
    assert project.git("status", "--porcelain").split("\n") == ["MM lib/x", "?? loose"]
    project.git("commit", "-q", "-m", "mine")
    assert project.git("show", "--name-only", "--format=", "HEAD") == "lib/x", "no landing is taken back"


def test_work_in_the_very_file_that_landed_is_left_alone_and_that_is_said(project: Project) -> None:
    project.write("lib/x", "committed\n")
    project.commit("x")
    project.task("t-1", act=EDITS)
    project.write("lib/x", b"half a thought\r\n\xff")
    ran = project.run()
    assert ran.code == 0
    assert left_alone(project, ran.out)
    assert "(lib/x)" in ran.out
    assert (project.root / "lib/x").read_bytes() == b"half a thought\r\n\xff"
    assert project.status_of("t-1") == "closed"


def test_a_checkout_that_was_dirty_follows_once_it_is_clean(project: Project) -> None:
    project.write("lib/x", "committed\n")
    project.commit("x")
    project.task("t-1", act=EDITS)
    project.write("lib/x", "dirty")
    project.run()
    project.git("restore", "lib/x")
    assert project.run().code == 0
    assert (project.root / "lib/x").read_text() == "landed"
    assert project.git("status", "--porcelain") == ""


def test_a_checkout_that_stays_dirty_through_two_landings_follows_both(project: Project) -> None:
    project.write("lib/x", "committed\n")
    project.commit("x")
    project.task("t-1", act=EDITS)
    project.task("t-2", "needs: [t-1]")
    project.write("lib/x", "dirty")
    assert project.run().code == 0
    assert sorted(project.landed()) == ["t-1", "t-2"]
    project.git("restore", "lib/x")
    project.run()
    assert project.git("status", "--porcelain") == ""
    assert (project.root / "pages/t-2.txt").exists()


def test_the_way_out_that_is_named_for_a_dirty_checkout_works(project: Project) -> None:
    project.write("lib/x", "one\n\n\n\n\n\n\n\ntwo\n")
    project.commit("x")
    project.task(
        "t-1", act="write('lib/x', 'landed' + Path('lib/x').read_text()); write('pages/t-1.txt', 'x')"
    )
    project.write("lib/x", "one\n\n\n\n\n\n\n\ntwo, mine\n")
    said = project.run().out
    command = "git show" + said.partition("git show")[2].partition(" adds it")[0].replace("FILE", "lib/x")
    subprocess.run(command, shell=True, cwd=project.root, env=project.env, check=True)
    assert (project.root / "pages/t-1.txt").exists()
    assert (project.root / "lib/x").read_text() == "landedone\n\n\n\n\n\n\n\ntwo, mine\n"
    project.task("t-2")
    ran = project.run()
    assert not left_alone(project, ran.out)
    assert (project.root / "pages/t-2.txt").exists()


def test_where_a_dirty_checkout_stands_is_not_remembered_beyond_its_next_commit(project: Project) -> None:
    project.write("lib/x", "committed\n")
    project.commit("x")
    project.task("t-1", act=EDITS)
    project.write("lib/x", "dirty")
    assert left_alone(project, project.run().out)
    project.git("commit", "-q", "-m", "mine", "lib/x")
    project.git("reset", "-q", "--hard")
    project.write("lib/x", "dirty again")
    project.task("t-2", commit=False)
    project.git("add", "tasks")
    project.git("commit", "-q", "-m", "task", "tasks")
    ran = project.run()
    assert not left_alone(project, ran.out)
    assert (project.root / "pages/t-2.txt").exists()
    assert (project.root / "lib/x").read_text() == "dirty again"


def test_a_checkout_that_its_owner_brought_along_follows_again(project: Project) -> None:
    project.write("lib/x", "committed\n")
    project.commit("x")
    project.task("t-1", act=EDITS)
    project.write("lib/x", "dirty")
    project.run()
    project.git("reset", "-q", "--hard")
    project.task("t-2")
    ran = project.run()
    assert ran.code == 0
    assert not left_alone(project, ran.out)
    assert (project.root / "pages/t-2.txt").exists()
    assert project.git("status", "--porcelain") == ""


def test_a_clean_checkout_follows(project: Project) -> None:
    project.task("t-1")
    assert project.run().code == 0
    assert (project.root / "pages/t-1.txt").read_text() == "page t-1 1\n"
    assert "status: closed" in (project.root / "tasks/t-1.md").read_text()
    assert project.git("status", "--porcelain") == ""


def test_a_checkout_of_another_branch_is_not_touched(project: Project) -> None:
    project.task("t-1")
    project.git("checkout", "-q", "-b", "mine")
    project.write("pages/own.txt", "mine")
    ran = project.run()
    assert ran.code == 0
    assert project.landed() == ["t-1"]
    assert project.git("status", "--porcelain") == "?? pages/"
    assert "status: open" in (project.root / "tasks/t-1.md").read_text()
    assert project.run().code == 0
    assert len(project.began("t-1")) == 1, "what landed is not done again"


def test_a_detached_checkout_is_not_touched(project: Project) -> None:
    project.task("t-1")
    project.git("checkout", "-q", "--detach")
    head = project.git("rev-parse", "HEAD")
    project.configure(project={"default_branch": "main"})
    project.commit("detached")
    assert project.run().code == 0
    assert project.landed() == ["t-1"]
    assert project.git("rev-parse", "HEAD~1") == head
    assert project.git("status", "--porcelain") == ""


def test_a_task_that_was_never_committed_ends_closed_and_is_not_lost(project: Project) -> None:
    path = project.task("t-1", commit=False, body="What to do, in words.")
    ran = project.run()
    assert ran.code == 0, ran.said
    assert project.status_of("t-1") == "closed"
    assert "What to do, in words." in path.read_text()
    assert "status: closed" in path.read_text()
    assert project.git("status", "--porcelain") == ""


def test_a_task_that_was_staged_but_never_committed_ends_closed(project: Project) -> None:
    path = project.task("t-1", commit=False)
    project.git("add", "tasks")
    ran = project.run()
    assert ran.code == 0, ran.said
    assert "status: closed" in path.read_text()
    assert project.git("status", "--porcelain") == ""


def test_an_uncommitted_edit_of_the_task_itself_lands_with_it(project: Project) -> None:
    path = project.task("t-1", body="as committed")
    path.write_text(path.read_text().replace("as committed", "as edited since"))
    ran = project.run()
    assert ran.code == 0, ran.said
    assert "as edited since" in project.git("show", "main:tasks/t-1.md")
    assert project.git("status", "--porcelain") == ""


def test_an_uncommitted_edit_of_another_task_keeps_nothing_back_and_stays(project: Project) -> None:
    project.task("t-1")
    other = project.task("t-2", "labels: [no-dispatch]", body="as committed")
    other.write_text(other.read_text().replace("as committed", "still being written"))
    project.task("t-3", "labels: [no-dispatch]", commit=False)
    ran = project.run()
    assert ran.code == 0, ran.said
    assert not left_alone(project, ran.out)
    assert (project.root / "pages/t-1.txt").exists()
    assert "still being written" in other.read_text()
    assert project.git("status", "--porcelain").split("\n") == ["M tasks/t-2.md", "?? tasks/t-3.md"]


def test_an_untracked_file_in_the_way_is_kept_and_said(project: Project) -> None:
    project.task("t-1")
    project.write("pages/t-1.txt", "mine, untracked")
    ran = project.run()
    assert ran.code == 0
    assert (project.root / "pages/t-1.txt").read_text() == "mine, untracked"
    assert left_alone(project, ran.out)
    project.git("restore", "pages/t-1.txt")
    assert project.git("status", "--porcelain") == ""


def test_a_commit_of_another_file_takes_back_nothing_that_landed(project: Project) -> None:
    project.write("lib/x", "committed\n")
    project.write("logo.png", b"\x89PNG\0\xff")
    project.write("gone", "old\n")
    project.commit("x")
    landing = "write('logo.png', b'\\x89PNG\\0landed'); os.unlink('gone'); write('new', 'landed')"
    project.task("t-1", act=f"{EDITS}\n{landing}")
    mine = {"lib/x": b"dirty", "logo.png": b"\x89PNG\0mine", "gone": b"mine", "new": b"mine"}
    for path, text in mine.items():
        project.write(path, text)
    ran = project.run()
    assert ran.code == 0, ran.said
    project.write("other", "the user's")
    project.git("add", "other")
    project.git("commit", "-qm", "other")
    assert project.git("show", "--format=", "--name-only", "HEAD") == "other"
    assert project.git("show", "main:lib/x") == "landed"
    assert project.status_of("t-1") == "closed"
    assert {path: (project.root / path).read_bytes() for path in mine} == mine
    assert "reset --hard" not in ran.out


def test_what_is_staged_and_not_in_the_file_any_more_stays_staged(project: Project) -> None:
    project.write("lib/x", "committed\n")
    project.commit("x")
    project.task("t-1", act=EDITS)
    project.write("lib/x", "staged\n")
    project.git("add", "lib/x")
    project.write("lib/x", "typed after that\n")
    assert project.run().code == 0
    assert project.git("show", ":lib/x") == "staged"
    assert (project.root / "lib/x").read_text() == "typed after that\n"
    assert "status: closed" in (project.root / "tasks" / "t-1.md").read_text()


def test_an_edit_made_while_the_agent_works_is_respected(project: Project) -> None:
    project.write("lib/x", "committed\n")
    project.commit("x")
    project.task("t-1", act="wait_for(folder / 'edited')\nwrite('pages/t-1.txt', 'x')")
    process = project.start("run")
    project.write("lib/x", "typed meanwhile")
    project.say("edited")
    process.communicate(timeout=60)
    assert (project.root / "pages/t-1.txt").exists()
    assert (project.root / "lib/x").read_text() == "typed meanwhile"


def test_a_commit_made_in_the_checkout_while_the_agent_works_is_landed_on(project: Project) -> None:
    project.task("t-1", act="wait_for(folder / 'committed')\nwrite('pages/t-1.txt', 'x')")
    process = project.start("run")
    project.write("lib/x", "mine")
    project.commit("mine")
    project.say("committed")
    out, _ = process.communicate(timeout=60)
    assert process.returncode == 0, out
    assert project.wrongs(["t-1"]) == []
    assert project.git("status", "--porcelain") == ""
    assert {"lib/x", "pages/t-1.txt"} <= set(project.files())


@pytest.mark.parametrize("place", ["checkout", "advance"])
def test_a_checkout_follows_after_a_kill_even_with_an_uncommitted_task(project: Project, place: str) -> None:
    path = project.task("t-1", commit=False, body="in words")
    assert (
        project.run(die_at=f"after:{place}.begun" if place == "checkout" else "after:advance.done").code == -9
    )
    ran = project.run()
    assert ran.code == 0, ran.said
    assert project.wrongs(["t-1"]) == []
    assert "in words" in path.read_text()
    assert "status: closed" in path.read_text()
    assert project.git("status", "--porcelain") == ""


def test_a_run_that_goes_on_brings_the_checkout_along_once(project: Project) -> None:
    """At its beginning and as it finishes the landing: together they would put back each other's files."""
    path = project.task("t-1", commit=False, body="in words")
    project.run(die_at="after:checkout.begun")
    seen, slow = project.place / "seen", project.place / "slow"
    slow.mkdir()
    git = f'{shutil.which("git")} "$@"'
    busy = f"echo begins >> {seen}; sleep 0.5; {git}; rc=$?; echo ends >> {seen}; exit $rc"
    (slow / "git").write_text(f'#!/bin/sh\ncase "$*" in *read-tree*) {busy};; esac\nexec {git}\n')
    (slow / "git").chmod(0o755)
    project.env["PATH"] = f"{slow}{os.pathsep}{project.env['PATH']}"
    assert project.run().code == 0
    assert "status: closed" in path.read_text()
    assert seen.read_text().split() == ["begins", "ends"]


def test_a_second_checkout_that_was_deleted_does_not_stop_landings(project: Project) -> None:
    """git still lists it: it was not pruned."""
    project.task("t-1")
    project.git("checkout", "-q", "-b", "mine")
    other = project.place / "other"
    project.git("worktree", "add", "-q", str(other), "main")
    shutil.rmtree(other)
    ran = project.run()
    assert ran.code == 0, ran.said
    assert project.landed() == ["t-1"]


def test_the_default_branch_checked_out_in_another_worktree_follows_there(project: Project) -> None:
    project.task("t-1")
    project.git("checkout", "-q", "-b", "mine")
    other = project.place / "other"
    project.git("worktree", "add", "-q", str(other), "main")
    assert project.run().code == 0
    assert (other / "pages/t-1.txt").exists()
    assert project.git("status", "--porcelain", cwd=other) == ""
    assert project.git("status", "--porcelain") == ""


def test_a_checkout_that_git_cannot_read_does_not_unsay_a_landing(project: Project) -> None:
    index = project.root / ".git" / "index"
    project.task("t-1", act=f"Path({str(index)!r}).write_bytes(b'ruined')\nwrite('pages/t-1.txt', 'x')")
    ran = project.run()
    assert ran.code == 0, ran.said
    assert "could not be brought along" in ran.out
    assert project.landed() == ["t-1"]
    index.unlink()
    project.git("reset", "-q", "--hard")
    assert project.run().code == 0
    assert len(project.began("t-1")) == 1
    assert project.wrongs(["t-1"]) == []
