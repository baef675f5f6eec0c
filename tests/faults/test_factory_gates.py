"""Gates and landings that go wrong: what lands is green, whole and ours, or it does not land."""

from __future__ import annotations

import os
import shutil
import signal
import stat
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.factory.kit import GREEN, Project, until

pytestmark = pytest.mark.faults


@pytest.fixture
def project(tmp_path: Path) -> Iterator[Project]:
    project = Project(tmp_path)
    yield project
    project.end()


def gate(project: Project, *commands: str, **keys: object) -> None:
    project.configure(gate={"commands": [*commands, GREEN], **keys})
    project.commit("another gate")


# -- the gate itself --------------------------------------------------------------------------------------


def test_a_red_gate_sends_the_task_back_with_its_output(project: Project) -> None:
    gate(project, "cat pages/t-1.txt; echo why it is red >&2; ! grep -q bad pages/t-1.txt")
    project.task("t-1", act="assert 'why it is red' in prompt\nwrite('pages/t-1.txt', 'good')")
    project.act("t-1", "write('pages/t-1.txt', 'bad: first')", launch=1)
    project.act(
        "t-1", "assert 'bad: first' in prompt, prompt\nwrite('pages/t-1.txt', 'bad: second')", launch=2
    )
    ran = project.run()
    assert ran.code == 0, ran.said
    assert [(line.launch, line.attempt) for line in project.began()] == [(1, 1), (2, 2), (3, 3)]
    assert project.wrongs(["t-1"]) == []
    assert "bad: second" in project.prompts("t-1")[2]
    assert "bad: first" not in project.prompts("t-1")[2]


def test_a_gate_that_stays_red_blocks_the_task_after_its_budget(project: Project) -> None:
    project.task("t-1", act="write('pages/t-1.txt', f'bad {launch}')")
    ran = project.run()
    assert ran.code == 1
    assert "gate-failed" in ran.out
    assert len(project.began("t-1")) == 3
    assert project.landed() == []
    assert project.branches() == ["agent/t-1"]


def test_a_gate_that_hangs_is_ended_with_everything_it_started(project: Project) -> None:
    gate(project, "sh -c 'trap \"\" TERM; sleep 600' & sleep 600", timeout_s=0.5)
    project.configure(run={"gate_retries": 0})
    project.task("t-1")
    ran = project.run()
    assert ran.code == 1
    assert "gate.timeout_s" in ran.out
    assert project.processes() == []
    assert project.landed() == []


def test_a_gate_that_ignores_being_asked_is_ended_all_the_same(project: Project) -> None:
    gate(project, "trap '' TERM; while :; do sleep 0.1; done", timeout_s=0.3)
    project.configure(run={"gate_retries": 0})
    project.task("t-1")
    assert project.run().code == 1
    assert project.processes() == []


def test_nothing_that_a_gate_writes_lands(project: Project) -> None:
    """Not what it changes, adds, stages, commits, or checks out."""
    dirty = (
        "echo x > junk; echo y >> pages/$(ls pages | head -1); git add -A; git commit -qm mine; echo z > more"
    )
    gate(project, dirty, "git checkout -q --detach HEAD~1")
    names = project.tasks(2)
    assert project.run().code == 0
    assert project.wrongs(names) == []
    assert not {"junk", "more"} & set(project.files())
    assert "mine" not in project.git("log", "--format=%s", "main").splitlines()


def test_what_one_gate_leaves_the_next_landing_does_not_see(project: Project) -> None:
    left = "test ! -e junk && test ! -e inner && touch junk && git init -q inner && touch inner/x"
    gate(project, left)
    names = project.tasks(2)
    assert project.run().code == 0
    assert project.wrongs(names) == []


@pytest.mark.parametrize(
    "how",
    [
        "rm -f .git",
        "rm -rf ./* .git",
        "git checkout -q -b mine",
        "rm .git; git init -q",
        "rm .git; mkdir .git",
    ],
)
def test_a_gate_that_ruins_the_landings_worktree_does_not_end_landings(project: Project, how: str) -> None:
    gate(project, how if "git check" not in how else f"{how} || true")
    project.configure(gate={"commands": [GREEN, *project.sections["gate"]["commands"][:1]]})
    project.commit("order")
    names = project.tasks(2)
    ran = project.run()
    assert ran.code == 0, ran.said
    assert project.wrongs(names) == []


def test_a_gate_that_prints_without_end_stays_bounded_in_the_prompt(project: Project) -> None:
    gate(project, "head -c 100000000 /dev/zero | tr '\\0' x; echo; echo the end; exit 1")
    project.configure(run={"gate_retries": 1})
    project.task("t-1")
    ran = project.run()
    assert ran.code == 1
    assert "the end" in project.prompts("t-1")[1]
    assert len(project.prompts("t-1")[1]) < 50_000


def test_a_gate_that_prints_no_text_is_read_all_the_same(project: Project) -> None:
    gate(project, "printf '\\377\\376 odd\\n'; ! grep -qs bad pages/t-1.txt")
    project.task("t-1")
    project.act("t-1", "write('pages/t-1.txt', 'bad')", launch=1)
    assert project.run().code == 0
    assert "odd" in project.prompts("t-1")[1]


def test_a_daemon_that_a_gate_leaves_is_ended(project: Project) -> None:
    gate(project, "setsid sleep 600 & env -i setsid sleep 601 & sleep 0.1")
    project.task("t-1")
    assert project.run().code == 0
    assert project.wrongs(["t-1"]) == []
    assert "sleep 601" not in subprocess.run(["ps", "-eo", "args"], capture_output=True, text=True).stdout


@pytest.mark.parametrize("how", ["kill -9 $$", "kill -9 $PPID; kill -9 $$", "kill -9 $PPID; sleep 0.3"])
def test_a_gate_that_kills_itself_or_its_keeper_is_red(project: Project, how: str) -> None:
    gate(project, how)
    project.configure(run={"gate_retries": 0})
    project.task("t-1")
    ran = project.run()
    assert ran.code == 1
    assert "gate-failed" in ran.out
    assert project.landed() == []
    assert project.processes() == []


def test_a_gate_gets_no_slot_and_no_git_variables_of_ours(project: Project) -> None:
    gate(project, "test -z \"$FLYBALL_LEASE\" && ! env | grep -q '^GIT_DIR='")
    project.task("t-1")
    assert project.run().code == 0


def test_no_gate_at_all_lands_unchecked_where_that_was_said(project: Project) -> None:
    project.configure(gate={"commands": []})
    project.task("t-1")
    assert project.run().code == 0
    assert project.landed() == ["t-1"]


# -- the branch moves -------------------------------------------------------------------------------------

_COMMIT_TO_MAIN = """
test -e {once} || {{
  touch {once}
  cd {root} && git commit -q --allow-empty -m "somebody else"
}}
"""


def test_a_default_branch_that_moves_during_the_gate_is_landed_on_again(project: Project) -> None:
    gate(project, _COMMIT_TO_MAIN.format(once=project.place / "once", root=project.root))
    project.task("t-1")
    assert project.run().code == 0
    assert project.wrongs(["t-1"]) == []
    assert "somebody else" in project.git("log", "--format=%s", "main")


def test_a_default_branch_that_always_moves_is_given_up_with_words(project: Project) -> None:
    gate(project, f"cd {project.root} && git commit -q --allow-empty -m more")
    project.task("t-1")
    ran = project.run()
    assert ran.code == 1
    assert "moved 5 times" in ran.out
    assert project.landed() == []


def test_work_that_somebody_else_landed_meanwhile_does_not_rewrite_the_branch(project: Project) -> None:
    """Its commits come to nothing on top of the same change, so there is no commit to close the task in."""
    same = "mkdir -p pages; echo same > pages/same.txt; git add -A; git commit -qm 'the same'"
    gate(
        project,
        f"test -e {project.place}/once || {{ touch {project.place}/once; cd {project.root}; {same}; }}",
    )
    project.task("t-1", act="write('pages/same.txt', 'same\\n')")
    ran = project.run()
    assert project.wrongs(project.landed()) == [], ran.said
    assert "the same" in project.git("log", "--format=%s", "main").splitlines()


def test_two_tasks_that_make_the_same_change_do_not_rewrite_the_branch(project: Project) -> None:
    script = "(folder / task).touch()\n[wait_for(folder / each) for each in ('t-1', 't-2')]\n"
    for name in ("t-1", "t-2"):
        project.task(name, act=script + "write('pages/same.txt', 'same')")
    ran = project.run()
    assert project.wrongs(project.landed()) == [], ran.said
    assert project.status_of(project.landed()[0]) == "closed"


CLASH = """
(folder / task).touch()
for other in ("t-1", "t-2"):
    wait_for(folder / other)
commit("pages/shared.txt", f"of {task}\\n", f"Add page {task}")
"""


def test_a_conflicting_branch_goes_back_and_its_agent_rebases(project: Project) -> None:
    for name in ("t-1", "t-2"):
        project.task(name, act="git('reset', '-q', '--hard', 'main')\ncommit('pages/shared.txt', 'both')")
        project.act(name, CLASH, launch=1)
    ran = project.run()
    assert ran.code == 0, ran.said
    assert project.wrongs(["t-1", "t-2"]) == []
    again = next(name for name in ("t-1", "t-2") if len(project.began(name)) == 2)
    assert "clashes with main" in project.prompts(again)[1]
    assert "pages/shared.txt" in project.prompts(again)[1]


def test_a_branch_that_stays_in_conflict_is_blocked_after_its_budget(project: Project) -> None:
    project.configure(run={"conflict_retries": 1})
    for name in ("t-1", "t-2"):
        project.task(name, act="commit('pages/other.txt', str(launch))")
        project.act(name, CLASH, launch=1)
    ran = project.run()
    assert ran.code == 1
    assert "conflict" in ran.out
    assert len(project.landed()) == 1
    assert project.wrongs(project.landed()) == []


def test_a_conflict_in_a_name_that_is_no_text_is_said(project: Project) -> None:
    odd = "os.fsdecode(b'pages/\\xff.txt')"
    for name in ("t-1", "t-2"):
        project.task(name, act=f"git('reset', '-q', '--hard', 'main')\ncommit({odd}, 'both')")
        project.act(name, CLASH.replace('"pages/shared.txt"', odd), launch=1)
    ran = project.run()
    assert ran.code == 0, ran.said
    assert sorted(project.landed()) == ["t-1", "t-2"]


# -- protected paths --------------------------------------------------------------------------------------

PROTECTED = {
    "plain": "write('secrets/key', 'mine')",
    "nested": "write('secrets/a/b/c', 'mine')",
    "changed": "write('secrets/old', 'mine')",
    "deleted": "os.unlink('secrets/old')",
    "moved out of it": "os.makedirs('pages', exist_ok=True)\nos.rename('secrets/old', 'pages/old')",
    "moved into it": "os.rename('lib/x', 'secrets/x')",
    "case": "write('SECRETS/key', 'mine')",
    "the folder replaced by a file": "os.unlink('secrets/old')\nos.rmdir('secrets')\nwrite('secrets', 'x')",
    "a link into it": "os.makedirs('pages', exist_ok=True)\nos.symlink('../secrets/old', 'pages/link')",
    "a link to it": "os.symlink('secrets', 'link')",
    "a link out of the repository": "os.symlink('/etc/passwd', 'link')",
    "a relative link out of it": "os.makedirs('pages', exist_ok=True)\nos.symlink('../../x', 'pages/link')",
    "tasks": "write('tasks/t-9.md', 'x')",
    "its own task": "write(f'tasks/{task}.md', 'x')",
    "configuration": "write('flyball.toml', '')",
    "CI": "write('.github/workflows/ci.yml', 'x')",
    "CI in another case": "write('.GitHub/workflows/ci.yml', 'x')",
    "instructions somewhere": "write('lib/CLAUDE.md', 'x')",
    "ignored files": "write('lib/.gitignore', 'x')",
    "no text in its name": "write(os.fsdecode(b'secrets/\\xff'), 'x')",
    "not ASCII": "write('geheim/schl\u00fcssel', 'x')",
    "not ASCII, decomposed": "write('geheim/schlu\u0308ssel', 'x')",
}


@pytest.fixture(scope="module")
def refused(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Project, dict[str, str]]]:
    """All of them in one run, each a task of its own, and why each was blocked."""
    project = Project(tmp_path_factory.mktemp("protected"))
    project.write("secrets/old", "a key\n" * 50)
    project.write("lib/x", "a long text\n" * 50)
    project.configure(merge={"protected": ["secrets/", "geheim/schl\u00fcssel"]}, run={"width": 4})
    project.commit("secrets")
    for number, script in enumerate(PROTECTED.values()):
        project.task(f"t-{number}", act=f"write(f'pages/{{task}}.txt', 'fine')\n{script}", commit=False)
    project.commit("tasks")
    ran = project.run("--json")
    assert ran.code == 1, ran.said
    yield project, ran.json["blocked"]
    project.end()


@pytest.mark.parametrize("number", range(len(PROTECTED)), ids=PROTECTED.keys())
def test_a_branch_that_touches_a_protected_path_is_refused_as_a_whole(
    refused: tuple[Project, dict[str, str]], number: int
) -> None:
    project, blocked = refused
    task = f"t-{number}"
    assert blocked[task].startswith("protected: ")
    assert f"pages/{task}.txt" not in project.files()
    assert f"agent/{task}" in project.branches()
    assert len(project.began(task)) == 1


def test_nothing_of_a_refused_branch_moves_the_default_branch(
    refused: tuple[Project, dict[str, str]],
) -> None:
    project, blocked = refused
    assert len(blocked) == len(PROTECTED)
    assert project.landed() == []
    assert project.leases() == []


def test_a_protected_change_that_a_merge_brings_in_is_refused(project: Project) -> None:
    project.task(
        "t-1",
        act="git('checkout', '-qb', 'side')\ncommit('secrets/key', 'mine')\n"
        "git('checkout', '-q', f'agent/{task}')\ncommit('pages/t-1.txt', 'x')\n"
        "git('merge', '-q', '--no-edit', 'side')",
    )
    ran = project.run()
    assert ran.code == 1
    assert "protected" in ran.out
    assert project.landed() == []


def test_an_executable_page_and_an_odd_name_land_as_they_are(project: Project) -> None:
    odd = "pages/ '\"\t\u00e4 \u2603.txt"
    project.task("t-1", act=f"write({odd!r}, 'x')\nos.chmod({odd!r}, 0o755)")
    assert project.run().code == 0
    assert odd in project.files()
    assert (project.root / odd).stat().st_mode & stat.S_IXUSR


# -- being stopped in the middle --------------------------------------------------------------------------


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
    names = project.tasks(2)
    project.env["PATH"] = f"{slow.parent}:{project.env['PATH']}"
    process = project.start("run", group=True)
    project.wait("checks-out")
    os.killpg(process.pid, signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 130, out + err
    assert "blocked" not in out
    assert "attempt 2" not in out
    project.run()
    assert project.wrongs(names) == []


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
