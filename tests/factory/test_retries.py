"""A task that is tried again: what its next agent finds."""

from __future__ import annotations

import pytest

from tests.factory.kit import Project

NEEDS_LIB = "if not Path('lib/missing').exists():\n    raise SystemExit('lib/missing is missing')\n"
PAGE = "write('pages/t-1.txt', 'x')\n"


@pytest.mark.parametrize(
    "before",
    ["", "write('pages/half.txt', 'half')\n", "commit('pages/half.txt', 'half')\n"],
    ids=["nothing-left", "left-uncommitted", "left-committed"],
)
def test_a_retry_in_a_new_run_works_on_the_current_default_branch(project: Project, before: str) -> None:
    project.configure(run={"attempts": 1})
    project.task("t-1", act=f"{NEEDS_LIB}{PAGE}")
    project.act("t-1", f"{before}{NEEDS_LIB}", launch=1)
    assert project.run().code == 1
    project.write("lib/missing", "here")
    project.commit("the missing piece")
    ran = project.run()
    assert ran.code == 0, ran.said
    assert project.wrongs(["t-1"]) == []
    assert ("pages/half.txt" in project.files()) == bool(before)


def test_a_retry_in_a_new_run_works_on_what_a_teammate_pushed_meanwhile(project: Project) -> None:
    project.configure(run={"attempts": 1})
    project.task("t-1", act=f"{NEEDS_LIB}{PAGE}")
    origin = project.with_origin()
    assert project.run().code == 1
    clone = project.place / "teammate"
    project.git("clone", "-q", str(origin), str(clone))
    (clone / "lib").mkdir()
    (clone / "lib" / "missing").write_text("here")
    project.git("add", "-A", cwd=clone)
    project.git("commit", "-qm", "the missing piece", cwd=clone)
    project.git("push", "-q", cwd=clone)
    ran = project.run()
    assert ran.code == 0, ran.said
    assert project.wrongs(["t-1"]) == []


def test_what_an_agent_left_uncommitted_in_a_file_that_changed_meanwhile_stays_as_it_is(
    project: Project,
) -> None:
    project.configure(run={"attempts": 1})
    project.write("pages/t-1.txt", "old\n")
    project.task("t-1", act="write('pages/t-1.txt', 'mine\\n')\nsys.exit(1)")
    assert project.run().code == 1
    project.write("pages/t-1.txt", "theirs\n")
    project.commit("the same file")
    project.act("t-1", "write('seen', Path('pages/t-1.txt').read_text())\nsys.exit(1)")
    assert project.run().code == 1
    assert (project.workspace("t-1") / "seen").read_text() == "mine\n"
