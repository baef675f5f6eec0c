"""Gates and landings that go wrong: what lands is green, whole and ours, or it does not land."""

from __future__ import annotations

import subprocess

import pytest

from tests.factory.kit import GREEN, Project

pytestmark = pytest.mark.faults


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
  cd {root} && git commit -q --allow-empty -m "another author"
}}
"""


def test_a_default_branch_that_moves_during_the_gate_is_landed_on_again(project: Project) -> None:
    gate(project, _COMMIT_TO_MAIN.format(once=project.place / "once", root=project.root))
    project.task("t-1")
    assert project.run().code == 0
    assert project.wrongs(["t-1"]) == []
    assert "another author" in project.git("log", "--format=%s", "main")


def test_a_default_branch_that_always_moves_is_given_up_with_words(project: Project) -> None:
    gate(project, f"cd {project.root} && git commit -q --allow-empty -m more")
    project.task("t-1")
    ran = project.run()
    assert ran.code == 1
    assert "moved 5 times" in ran.out
    assert project.landed() == []


def test_work_that_another_author_landed_meanwhile_does_not_rewrite_the_branch(project: Project) -> None:
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


def test_a_conflict_in_a_name_that_is_not_text_is_said(project: Project) -> None:
    odd = "os.fsdecode(b'pages/\\xff.txt')"
    for name in ("t-1", "t-2"):
        project.task(name, act=f"git('reset', '-q', '--hard', 'main')\ncommit({odd}, 'both')")
        project.act(name, CLASH.replace('"pages/shared.txt"', odd), launch=1)
    ran = project.run()
    assert ran.code == 0, ran.said
    assert sorted(project.landed()) == ["t-1", "t-2"]
