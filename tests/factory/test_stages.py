"""Further agents in a task's worktree before it lands: in order, once each, counted, and never half done."""

from __future__ import annotations

import json

import pytest

from tests.factory.kit import Project
from tests.factory.run.test_review import PAGE, began, record_of

DOCS = "write('docs/t-1.md', 'about t-1')"


def stages(project: Project, **parts: dict[str, object]) -> None:
    project.configure(**{f"stages.{name}": part for name, part in parts.items()})


def test_stages_run_in_order_in_the_same_worktree_and_what_they_leave_lands(project: Project) -> None:
    stages(project, test={"prompt": "Test the edges."}, docs={})
    project.task("t-1", act=PAGE)
    project.act("t-1@test", "commit('tests/t-1.txt', Path('pages/t-1.txt').read_text())")
    project.act("t-1@docs", f"assert Path('tests/t-1.txt').exists()\n{DOCS}")
    ran = project.run()
    assert ran.code == 0, ran.said
    assert began(project) == ["t-1", "t-1@test", "t-1@docs"]
    assert {"pages/t-1.txt", "tests/t-1.txt", "docs/t-1.md"} <= set(project.files())
    assert project.wrongs(["t-1"]) == []
    prompt = project.prompts("t-1")[1]
    parts = ["# Project blog", "You test a change", "# Task t-1", "the stage test", "Test the edges."]
    assert sorted(parts, key=prompt.index) == parts


def test_a_stage_is_for_the_types_it_names_and_a_project_may_have_a_persona_of_its_own(
    project: Project,
) -> None:
    stages(project, docs={"types": ["bug"], "persona": "scribe"})
    project.write(".agents/personas/scribe.md", "---\nname: scribe\neffort: low\n---\nYou write verse.\n")
    project.task("t-1", act=PAGE)
    project.task("t-2", "type: bug", act=PAGE)
    project.act("t-2@docs", "assert os.environ['FLYBALL_EFFORT'] == 'low'\nwrite('pages/t-2.md', 'x')")
    ran = project.run()
    assert ran.code == 0, ran.said
    assert (began(project), began(project, "t-2")) == (["t-1"], ["t-2", "t-2@docs"])
    assert "You write verse." in project.prompts("t-2")[1]
    assert project.wrongs(["t-1", "t-2"]) == []


def test_a_stage_that_fails_sends_the_work_back_and_what_was_done_is_done_again(project: Project) -> None:
    stages(project, test={}, docs={})
    project.task("t-1", act=PAGE)
    project.act("t-1@test", "write(f'pages/test-{launch}.txt', 'x')")
    project.act("t-1@docs", "sys.exit(3)", launch=1)
    project.act("t-1@docs", DOCS, launch=2)
    ran = project.run()
    assert ran.code == 0, ran.said
    assert began(project) == ["t-1", "t-1@test", "t-1@docs"] * 2
    assert "the stage docs failed: it exited with status 3" in project.prompts("t-1")[3]
    assert project.wrongs(["t-1"]) == []


def test_a_stage_that_always_fails_blocks_and_one_that_is_not_required_is_only_noted(
    project: Project,
) -> None:
    project.configure(review={"rounds": 1})
    stages(project, docs={"types": ["task"]}, test={"types": ["bug"], "required": False})
    project.task("t-1", act=PAGE)
    project.act("t-1@docs", "sys.exit(3)")
    project.task("t-2", "type: bug", act=PAGE)
    project.act("t-2@test", "commit('pages/half.txt', 'x')\nwrite('pages/more.txt', 'x')\nsys.exit(3)")
    ran = project.run("--json")
    assert ran.code == 1
    blocked = ran.json["blocked"]["t-1"]
    assert blocked.startswith("the stage docs failed: it exited with status 3 after it was sent back once")
    assert len(project.began("t-1@docs")) == 2
    assert any("the stage test failed and is not required" in note for note in ran.json["notes"])
    assert project.wrongs(["t-2"]) == []
    assert not {"pages/half.txt", "pages/more.txt"} & set(project.files())


def test_a_stage_that_was_done_is_not_repeated_for_work_that_came_again_as_it_was(project: Project) -> None:
    stages(project, docs={})
    project.configure(review={"on": True})
    project.task("t-1", act="if launch == 1: write('pages/t-1.txt', 'x')")
    project.act("t-1@docs", DOCS)
    project.act("t-1@review", "review('no')", launch=1)
    ran = project.run()
    assert ran.code == 0, ran.said
    assert began(project) == ["t-1", "t-1@docs", "t-1@review", "t-1", "t-1@review"]
    assert project.wrongs(["t-1"]) == []


def test_what_cannot_land_anyway_is_not_checked(project: Project) -> None:
    stages(project, docs={})
    project.configure(review={"on": True})
    project.task("t-1", act="write('secrets/key', 'mine now')")
    ran = project.run("--json")
    assert ran.code == 1
    assert ran.json["blocked"]["t-1"].startswith("protected: it changes secrets/key")
    assert began(project) == ["t-1"]


def costly(project: Project) -> None:
    """An agent that tells what it costs, whatever it does."""
    line = {"type": "result", "subtype": "success", "is_error": False, "session_id": "s", "result": "done"}
    line |= {"total_cost_usd": 0.25, "usage": {"input_tokens": 10, "output_tokens": 5}}
    agent = f"""
import json, os, pathlib, sys
prompt, stage = sys.stdin.read(), os.environ["FLYBALL_STAGE"]
line = {line!r}
if stage == "review":
    met = [{{"criterion": 1, "met": True, "evidence": "seen"}}]
    line["result"] = "So: " + json.dumps({{"verdict": "pass", "criteria": met, "findings": []}})
else:
    pathlib.Path(f"page-{{stage}}.txt").write_text("x")
print(json.dumps(line))
"""
    command = [project.sections["agent"]["command"][0], str(project.folder / "agent.py")]
    (project.folder / "agent.py").write_text(agent)
    stages(project, docs={})
    project.configure(review={"on": True}, agent={"runtime": "claude", "command": command})
    project.task("t-1")


def test_what_stages_and_reviews_cost_counts_for_the_task(project: Project) -> None:
    costly(project)
    ran = project.run()
    assert ran.code == 0, ran.said
    record = record_of(project)
    assert record.spent.cost_usd == 0.75
    assert record.spent.tokens == 45
    assert record.agent.session == "s"
    summaries = [json.loads((folder / "summary.json").read_text()) for folder in project.folders("t-1")]
    assert [each.get("stage") for each in summaries] == [None, "docs", "review"]
    assert project.wrongs(["t-1"]) == []


def test_a_review_that_the_tasks_budget_does_not_allow_is_not_had(project: Project) -> None:
    costly(project)
    project.configure(budget={"task_usd": 0.5})
    ran = project.run()
    assert "unreviewed: budget: t-1 has cost $0.50; budget.task_usd allows $0.5" in ran.out, ran.said
    assert record_of(project).spent.cost_usd == 0.5
    assert project.landed() == []


@pytest.mark.faults
def test_a_stage_that_was_done_is_not_repeated_after_the_engine_was_killed(project: Project) -> None:
    stages(project, docs={})
    project.task("t-1", act=PAGE)
    project.act("t-1@docs", DOCS)
    assert project.run(die_at="after:stage.done").code == -9
    assert project.run().code == 0
    assert began(project) == ["t-1", "t-1@docs"]
    assert project.wrongs(["t-1"]) == []


@pytest.mark.faults
def test_a_stage_that_outlived_its_engine_is_ended_before_it_is_done_again(project: Project) -> None:
    stages(project, docs={})
    project.task("t-1", act=PAGE)
    project.act("t-1@docs", "(folder / 'there').touch()\ntime.sleep(60)", launch=1)
    project.act("t-1@docs", DOCS, launch=2)
    process = project.start("run")
    project.wait("there")
    process.kill()
    process.wait()
    ran = project.run()
    assert ran.code == 0, ran.said
    assert len(project.began("t-1@docs")) == 2
    assert project.wrongs(["t-1"]) == []
