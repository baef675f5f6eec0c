"""Several branches behind one run of the gate: who lands, who is refused, and what the gate saw."""

from __future__ import annotations

import shutil

from tests.factory.kit import GREEN, Project
from tests.waiting import until


def counted(project: Project, *more: str, **merge: object) -> None:
    """A gate that counts how often it runs."""
    count = f"echo seen >> {project.place}/gates"
    project.configure(gate={"commands": [f"{count}; {' && '.join([*more, GREEN])}"]})
    project.configure(run={"width": 8, "gate_retries": 0}, merge=merge)
    project.commit("a gate that counts")


def together(project: Project, count: int) -> tuple[int, str]:
    """A run in which so many land together."""
    with project.landings_held(count):
        process = project.start("run")
    out, err = process.communicate(timeout=90)
    return process.returncode, out + err


def gates(project: Project) -> int:
    return len((project.place / "gates").read_text().splitlines())


def test_those_that_wait_land_behind_one_gate_and_the_branch_moves_once_for_them(project: Project) -> None:
    counted(project)
    names = project.tasks(4)
    before = project.git("rev-parse", "main")
    code, said = together(project, 4)
    assert code == 0, said
    assert project.wrongs(names) == []
    assert gates(project) == 1
    assert project.tips()[-2] == before
    for name in names:
        commit = project.git("log", "-1", "--format=%H", "main", "--", f"pages/{name}.txt")
        changed = project.git("show", "--format=", "--name-only", commit).split()
        assert changed == [f"pages/{name}.txt", f"tasks/{name}.md"]


def test_a_batch_of_one_is_one_at_a_time(project: Project) -> None:
    counted(project, batch=1)
    names = project.tasks(3)
    code, said = together(project, 3)
    assert code == 0, said
    assert project.wrongs(names) == []
    assert gates(project) == 3


def test_of_a_red_batch_exactly_the_bad_ones_are_refused(project: Project) -> None:
    counted(project)
    names = project.tasks(6)
    for name in ("t-3", "t-5"):
        project.act(name, f"write('pages/{name}.txt', 'bad')")
    code, said = together(project, 6)
    assert code == 1, said
    assert project.wrongs([name for name in names if name not in ("t-3", "t-5")]) == []
    assert project.branches() == ["agent/t-3", "agent/t-5"]
    for name in ("t-3", "t-5"):
        assert f"{name}  gate-failed" in said


def test_one_that_is_red_only_together_with_another_is_refused_and_the_other_lands(project: Project) -> None:
    counted(project, "! { test -e pages/t-2.txt && test -e pages/t-3.txt; }")
    project.tasks(3)
    code, said = together(project, 3)
    assert code == 1, said
    assert len(project.landed()) == 2
    assert project.wrongs(project.landed()) == []
    assert project.branches() in (["agent/t-2"], ["agent/t-3"])


def test_a_gate_that_errs_once_on_a_batch_costs_no_task_anything(project: Project) -> None:
    counted(project, f"test $(wc -l < {project.place}/gates) -ne 1")
    names = project.tasks(3)
    code, said = together(project, 3)
    assert code == 0, said
    assert project.wrongs(names) == []


SHARED = "commit('pages/shared.txt', f'of {task}', f'Add page {task}')"
SOLVED = "git('reset', '--hard', 'main')\ncommit('pages/shared.txt', f'then {task}', f'Add page {task}')"


def test_one_that_clashes_with_the_batch_goes_back_and_the_others_land(project: Project) -> None:
    counted(project)
    names = project.tasks(3)
    for name in ("t-2", "t-3"):
        project.act(name, SHARED, launch=1)
        project.act(name, SOLVED)
    code, said = together(project, 3)
    assert code == 0, said
    assert project.wrongs(names) == []
    assert sum(len(project.began(name)) for name in ("t-2", "t-3")) == 3
    assert len(project.began("t-1")) == 1


def test_one_that_clashes_only_with_a_refused_one_lands(project: Project) -> None:
    counted(project)
    project.tasks(2)
    project.act("t-1", "commit('pages/shared.txt', 'bad')")
    project.act("t-2", f"wait_for(folder / 'go')\n{SHARED}")
    with project.landings_held(2):
        process = project.start("run")
        until(lambda: project.saying("waits for another landing"), "t-1 to wait")
        project.say("go")
    out, err = process.communicate(timeout=90)
    assert process.returncode == 1, out + err
    assert project.wrongs(["t-2"]) == []
    assert project.branches() == ["agent/t-1"]


def test_a_default_branch_that_moves_during_a_batch_is_landed_on_again(project: Project) -> None:
    once = project.place / "once"
    moved = f"cd {project.root} && git commit -q --allow-empty -m 'another author'"
    counted(project, f"{{ test -e {once} || (touch {once}; {moved}); }}")
    names = project.tasks(3)
    code, said = together(project, 3)
    assert code == 0, said
    assert project.wrongs(names) == []
    assert "another author" in project.git("log", "--format=%s", "main").splitlines()
    assert gates(project) == 2


def test_a_task_that_is_stopped_leaves_the_others_of_its_batch_to_land(project: Project) -> None:
    wait = f"while ! test -e {project.folder}/on; do sleep 0.02; done"
    counted(project, f"{{ test $(wc -l < {project.place}/gates) -ne 1 || {wait}; }}")
    names = project.tasks(3)
    with project.landings_held(3):
        process = project.start("run")
    until(lambda: len(project.saying("lands together with")) == 3, "the batch to begin")
    assert project.flyball("stop", "t-2").code == 0
    out, err = process.communicate(timeout=90)
    assert sorted(project.landed()) == ["t-1", "t-3"], out + err
    assert project.run().code == 0
    assert project.wrongs(names) == []


# -- at origin --------------------------------------------------------------------------------------------


def test_a_rule_of_origins_against_one_keeps_back_only_that_one(project: Project) -> None:
    counted(project, push=True)
    project.tasks(3)
    hook = project.with_origin() / "hooks" / "pre-receive"
    rule = "read old new ref; ! git ls-tree -r --name-only $new | grep -q t-2.txt"
    hook.write_text(f"#!/bin/sh\n{rule}\n")
    hook.chmod(0o755)
    code, said = together(project, 3)
    assert code == 0, said
    assert project.wrongs(["t-1", "t-3"]) == []
    assert "t-2  no-remote: could not push to origin" in said


# -- squash ---------------------------------------------------------------------------------------------


def test_squashed_work_lands_as_one_commit_each_with_all_that_was_said(project: Project) -> None:
    counted(project, squash=True)
    project.tasks(2)
    project.act(
        "t-1",
        "commit('pages/t-1.a', 'a', 'Add a')\n"
        "commit('pages/t-1.b', 'b', 'Mend b\\n\\nIt was broken.')\n"
        "git('commit', '-q', '--amend', '--no-edit', '--author', 'Other <other@example.org>')",
    )
    before = project.git("rev-parse", "main")
    code, said = together(project, 2)
    assert code == 0, said
    assert project.wrongs(["t-1", "t-2"]) == []
    assert project.git("rev-list", "--count", f"{before}..main") == "2"
    commit = project.git("log", "-1", "--format=%H", "main", "--", "pages/t-1.b")
    message = project.git("log", "-1", "--format=%B", commit)
    assert message.splitlines()[0] == "Add page t-1"
    assert "Add a\n\nMend b\n\nIt was broken.\n\nTask: t-1\n" in message
    assert "Co-authored-by: Other <other@example.org>" in message
    assert project.git("log", "-1", "--format=%an %ae", commit) == "Someone someone@example.org"


def test_one_whose_task_cannot_be_closed_is_refused_and_the_others_land(project: Project) -> None:
    counted(project)
    project.tasks(3)
    odd = project.place / "bin" / "git"
    odd.parent.mkdir()
    refusal = 'case "$PWD $*" in *.landing*add*--force*t-2.md) echo cannot add >&2; exit 1;; esac'
    odd.write_text(f'#!/bin/sh\n{refusal}\nexec {shutil.which("git")} "$@"\n')
    odd.chmod(0o755)
    project.env["PATH"] = f"{odd.parent}:{project.env['PATH']}"
    code, said = together(project, 3)
    assert code == 1, said
    assert "t-2  error: git add failed" in said
    assert project.wrongs(["t-1", "t-3"]) == []
