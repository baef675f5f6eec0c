"""Tasks that are wrong, or that people change, move and delete while agents work on them."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.factory.kit import SOAK, Project
from tests.waiting import until

pytestmark = pytest.mark.faults
WAITS = "wait_for(folder / f'go-{task}')\nwrite(f'pages/{task}.txt', 'x')"


def begun(project: Project, task: str) -> None:
    until(lambda: project.began(task), f"the agent of {task} to begin")


# -- wrong from the beginning -----------------------------------------------------------------------------

MALFORMED: dict[str, str | bytes] = {
    "no id": "---\ntitle: x\nstatus: open\n---\n",
    "not closed": "---\nid: t-9\ntitle: x\n",
    "no YAML": "---\nid: [t-9\ntitle: x\n---\n",
    "a status that is none": "---\nid: t-9\ntitle: x\nstatus: maybe\n---\n",
    "an id that is none": "---\nid: ../../etc\ntitle: x\nstatus: open\n---\n",
    "an id of git's own": "---\nid: x.lock\ntitle: x\nstatus: open\n---\n",
    "no text": b"---\nid: t-9\ntitle: \xff\n---\n",
    "a hundred aliases": "---\nid: t-9\ntitle: &a [x]\nlabels: [*a, *a]\nstatus: open\n---\n",
}


def test_malformed_tasks_are_each_named_and_keep_no_other_back(project: Project) -> None:
    project.task("t-1")
    for name, text in MALFORMED.items():
        project.write(f"tasks/{name}.md", text)
    ran = project.run("--json")
    assert ran.code == 1
    assert {problem["where"] for problem in ran.json["problems"]} == {
        f"tasks/{name}.md" for name in MALFORMED
    }
    assert project.landed() == ["t-1"]
    assert "Traceback" not in ran.err


def test_two_tasks_of_one_id_are_both_left_alone_and_named(project: Project) -> None:
    project.task("t-1")
    project.write("tasks/a.md", "---\nid: t-2\ntitle: one\nstatus: open\n---\n")
    project.write("tasks/b.md", "---\nid: T-2\ntitle: other\nstatus: open\n---\n")
    ran = project.run()
    assert ran.code == 1
    assert "tasks/a.md" in ran.out
    assert "tasks/b.md" in ran.out
    assert project.landed() == ["t-1"]


def test_tasks_that_wait_for_each_other_are_named_with_their_circle(project: Project) -> None:
    project.task("t-1", "needs: [t-2]")
    project.task("t-2", "needs: [t-1]")
    project.task("t-3")
    ran = project.run()
    assert ran.code == 1
    assert "t-1 -> t-2 -> t-1" in ran.out
    assert project.landed() == ["t-3"]


def test_a_task_that_needs_one_that_does_not_exist_is_named(project: Project) -> None:
    project.task("t-1", "needs: [t-77]")
    ran = project.run()
    assert ran.code == 1
    assert "needs t-77, which does not exist" in ran.out


def test_a_task_that_needs_a_blocked_one_is_named(project: Project) -> None:
    project.configure(run={"attempts": 1})
    project.task("t-1", act="sys.exit(1)")
    project.task("t-2", "needs: [t-1]")
    ran = project.run()
    assert ran.code == 1
    assert "needs t-1, which is not merged" in ran.out
    assert [line.task for line in project.began()] == ["t-1"]


def test_ids_of_any_script_become_branches_and_land(project: Project) -> None:
    names = ["aufgabe-\u00e4", "\u4efb\u52a1-1", "\u0437\u0430\u0434\u0430\u0447\u0430_2", "t.1"]
    for name in names:
        project.task(name)
    ran = project.run()
    assert ran.code == 0, ran.said
    assert project.wrongs(names) == []


def test_an_id_that_is_a_folder_of_another_one_is_not_a_problem(project: Project) -> None:
    """A branch may not lie beneath another; ids have no slashes, so neither do branches."""
    project.task("t-1")
    project.git("branch", "agent/t-1/inner")
    ran = project.run()
    assert ran.code == 1
    assert "agent/t-1" in ran.out
    assert project.leases() == []
    assert "Traceback" not in ran.err


@pytest.mark.parametrize("count", [300 if SOAK else 40])
def test_many_tasks_all_land_and_leave_nothing(project: Project, count: int) -> None:
    project.configure(gate={"commands": []}, run={"width": 8})
    names = project.tasks(count)
    ran = project.run(timeout_s=100 if not SOAK else 1000)
    assert ran.code == 0, ran.said[-2000:]
    assert project.wrongs(names) == []


def test_a_plan_of_many_tasks_names_each(project: Project) -> None:
    names = project.tasks(300)
    plan = project.run("--dry-run", "--json").json
    told = [start["task"] for start in plan["starts"]] + [wait["task"] for wait in plan["waits"]]
    assert sorted(told) == sorted(names)


# -- changed while an agent works -------------------------------------------------------------------------


def test_a_task_edited_while_running_lands_as_it_was_edited(project: Project) -> None:
    path = project.task("t-1", act=WAITS, body="as it was")
    process = project.start("run")
    begun(project, "t-1")
    path.write_text(path.read_text().replace("as it was", "as it is now"))
    project.say("go-t-1")
    out, _ = process.communicate(timeout=30)
    assert process.returncode == 0, out
    assert "as it is now" in project.git("show", "main:tasks/t-1.md")
    assert project.wrongs(["t-1"]) == []
    assert project.git("status", "--porcelain") == ""


def test_a_task_renamed_while_running_is_not_done_twice(project: Project) -> None:
    path = project.task("t-1", act=WAITS)
    process = project.start("run")
    begun(project, "t-1")
    path.rename(path.with_name("renamed.md"))
    project.say("go-t-1")
    out, err = process.communicate(timeout=30)
    assert process.returncode == 0, out + err
    assert project.landed() == ["t-1"]
    assert project.run().code == 0
    assert len(project.began("t-1")) == 1
    assert project.leases() == []


def test_a_task_given_another_id_while_running_is_another_task(project: Project) -> None:
    path = project.task("t-1", act=WAITS)
    process = project.start("run")
    begun(project, "t-1")
    path.write_text(path.read_text().replace("id: t-1", "id: t-2"))
    project.say("go-t-1")
    _, err = process.communicate(timeout=30)
    assert "Traceback" not in err, err
    assert project.leases() == []
    assert [line for line in project.journal() if line.event == "clash"] == []
    assert len(project.began("t-1")) == 1


def test_a_task_deleted_while_running_lands_what_was_done(project: Project) -> None:
    path = project.task("t-1", act=WAITS)
    process = project.start("run")
    begun(project, "t-1")
    path.unlink()
    project.say("go-t-1")
    out, err = process.communicate(timeout=30)
    assert process.returncode == 0, out + err
    assert project.landed() == ["t-1"]
    assert not path.exists(), "what a person deleted stays deleted"
    assert project.run().code == 0
    assert len(project.began("t-1")) == 1


def test_a_task_that_became_unreadable_while_running_does_not_stop_the_run(project: Project) -> None:
    path = project.task("t-1", act=WAITS)
    project.task("t-2")
    process = project.start("run")
    begun(project, "t-1")
    path.write_text("---\nid: [t-1\n---\n")
    project.say("go-t-1")
    _, err = process.communicate(timeout=30)
    assert "Traceback" not in err, err
    assert "t-2" in project.landed()
    assert project.leases() == []
    assert path.read_text() == "---\nid: [t-1\n---\n"


def test_a_task_closed_by_a_person_while_running_is_not_an_error(project: Project) -> None:
    path = project.task("t-1", act=WAITS)
    process = project.start("run")
    begun(project, "t-1")
    path.write_text(path.read_text().replace("status: open", "status: closed"))
    project.say("go-t-1")
    out, err = process.communicate(timeout=30)
    assert process.returncode == 0, out + err
    assert project.wrongs(["t-1"]) == []


def test_the_task_folder_deleted_while_running_does_not_stop_the_run(project: Project) -> None:
    path = project.task("t-1", act=WAITS)
    process = project.start("run")
    begun(project, "t-1")
    path.unlink()
    path.parent.rmdir()
    project.say("go-t-1")
    _, err = process.communicate(timeout=30)
    assert "Traceback" not in err, err
    assert project.landed() == ["t-1"]


def test_a_task_deleted_before_the_run_goes_on_is_blocked_and_its_branch_kept(project: Project) -> None:
    path = project.task("t-1")
    assert project.run(die_at="after:launch.begun").code == -9
    path.unlink()
    ran = project.run()
    assert ran.code == 1
    assert "its task is gone" in ran.out
    assert project.branches() == ["agent/t-1"]


def close(project: Project, path: Path) -> None:
    path.write_text(path.read_text().replace("status: open", "status: closed"))
    project.commit("not wanted any more")


def test_a_task_closed_after_its_agent_was_stopped_is_let_go_and_its_work_kept(project: Project) -> None:
    path = project.task("t-1", act=f"write('pages/t-1.txt', 'half')\n{WAITS}")
    process = project.start("run")
    begun(project, "t-1")
    until(lambda: (project.workspace("t-1") / "pages/t-1.txt").exists(), "half a page")
    process.kill()  # its agent lives on
    process.wait()
    close(project, path)
    assert project.run("--dry-run", "--json").json["resumes"] == {}
    assert "its task was closed; flyball run lets it go" in project.flyball("board").out
    ran = project.run()
    assert ran.code == 0, ran.said
    assert "t-1 was closed before it landed and is let go; its branch agent/t-1 is kept" in ran.out
    assert len(project.began()) == 1
    assert project.landed() == []
    assert (project.leases(), project.processes(), project.branches()) == ([], [], ["agent/t-1"])
    assert (project.workspace("t-1") / "pages/t-1.txt").exists()
    assert "let go" not in project.run().out


@pytest.mark.parametrize("cut", ["before:worktree.begun", "before:launch.done", "before:land.begun"])
def test_a_task_closed_before_it_began_to_land_is_let_go(project: Project, cut: str) -> None:
    path = project.task("t-1")
    assert project.run(die_at=cut).code == -9
    begun_before = len(project.began())
    close(project, path)
    ran = project.run()
    assert ran.code == 0, ran.said
    assert "is let go" in ran.out
    assert len(project.began()) == begun_before
    assert project.landed() == []


def test_a_task_closed_while_it_landed_lands(project: Project) -> None:
    path = project.task("t-1")
    assert project.run(die_at="after:land.begun").code == -9
    close(project, path)
    ran = project.run()
    assert ran.code == 0, ran.said
    assert project.wrongs(["t-1"]) == []


def test_a_task_deleted_while_it_landed_is_landed_once(project: Project) -> None:
    path = project.task("t-1")
    assert project.run(die_at="after:advance.begun").code == -9
    path.unlink()
    ran = project.run()
    assert project.landed() == ["t-1"], ran.said
    assert project.leases() == []
    assert project.workspaces() == []


def test_the_configuration_may_change_while_a_run_goes_on(project: Project) -> None:
    project.task("t-1", act=WAITS)
    process = project.start("run")
    begun(project, "t-1")
    (project.root / "flyball.toml").write_text("not toml at all [")
    project.say("go-t-1")
    out, err = process.communicate(timeout=30)
    assert process.returncode == 0, out + err
    assert project.landed() == ["t-1"]
