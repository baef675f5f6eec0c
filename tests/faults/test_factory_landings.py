"""Landings that are cut short, and what is left of them in the next one's way."""

from __future__ import annotations

import os
import shutil
import signal

import pytest

from tests.factory.kit import GREEN, Project
from tests.waiting import until

pytestmark = pytest.mark.faults


def gate(project: Project, *commands: str, **keys: object) -> None:
    project.configure(gate={"commands": [*commands, GREEN], **keys})
    project.commit("another gate")


def test_a_gate_that_outlived_its_engine_is_ended_before_another_lands(project: Project) -> None:
    gate(project, f"test -e {project.place}/once || {{ touch {project.place}/once; sleep 600; }}")
    project.task("t-1")
    process = project.start("run")
    until((project.place / "once").exists, "the gate to begin")
    process.kill()
    process.wait()
    assert project.processes()
    assert project.run().code == 0
    assert project.wrongs(["t-1"]) == []


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_stopping_during_a_gate_leaves_a_landing_to_go_on_with(project: Project, number: int) -> None:
    gate(project, f"test -e {project.place}/once || {{ touch {project.place}/once; sleep 600; }}")
    project.task("t-1")
    process = project.start("run")
    until((project.place / "once").exists, "the gate to begin")
    os.kill(process.pid, number)
    project.read_until(process, "again to stop it")
    os.kill(process.pid, number)
    assert process.wait(30) == 128 + number
    assert project.processes() == []
    assert project.landed() == []
    assert project.run().code == 0
    assert project.wrongs(["t-1"]) == []


def test_a_landings_worktree_of_another_clone_is_replaced(project: Project) -> None:
    """The project moved, and the old clone's folder is still where ours goes."""
    project.task("t-1")
    assert project.run().code == 0
    moved = project.place / "moved"
    project.git("clone", "-q", str(project.root), str(moved))
    assert project.flyball("project", "remove", "blog").code == 0
    project.root = moved
    project.git("remote", "remove", "origin")
    project.task("t-2")
    ran = project.run()
    assert ran.code == 0, ran.said
    assert project.landed() == ["t-2"]


# -- Ctrl-C at a terminal ---------------------------------------------------------------------------------


def test_a_ctrl_c_does_not_reach_the_git_commands_of_a_landing(project: Project) -> None:
    """A terminal sends it to the whole process group."""
    slow = project.place / "bin" / "git"
    slow.parent.mkdir()
    here = project.folder / "checks-out"
    slow.write_text(
        "#!/bin/sh\n"
        f'case "$PWD $*" in *.landing*checkout*) touch {here}; sleep 1;; esac\n'
        f'exec {shutil.which("git")} "$@"\n'
    )
    slow.chmod(0o755)
    # Two that land together are laid on one another without a checkout.
    project.configure(merge={"batch": 1})
    names = project.tasks(2)
    project.env["PATH"] = f"{slow.parent}:{project.env['PATH']}"
    process = project.start("run", group=True)
    project.wait("checks-out")
    os.killpg(process.pid, signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 130, out + err
    assert "blocked" not in out
    assert "attempt 2" not in out
    ran = project.run()
    assert project.wrongs(names) == [], out + ran.said


def test_a_git_command_that_outlived_its_engine_does_not_meddle_with_the_next_landing(
    project: Project,
) -> None:
    """kill -9 ends the engine and not what it started: an old checkout would bring back other work."""
    slow, begun, done = project.place / "bin" / "git", project.folder / "begun", project.folder / "done"
    slow.parent.mkdir()
    git = shutil.which("git")
    slow.write_text(
        "#!/bin/sh\n"
        'case "$PWD $*" in\n'
        f'*.landing*checkout*) if mkdir {begun}; then sleep 2; {git} "$@"; touch {done}; exit 0; fi;;\n'
        f"*.landing*add*--force*) for _ in $(seq 40); do test -e {done} || sleep 0.1; done;;\n"
        "esac 2> /dev/null\n"
        f'exec {git} "$@"\n'
    )
    slow.chmod(0o755)
    # Two that land together are laid on one another without a checkout.
    project.configure(merge={"batch": 1})
    names = project.tasks(2)
    project.env["PATH"] = f"{slow.parent}:{project.env['PATH']}"
    process = project.start("run")
    project.wait("begun")
    until(lambda: len(project.journal()) == 4, "both agents to end")
    process.kill()
    process.wait()
    ran = project.run()
    assert ran.code == 0, ran.said
    assert project.wrongs(names) == []
    assert {f"pages/{name}.txt" for name in names} <= set(project.files())
