"""The gate's commands: where they run, in which order, and what is kept of them."""

from __future__ import annotations

import pytest

from tests.factory.kit import GREEN, Project


def commands(project: Project, *words: str) -> None:
    project.configure(gate={"commands": list(words)})
    project.commit("another gate")


def test_the_first_red_command_is_the_last_that_runs(project: Project) -> None:
    log = project.place / "log"
    commands(project, f"echo one >> {log}", f"echo two >> {log}; false", f"echo three >> {log}")
    project.configure(run={"gate_retries": 0})
    project.task("t-1")
    ran = project.run()
    assert ran.code == 1
    assert log.read_text() == "one\ntwo\n"
    assert "echo two" in ran.out


def test_a_gate_sees_the_work_on_top_of_the_branch_with_its_task_closed(project: Project) -> None:
    commands(project, "test -f pages/t-1.txt", "grep -q 'status: closed' tasks/t-1.md", "test -f lib/late")
    project.task("t-1", act="wait_for(folder / 'go')\nwrite('pages/t-1.txt', 'x')")
    process = project.start("run")
    project.read_until(process, "t-1 running")
    project.write("lib/late", "landed meanwhile")
    project.commit("late")
    project.say("go")
    out, _ = process.communicate(timeout=60)
    assert process.returncode == 0, out
    assert project.wrongs(["t-1"]) == []


def test_a_gate_runs_in_neither_the_checkout_nor_the_agents_worktree(project: Project) -> None:
    where = project.place / "where"
    commands(project, f"pwd > {where}")
    project.task("t-1")
    assert project.run().code == 0
    assert where.read_text().strip() not in (str(project.root), str(project.workspace("t-1")))


def test_both_streams_are_kept_in_the_order_in_which_they_came(project: Project) -> None:
    commands(project, "echo one; echo two >&2; echo three")
    project.task("t-1")
    assert project.run().code == 0
    assert (project.folders("t-1")[0] / "gate-1" / "gate.log").read_text() == "one\ntwo\nthree\n"


def test_every_time_a_gate_runs_its_output_is_kept(project: Project) -> None:
    once = project.place / "once"
    moved = f"test -e {once} || {{ touch {once}; cd {project.root}; git commit -q --allow-empty -m moved; }}"
    commands(project, f"{moved}; git log -1 --format=%s HEAD~1")
    project.task("t-1")
    assert project.run().code == 0
    logs = sorted(project.folders("t-1")[0].glob("gate-*/gate.log"))
    assert len(logs) == 2
    assert "moved" in logs[1].read_text()


def test_what_a_gates_tools_cache_in_ignored_files_stays_warm(project: Project) -> None:
    seen = project.place / "seen"
    project.write(".gitignore", "cache/\n")
    commands(project, f"test -d cache && echo warm >> {seen}; mkdir -p cache", GREEN)
    # One after the other: two that land together need one gate.
    project.configure(merge={"batch": 1})
    names = project.tasks(2)
    assert project.run().code == 0
    assert project.wrongs(names) == []
    assert seen.read_text() == "warm\n"


def test_a_slow_gate_of_one_task_does_not_delay_the_agent_of_another(project: Project) -> None:
    gate = f"grep -qs slow pages/t-1.txt && test ! -f pages/t-2.txt || exit 0; touch {project.folder}/slow"
    wait = f"while ! test -e {project.folder}/ended; do sleep 0.02; done"
    commands(project, f"{gate}; {wait}")
    project.task("t-1", act="write('pages/t-1.txt', 'slow')")
    project.task(
        "t-2", act="wait_for(folder / 'slow')\nwrite('pages/t-2.txt', 'x')\n(folder / 'ended').touch()"
    )
    assert project.run(timeout_s=60).code == 0
    assert project.landed() == ["t-1", "t-2"]


# -- commands that cannot be run at all ---------------------------------------------------------------------


@pytest.mark.parametrize(
    ("command", "words"),
    [("no-such-tool --check", "exited with 127: it was not found"), ("tools/x", "126: it cannot be run")],
)
def test_a_command_that_cannot_be_run_is_the_owners_to_mend_and_no_agent_is_paid_again(
    project: Project, command: str, words: str
) -> None:
    project.write("tools/x", "not a program")
    commands(project, command, GREEN)
    project.task("t-1")
    ran = project.run("--json")
    assert ran.code == 0, ran.said
    why = ran.json["waiting_for_you"]["t-1"]
    assert why.startswith(f"gate-broken: `{command}` ")
    assert words in why
    assert "put right gate.commands in flyball.toml" in why
    assert project.run().code == 0, "as it was: the command is still broken"
    assert "flyball run lands it again" in project.flyball("task", "why", "t-1").out
    commands(project, GREEN)
    ran = project.run()
    assert ran.code == 0, ran.said
    assert project.wrongs(["t-1"]) == []
    assert len(project.began("t-1")) == 1


def test_a_check_that_the_work_itself_took_away_goes_back_to_the_agent(project: Project) -> None:
    project.write("tools/check.sh", "#!/bin/sh\n").chmod(0o755)
    project.configure(gate={"protect": False})
    commands(project, "./tools/check.sh")
    project.task("t-1")
    project.act("t-1", "git('mv', 'tools/check.sh', 'tools/look.sh')\nwrite('pages/t-1.txt', 'x')", launch=1)
    project.act("t-1", "git('mv', 'tools/look.sh', 'tools/check.sh')")
    ran = project.run()
    assert ran.code == 0, ran.said
    assert [line.attempt for line in project.began()] == [1, 2]
    assert "The gate was red on your branch" in project.prompts("t-1")[1]


def test_a_broken_gate_keeps_back_a_whole_batch_and_each_lands_later(project: Project) -> None:
    commands(project, "no-such-tool")
    names = project.tasks(3)
    with project.landings_held(3):
        process = project.start("run", "--json")
    out, err = process.communicate(timeout=90)
    assert process.returncode == 0, out + err
    commands(project, GREEN)
    assert project.run().code == 0
    assert project.wrongs(names) == []
    assert len(project.began()) == 3
