"""Several branches behind one run of the gate: who lands, who is refused, and what the gate saw.

A gate that waits for a file holds the first landing up, so that the others are there when it is over.
"""

from __future__ import annotations

import json

import pytest

from tests.factory.kit import GREEN, Project, until

HELD = "echo seen >> {place}/gates; while ! test -e {folder}/go; do sleep 0.02; done"


def hold(project: Project, *more: str, **merge: object) -> None:
    """A gate that begins, and does not go on before it is told to."""
    held = HELD.format(place=project.place, folder=project.folder)
    project.configure(gate={"commands": [held, *more, GREEN]}, run={"width": 8, "gate_retries": 0})
    project.configure(merge=merge)
    project.commit("a gate that waits")


def go(project: Project, count: int) -> tuple[int, str]:
    """Let the gate go on once all agents have ended and the first landing has begun."""
    process = project.start("run")
    until((project.place / "gates").exists, "the first gate to begin")
    until(lambda: sum(line.event == "ended" for line in project.journal()) >= count, "all agents to end")
    until(lambda: waiting(project) >= count - 1, "the others to wait")
    project.say("go")
    out, err = process.communicate(timeout=90)
    return process.returncode, out + err


def saying(project: Project, words: str) -> list[str]:
    """The tasks about which the board says so."""
    board = project.root / ".flyball" / "board.json"
    rows = json.loads(board.read_text())["rows"] if board.exists() else []
    return [row["task"] for row in rows if words in row["why"]]


def waiting(project: Project) -> int:
    return len(saying(project, "waits for another landing"))


def gates(project: Project) -> int:
    return len((project.place / "gates").read_text().splitlines())


def test_those_that_wait_land_behind_one_gate_and_the_branch_moves_once_for_them(project: Project) -> None:
    hold(project)
    names = project.tasks(4)
    code, said = go(project, 4)
    assert code == 0, said
    assert project.wrongs(names) == []
    assert gates(project) == 2
    before = project.tips()[-3]
    assert project.git("log", "-1", "--format=%s", before) == "tasks"
    assert project.git("rev-list", "--count", f"{before}..main") == "4"


def test_each_task_closes_in_its_own_commit_of_the_batch(project: Project) -> None:
    hold(project)
    names = project.tasks(3)
    code, said = go(project, 3)
    assert code == 0, said
    for name in names:
        commit = project.git("log", "-1", "--format=%H", "main", "--", f"pages/{name}.txt")
        changed = project.git("show", "--format=", "--name-only", commit).split()
        assert changed == [f"pages/{name}.txt", f"tasks/{name}.md"]


def test_a_batch_of_one_is_one_at_a_time(project: Project) -> None:
    hold(project, batch=1)
    names = project.tasks(3)
    code, said = go(project, 3)
    assert code == 0, said
    assert project.wrongs(names) == []
    assert gates(project) == 3


def test_a_batch_is_no_larger_than_it_may_be(project: Project) -> None:
    hold(project, batch=2)
    names = project.tasks(5)
    code, said = go(project, 5)
    assert code == 0, said
    assert project.wrongs(names) == []
    assert gates(project) == 3


@pytest.mark.parametrize("bad", [{"t-6"}, {"t-3", "t-5"}])
def test_of_a_red_batch_exactly_the_bad_ones_are_refused(project: Project, bad: set[str]) -> None:
    hold(project)
    names = project.tasks(6)
    for name in bad:
        project.act(name, f"write('pages/{name}.txt', 'bad')")
    code, said = go(project, 6)
    assert code == 1, said
    good = [name for name in names if name not in bad]
    assert project.wrongs(good) == []
    assert set(project.branches()) == {f"agent/{name}" for name in bad}
    for name in bad:
        assert f"{name}  gate-failed" in said


def test_one_that_is_red_only_together_with_another_is_refused_and_the_other_lands(project: Project) -> None:
    hold(project, "! { test -e pages/t-2.txt && test -e pages/t-3.txt; }")
    project.tasks(4)
    code, said = go(project, 4)
    assert code == 1, said
    assert len(project.landed()) == 3
    assert project.wrongs(project.landed()) == []
    assert project.branches() in (["agent/t-2"], ["agent/t-3"])


def test_a_gate_that_errs_once_on_a_batch_costs_nobody_anything(project: Project) -> None:
    count = f"n=$(wc -l < {project.place}/gates); test $n -ne 2"
    hold(project, count)
    names = project.tasks(4)
    code, said = go(project, 4)
    assert code == 0, said
    assert project.wrongs(names) == []


SHARED = "commit('pages/shared.txt', f'of {task}', f'Add page {task}')"
SOLVED = "git('reset', '--hard', 'main')\ncommit('pages/shared.txt', f'then {task}', f'Add page {task}')"


def test_one_that_clashes_with_the_batch_goes_back_and_the_others_land(project: Project) -> None:
    hold(project)
    project.tasks(4)
    for name in ("t-2", "t-3"):
        project.act(name, f"wait_for(folder / 'held')\n{SHARED}", launch=1)
        project.act(name, SOLVED)
    process = project.start("run")
    until((project.place / "gates").exists, "the first gate to begin")
    project.say("held")
    until(lambda: waiting(project) == 3, "the others to wait")
    project.say("go")
    out, err = process.communicate(timeout=90)
    assert process.returncode == 0, out + err
    assert project.wrongs(["t-1", "t-2", "t-3", "t-4"]) == []
    assert sum(len(project.began(name)) for name in ("t-2", "t-3")) == 3
    assert [len(project.began(name)) for name in ("t-1", "t-4")] == [1, 1]


def test_one_that_clashes_only_with_a_refused_one_lands(project: Project) -> None:
    hold(project)
    project.tasks(3)
    project.act("t-2", "wait_for(folder / 'second')\ncommit('pages/shared.txt', 'bad')")
    project.act("t-3", f"wait_for(folder / 'third')\n{SHARED}")
    process = project.start("run")
    until((project.place / "gates").exists, "the gate of t-1 to begin")
    project.say("second")
    until(lambda: waiting(project) == 1, "t-2 to wait")
    project.say("third")
    until(lambda: waiting(project) == 2, "t-3 to wait")
    project.say("go")
    out, err = process.communicate(timeout=90)
    assert process.returncode == 1, out + err
    assert project.landed() == ["t-1", "t-3"]
    assert project.wrongs(["t-1", "t-3"]) == []
    assert project.branches() == ["agent/t-2"]


def test_a_default_branch_that_moves_during_a_batch_is_landed_on_again(project: Project) -> None:
    once, root = project.place / "once", project.root
    moved = f"test $(wc -l < {project.place}/gates) -lt 2 -o -e {once} || " + (
        f"{{ touch {once}; cd {root}; git commit -q --allow-empty -m 'somebody else'; }}"
    )
    hold(project, moved)
    names = project.tasks(4)
    code, said = go(project, 4)
    assert code == 0, said
    assert project.wrongs(names) == []
    assert "somebody else" in project.git("log", "--format=%s", "main").splitlines()
    assert gates(project) == 3


def test_a_task_that_is_stopped_leaves_the_others_of_its_batch_to_land(project: Project) -> None:
    wait = f"while ! test -e {project.folder}/on; do sleep 0.02; done"
    hold(project, f"test $(wc -l < {project.place}/gates) -ne 2 || {wait}")
    project.tasks(4)
    process = project.start("run")
    until((project.place / "gates").exists, "the first gate to begin")
    until(lambda: waiting(project) == 3, "the others to wait")
    project.say("go")
    until(lambda: gates(project) == 2, "the gate of the batch to begin")
    until(lambda: len(saying(project, "lands together")) == 3, "the board to say so")
    together = saying(project, "lands together")
    assert project.flyball("stop", together[0]).code == 0
    project.say("on")
    out, err = process.communicate(timeout=90)
    assert together[0] not in project.landed(), out + err
    assert sorted(project.landed()) == sorted({"t-1", "t-2", "t-3", "t-4"} - {together[0]})
    assert project.run().code == 0
    assert project.wrongs(["t-1", "t-2", "t-3", "t-4"]) == []


# -- squash ---------------------------------------------------------------------------------------------


def test_squashed_work_lands_as_one_commit_with_all_that_was_said(project: Project) -> None:
    project.configure(merge={"squash": True})
    twice = (
        "commit('pages/a.txt', 'a', 'Add a')\n"
        "commit('pages/b.txt', 'b', 'Mend b\\n\\nIt was broken.')\n"
        "git('commit', '-q', '--amend', '--no-edit', '--author', 'Other <other@example.org>')"
    )
    project.task("t-1", act=twice, write="pages/*")
    before = project.git("rev-parse", "main")
    ran = project.run()
    assert ran.code == 0, ran.said
    assert project.git("rev-list", "--count", f"{before}..main") == "1"
    message = project.git("log", "-1", "--format=%B", "main")
    assert message.splitlines()[0] == "Add page t-1"
    assert "Add a\n\nMend b\n\nIt was broken.\n\nTask: t-1\n" in message
    assert "Co-authored-by: Other <other@example.org>" in message
    assert project.git("log", "-1", "--format=%an %ae", "main") == "Someone someone@example.org"
    assert project.wrongs(["t-1"]) == []


def test_squashed_branches_land_together_too(project: Project) -> None:
    hold(project, squash=True)
    for name in ("t-1", "t-2", "t-3"):
        project.task(name, act="commit(f'pages/{task}.a', 'a', 'one')\ncommit(f'pages/{task}.b', 'b', 'two')")
    before = project.git("rev-parse", "main")
    code, said = go(project, 3)
    assert code == 0, said
    assert project.wrongs(["t-1", "t-2", "t-3"]) == []
    assert project.git("rev-list", "--count", f"{before}..main") == "3"
