"""No agent moves the default branch through flyball's own git, whatever it makes of its branch."""

from __future__ import annotations

import pytest

from tests.factory.kit import Project
from tests.waiting import until

OWN = """
own = Path('.git')
ref = own / 'refs/heads/agent/t-1'
"""
UNGATED = "write('pages/bad.txt', 'bad\\n')\nwrite('flyball.toml', '')\n"
MADE_SYMBOLIC = f"{OWN}ref.write_text('ref: refs/heads/main\\n')\n{UNGATED}"
MADE_A_LINK = f"{OWN}ref.unlink()\nref.symlink_to('../main')\n{UNGATED}"
MADE_A_NAMED_LINK = f"{OWN}ref.unlink()\nref.symlink_to('refs/heads/main')\n{UNGATED}"
HEAD_ELSEWHERE = f"{OWN}(own / 'HEAD').write_text('ref: refs/heads/main\\n')\n{UNGATED}"
HEAD_IN_TWO_STEPS = f"""{OWN}
(own / 'refs/worktree').mkdir(parents=True, exist_ok=True)
(own / 'refs/worktree/x').write_text('ref: refs/heads/main\\n')
(own / 'HEAD').write_text('ref: refs/worktree/x\\n')
{UNGATED}"""
A_REBASE_OF_MAIN = f"""{OWN}
commit('pages/bad.txt', 'bad\\n')
tip = git('rev-parse', 'HEAD')
for name, head in (('rebase-merge', 'agent/t-1'), ('rebase-apply', 'main')):
    (own / name).mkdir()
    files = {{'head-name': f'refs/heads/{{head}}', 'orig-head': tip, 'onto': tip, 'quiet': ''}}
    for file, text in files.items():
        (own / name / file).write_text(text + '\\n')
"""
"""Two at once: one that looks like the agent's own, and one that git looks at first."""


@pytest.mark.parametrize(
    "act",
    [
        MADE_SYMBOLIC,
        MADE_A_LINK,
        MADE_A_NAMED_LINK,
        HEAD_ELSEWHERE,
        HEAD_IN_TWO_STEPS,
        A_REBASE_OF_MAIN,
        f"{A_REBASE_OF_MAIN}\nsys.exit(1)",
    ],
    ids=[
        "symbolic",
        "link",
        "named link",
        "HEAD on main",
        "HEAD in two steps",
        "rebase",
        "rebase, failed",
    ],
)
def test_what_the_gate_refuses_stays_off_main_whatever_the_agent_makes_of_its_branch(
    hostile: Project, act: str
) -> None:
    hostile.configure(run={"attempts": 2})
    hostile.commit("twice")
    hostile.task("t-1", act=act)
    main = hostile.git("rev-parse", "main")
    ran = hostile.run("--json")
    assert hostile.git("rev-parse", "main") == main, ran.said
    assert list(ran.json["blocked"]) == ["t-1"], ran.said


def test_an_honest_task_that_lands_after_it_pushes_nothing_of_a_hostile_one(hostile: Project) -> None:
    origin = hostile.with_origin()
    hostile.configure(merge={"push": True}, run={"width": 1})
    hostile.commit("push")
    hostile.git("push", "--quiet", "origin", "main")
    hostile.task("t-1", "priority: 0", act=f"{MADE_SYMBOLIC}write('.github/workflows/evil.yml', 'x')")
    hostile.task("t-2")
    ran = hostile.run("--json")
    assert ran.json["merged"] == ["t-2"], ran.said
    there = hostile.git("ls-tree", "-r", "--name-only", "main", cwd=origin).split()
    assert "pages/t-2.txt" in there
    assert not {"pages/bad.txt", ".github/workflows/evil.yml"} & set(there)


def test_gc_does_not_delete_what_an_agent_made_a_branch_point_to(hostile: Project) -> None:
    hostile.task(
        "t-1",
        act=f"{OWN}(ref.parent / 't-9').write_text('ref: refs/heads/main\\n')\nwrite('pages/t-1.txt', '')",
    )
    assert hostile.run().code == 0
    main = hostile.git("rev-parse", "main")
    ran = hostile.flyball("gc")
    assert hostile.git("rev-parse", "main") == main, ran.said


MOVES_MAIN = """
commit('pages/bad.txt', 'bad\\n')
plain = {key: os.environ[key] for key in ('PATH', 'HOME')}
root = Path('.git/flyball-borrowed-from').read_text().strip()
reached = ['/usr/bin/git', '-C', root]
subprocess.run([*reached, 'fetch', '-q', os.getcwd(), 'HEAD:refs/heads/agent/x'], env=plain)
Path(root, '.git/refs/heads/main').write_text(git('rev-parse', 'HEAD') + '\\n')
(folder / 'moved').write_text('0')
"""
"""Past the fence, with the real git and none of the variables that it is kept by."""


def test_a_run_stops_where_an_agent_moved_main_by_itself_and_says_how_to_go_on(project: Project) -> None:
    origin = project.with_origin()
    project.configure(merge={"push": True}, run={"width": 1})
    project.commit("push")
    project.git("push", "--quiet", "origin", "main")
    project.task("t-1", "priority: 0", act=MOVES_MAIN)
    project.task("t-2")
    before = project.git("rev-parse", "main")
    ran = project.run("--json")
    assert (project.folder / "moved").read_text() == "0"
    assert "agent/t-1" in ran.json["paused"], ran.said
    assert ran.json["merged"] == []
    assert "pages/bad.txt" not in project.git("ls-tree", "-r", "--name-only", "main", cwd=origin).split()
    project.git("update-ref", "refs/heads/main", before)
    project.git("reset", "--quiet", "--hard")
    ran = project.run("--json")
    assert ran.json["merged"] == ["t-2"], ran.said
    assert list(ran.json["blocked"]) == ["t-1"], ran.said


def test_a_person_and_a_teammate_go_on_committing_to_main_during_a_run(project: Project) -> None:
    origin = project.with_origin()
    project.configure(run={"width": 1})
    project.commit("one at a time")
    project.git("push", "--quiet", "origin", "main")
    project.task(
        "t-1",
        "priority: 0",
        act="(folder / 'up').touch()\nwait_for(folder / 'committed')\n"
        "git('rebase', '--quiet', 'main')\nwrite('pages/t-1.txt', 'x')",
    )
    project.task(
        "t-2", act="(folder / 'second').touch()\nwait_for(folder / 'pushed')\nwrite('pages/t-2.txt', 'x')"
    )
    process = project.start("run", "--json")
    project.wait("up")
    project.write("notes", "of a person")
    project.commit("a person's own")
    project.say("committed")
    project.wait("second")
    until(lambda: project.landed() == ["t-1"], "the first to land")
    clone = project.place / "clone"
    project.git("push", "--quiet", "origin", "main")
    project.git("clone", "--quiet", str(origin), str(clone))
    (clone / "theirs").write_text("x")
    project.git("add", "--all", cwd=clone)
    project.git("commit", "--quiet", "--message", "a teammate's", cwd=clone)
    project.git("push", "--quiet", "origin", "main", cwd=clone)
    project.say("pushed")
    out, err = process.communicate(timeout=100)
    assert process.returncode == 0, out + err
    assert {"pages/t-1.txt", "pages/t-2.txt", "notes", "theirs"} <= set(project.files())


def test_a_person_may_merge_an_agent_s_branch_by_hand(project: Project) -> None:
    project.configure(merge={"policy": "manual"})
    project.commit("by hand")
    project.task("t-1")
    assert project.run().code == 0
    project.git("merge", "--quiet", "agent/t-1")
    project.configure(merge={"policy": "auto"})
    project.commit("by itself")
    project.task("t-2")
    ran = project.run("--json")
    assert ran.json["merged"] == ["t-2"], ran.said
