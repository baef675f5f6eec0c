"""Packages and copied files of worktrees, when what they were made from changes."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.factory.kit import GREEN, Project

INSTALLED = "cmp requirements.txt installed"
"""A gate that is green where the packages are those that the tree asks for."""


def installing(project: Project, *before: str) -> Path:
    """A project whose packages are a copy of what asks for them; the file that counts installations."""
    counted = project.place / "installed"
    install = f"pwd >> {counted}; cp requirements.txt installed"
    # The list of packages, which the gate names, is a task's to change here.
    gate = {"commands": [INSTALLED, GREEN], "protect": False}
    project.configure(worktree={"bootstrap": [*before, install]}, gate=gate)
    project.write(".gitignore", "installed\n")
    project.write("requirements.txt", "one\n")
    project.commit("packages")
    return counted


def times(counted: Path, name: str) -> int:
    return sum(Path(line).name == name for line in counted.read_text().splitlines())


def test_a_task_that_changes_the_packages_lands_and_so_does_what_comes_after_it(project: Project) -> None:
    installing(project)
    project.task("t-1")
    project.task(
        "t-2",
        "needs: [t-1]",
        act="write('requirements.txt', 'one\\ntwo\\n')\nwrite('installed', 'one\\ntwo\\n')",
    )
    project.task(
        "t-3",
        "needs: [t-2]",
        act="assert 'two' in Path('installed').read_text()\nwrite('pages/t-3.txt', 'x')",
    )
    ran = project.run()
    assert ran.code == 0, ran.said
    assert project.wrongs(["t-1", "t-2", "t-3"]) == []
    assert len(project.began()) == 3


def test_packages_that_a_person_changes_on_the_default_branch_are_installed_before_the_next_gate(
    project: Project,
) -> None:
    installing(project)
    project.task("t-1")
    assert project.run().code == 0
    project.write("requirements.txt", "one\nthree\n")
    project.task("t-2")
    ran = project.run()
    assert ran.code == 0, ran.said
    assert project.wrongs(["t-1", "t-2"]) == []


def test_a_retry_has_the_packages_that_the_default_branch_asks_for_by_then(project: Project) -> None:
    installing(project)
    project.configure(run={"attempts": 1})
    project.task("t-1", act="assert 'three' in Path('installed').read_text()\nwrite('pages/t-1.txt', 'x')")
    assert project.run().code == 1
    project.write("requirements.txt", "one\nthree\n")
    project.commit("three")
    ran = project.run()
    assert ran.code == 0, ran.said


def test_a_copied_file_that_changed_is_copied_again(project: Project) -> None:
    project.configure(
        worktree={"copy": [".env"]}, gate={"commands": [f"cmp .env {project.root}/.env", GREEN]}
    )
    project.write(".gitignore", ".env\n")
    project.write(".env", "KEY=1\n")
    project.task("t-1")
    assert project.run().code == 0
    project.write(".env", "KEY=2\n")
    project.task("t-2", act="assert Path('.env').read_text() == 'KEY=2\\n'\nwrite('pages/t-2.txt', 'x')")
    ran = project.run()
    assert ran.code == 0, ran.said
    assert project.wrongs(["t-1", "t-2"]) == []


def test_packages_are_not_installed_again_while_nothing_about_them_changed(project: Project) -> None:
    counted = installing(project)
    project.configure(merge={"batch": 1})
    names = project.tasks(3)
    assert project.run().code == 0
    assert project.wrongs(names) == []
    assert times(counted, ".landing") == 1


def test_an_agent_cannot_have_the_bootstrap_run_again_by_what_it_does_in_its_worktree(
    project: Project,
) -> None:
    counted = installing(project, "sh setup.sh")
    project.write("setup.sh", "true\n")
    project.commit("setup")
    outside = project.place / "outside"
    project.task("t-1")
    project.act(
        "t-1",
        f"write('setup.sh', 'touch {outside}')\n"
        "state = Path(git('rev-parse', '--path-format=absolute', '--git-dir'))\n"
        "for path in state.glob('flyball*'):\n    path.unlink()\n"
        "sys.exit(1)",
        launch=1,
    )
    project.act("t-1", "git('checkout', 'setup.sh')\nwrite('pages/t-1.txt', 'x')", launch=2)
    ran = project.run()
    assert ran.code == 0, ran.said
    assert times(counted, "t-1") == 1
    assert not outside.exists()


@pytest.mark.parametrize(("by_work", "launches"), [(True, 2), (False, 1)])
def test_a_bootstrap_that_fails_before_the_gate_goes_back_to_the_agent_only_where_its_work_changed_it(
    project: Project, by_work: bool, launches: int
) -> None:
    broken = project.place / "broken"
    installing(
        project, "! grep -q bad requirements.txt", f"case $PWD in *.landing) ! test -e {broken};; esac"
    )
    project.task("t-1")
    change = "write('requirements.txt', 'bad\\n')" if by_work else f"Path({str(broken)!r}).touch()"
    project.act("t-1", f"write('pages/t-1.txt', 'x')\n{change}", launch=1)
    project.act("t-1", "write('requirements.txt', 'one\\n')", launch=2)
    ran = project.run("--skip-base-gate", "--json")
    assert ran.code == 0, ran.said
    assert len(project.began()) == launches
    if not by_work:
        assert ran.json["waiting_for_you"]["t-1"].startswith("gate-broken: worktree.bootstrap")
