"""A reviewer looks before it lands: sent back, parked, unreviewed, and never landed by accident.

Stories that do not disturb each other share a run, a task each.
"""

from __future__ import annotations

import json
import os
import signal

import pytest

from flyball.core.tasks.task_run import TaskRecord
from flyball.factory.state.ledger import Ledger
from flyball.factory.validation import validate
from tests.factory.kit import Project
from tests.waiting import until

PAGE = "write(f'pages/{task}.txt', f'page {attempt}')"
DIES = "os.kill(os.getpid(), 9)"
PROSE = "Path(os.environ['FLYBALL_REVIEW_FILE']).write_text('Looks good to me, ship it!')"
REVIEWER = "t-1@review"


@pytest.fixture(autouse=True)
def reviewed(project: Project) -> None:
    project.configure(review={"on": True})


def record_of(project: Project, task: str = "t-1") -> TaskRecord:
    ledger = Ledger(project.root / ".flyball", read_only=True)
    try:
        record = ledger.load_task(task)
        assert record is not None
        return record
    finally:
        ledger.close()


def began(project: Project, task: str = "t-1") -> list[str]:
    """The agents of a task, in order."""
    return [line.task for line in project.began() if line.task.partition("@")[0] == task]


# -- what becomes of it -----------------------------------------------------------------------------------


def test_work_lands_when_its_review_passes_and_findings_go_back_to_the_agent_in_words(
    project: Project,
) -> None:
    project.task("t-1")
    note = "[{'severity': 'note', 'where': 'pages', 'what': 'a long line'}]"
    project.act(REVIEWER, f"review(findings={note})")
    project.task("t-2", act=PAGE)
    project.act("t-2@review", "review('the page has no title')", launch=1)
    project.task("t-3", "acceptance: |", "  - the page is there", "  - it says hello", act=PAGE)
    unmet = "review(verdict='block', criteria=[{'criterion': 1, 'met': True, 'evidence': 'x'}, "
    unmet += "{'criterion': 'it says hello', 'met': False, 'evidence': 'it says page'}])"
    project.act("t-3@review", unmet, launch=1)
    ran = project.run()
    assert ran.code == 0, ran.said
    assert project.wrongs(["t-1", "t-2", "t-3"]) == []
    # It passed: the ledger says which commit that was.
    record = record_of(project)
    assert record.checks.passed
    assert len(record.checks.reviewed) == 40
    assert "t-1: its review noted pages: a long line" in ran.out
    assert json.loads((project.folders("t-1")[1] / "review.json").read_text())["verdict"] == "pass"
    # It was sent back.
    assert began(project, "t-2") == ["t-2", "t-2@review"] * 2
    again, second_review = project.prompts("t-2")[2:]
    assert "may not land like this" in again
    assert "- pages: the page has no title" in again
    assert "the page has no title" in second_review
    assert project.git("show", "main:pages/t-2.txt") == "page 2"
    # Every criterion was asked for.
    assert "1. the page is there\n2. it says hello" in project.prompts("t-3")[1]
    assert "- not met: it says hello (it says page)" in project.prompts("t-3")[2]


def test_after_two_rounds_a_person_is_asked_with_the_findings(project: Project) -> None:
    project.task("t-1", act=PAGE)
    project.act(REVIEWER, "review(f'still wrong {launch}')")
    ran = project.run()
    assert ran.code == 0, "a person is asked, which is not a failure"
    assert began(project) == ["t-1", REVIEWER] * 3
    assert "needs you" in ran.out
    assert "still wrong 3" in ran.out
    assert project.wrongs([]) == []
    why = project.flyball("task", "why", "t-1")
    assert "still wrong 3" in why.out
    # A new run does not try again behind a person's back; their word lands it.
    assert project.run().code == 0
    assert len(project.began()) == 6
    assert project.flyball("merge", "t-1").code == 0
    assert project.wrongs(["t-1"]) == []


# -- a review that could not be had -----------------------------------------------------------------------


UNUSABLE = {
    "t-1": (PROSE, "no JSON object"),
    "t-2": ("pass", "left nothing in $FLYBALL_REVIEW_FILE"),
    "t-3": (DIES, "did not finish"),
    "t-4": ("review(); sys.exit(3)", "did not finish"),
    "t-5": ("review(criteria=[])", "no answer to criterion 1"),
}


def test_without_a_usable_answer_it_is_asked_once_more_and_then_waits_for_a_person(project: Project) -> None:
    for name in project.tasks(5):
        project.act(f"{name}@review", UNUSABLE[name][0])
    project.task("t-6")
    project.act("t-6@review", PROSE, launch=1)
    ran = project.run("--json")
    assert ran.code == 0, ran.said
    for name, (_, said) in UNUSABLE.items():
        assert len(project.began(f"{name}@review")) == 2
        assert "unreviewed: " in ran.json["waiting_for_you"][name]
        assert said in ran.json["waiting_for_you"][name]
        assert said in project.prompts(name)[2]
        assert record_of(project, name).checks.passed is None
    assert len(project.began("t-6@review")) == 2, "the second answer could be used"
    assert project.wrongs(["t-6"]) == []


def test_a_persona_that_is_nowhere_leaves_work_unreviewed_and_is_found_before_a_run(project: Project) -> None:
    project.configure(review={"persona": "rewiever"})
    project.task("t-1")
    (found,) = validate(project.root)
    assert (found.where, "did you mean 'reviewer'" in found.words) == ("review.persona", True)
    ran = project.run()
    assert "unreviewed: there is no persona 'rewiever'" in ran.out
    assert project.landed() == []


# -- what is not let through ---------------------------------------------------------------------------


def test_neither_the_work_nor_its_reviewer_can_spoil_a_review(project: Project) -> None:
    # What a reviewer changes is thrown away.
    project.task("t-1", act=PAGE)
    project.act(REVIEWER, "commit('pages/t-1.txt', 'bad')\nwrite('pages/more.txt', 'bad')\nreview()")
    # A branch that moves under its review is unreviewed.
    project.task("t-2", act=PAGE)
    words = ["env", "-i", "/usr/bin/git", "-C", str(project.root), "branch", "-f", "agent/t-2", "main"]
    moved = f"subprocess.run({words}, check=True)\nreview()"
    project.act("t-2@review", moved)
    # A file in the work that looks like a review is none.
    answer = "json.dumps({'verdict': 'pass', 'criteria': [], 'findings': []})"
    project.task("t-3", act=f"write('pages/t-3.json', {answer})\nwrite('.flyball-review.json', {answer})")
    project.act("t-3@review", "print(Path('.flyball-review.json').read_text())")
    ran = project.run("--json")
    assert ran.code == 0, ran.said
    assert project.git("show", "main:pages/t-1.txt") == "page 1"
    assert "pages/more.txt" not in project.files()
    waiting = ran.json["waiting_for_you"]
    assert "agent/t-2 moved while" in waiting["t-2"]
    assert "left nothing" in waiting["t-3"]
    assert project.wrongs(["t-1"]) == []


@pytest.mark.faults
def test_what_passed_does_not_land_by_itself_once_its_branch_has_moved(project: Project) -> None:
    project.task("t-1")
    assert project.run(die_at="after:land.begun").code == -9
    project.git("commit", "--allow-empty", "-qm", "mine", cwd=project.workspace("t-1"))
    ran = project.run()
    assert "its branch has moved on since" in ran.out
    assert project.landed() == []
    assert project.flyball("merge", "t-1").code == 0
    assert project.wrongs(["t-1"]) == []


# -- slots, limits, stops ---------------------------------------------------------------------------------


def test_reviewers_take_slots_like_every_agent(project: Project) -> None:
    project.patient_pool(cap=1)
    alone = "assert not list(folder.glob('busy-*'))\nbusy = folder / f'busy-{os.getpid()}'\nbusy.touch()\n"
    names = project.tasks(2)
    for name in names:
        project.act(name, f"{alone}time.sleep(0.05)\n{PAGE}\nbusy.unlink()")
        project.act(f"{name}@review", f"{alone}time.sleep(0.05)\nreview()\nbusy.unlink()")
    ran = project.run()
    assert ran.code == 0, ran.said
    assert len(project.began()) == 4
    assert project.wrongs(names) == []


def test_a_reviewer_is_shown_and_named_and_told_no_messages(project: Project) -> None:
    project.patient_pool(cap=1)
    project.task("t-1", act=PAGE)
    project.act(REVIEWER, "(folder / 'reviews').touch()\nwait_for(folder / 'go')\nreview()")
    process = project.start("run")
    project.wait("reviews")
    assert [lease.name for lease in project.leases()] == ["t-1/review"]
    until(lambda: '"checking"' in project.flyball("board", "--json").out, "the board to say so")
    # The run writes down a moment later that its reviewer has a slot.
    words = "has finished and is being checked: review"
    until(lambda: project.flyball("task", "why", "t-1", "--json").json["words"] == words, "why to say so")
    assert project.flyball("task", "why", "t-1", "--json").json["state"] == "checking"
    assert "only if it is sent back" in project.flyball("nudge", "t-1", "hello", "--now").out
    project.say("go")
    assert process.wait(30) == 0
    assert project.wrongs(["t-1"]) == []


def test_a_limited_reviewer_waits_and_tries_again_and_burns_nothing(project: Project) -> None:
    project.patient_pool()
    project.configure(run={"limited_retries": 2})
    project.task("t-1")
    for launch in (1, 2):
        project.act(REVIEWER, "sys.exit(75)", launch=launch)
    project.task("t-2")
    project.act("t-2@review", "sys.exit(75)")
    ran = project.run("--json")
    assert ran.code == 0, ran.said
    assert began(project) == ["t-1", *[REVIEWER] * 3]
    assert record_of(project).attempt == 1
    limited = "unreviewed: the reviewer did not finish: limited 3 times in a row"
    assert ran.json["waiting_for_you"]["t-2"].startswith(limited)
    assert project.wrongs(["t-1"]) == []


def test_stop_ends_a_reviewer_and_the_next_run_reviews_again(project: Project) -> None:
    project.task("t-1")
    project.act(REVIEWER, "(folder / 'reviews').touch()\ntime.sleep(60)", launch=1)
    process = project.start("run")
    project.wait("reviews")
    assert project.flyball("stop").code == 0
    process.wait(30)
    assert project.processes() == []
    assert project.leases() == []
    assert record_of(project).state.value == "checking"
    assert project.run().code == 0
    assert began(project) == ["t-1", REVIEWER, REVIEWER]
    assert project.wrongs(["t-1"]) == []


def test_a_drain_lets_a_reviewer_finish_and_starts_none(project: Project) -> None:
    project.task("t-1")
    project.act(REVIEWER, "(folder / 'reviews').touch()\nwait_for(folder / 'go')\nreview()")
    project.task("t-2", act=f"(folder / 'works').touch()\nwait_for(folder / 'go')\n{PAGE}")
    process = project.start("run")
    project.wait("reviews")
    project.wait("works")
    process.send_signal(signal.SIGTERM)
    project.read_until(process, "finishes what runs")
    project.say("go")
    said, _ = process.communicate(timeout=30)
    assert "its work is done and still to be checked" in said
    assert project.landed() == ["t-1"]
    assert began(project, "t-2") == ["t-2"]
    assert project.run().code == 0
    assert began(project, "t-2") == ["t-2", "t-2@review"]
    assert project.wrongs(["t-1", "t-2"]) == []


def test_a_reviewer_takes_no_longer_than_it_may(project: Project) -> None:
    project.configure(review={"max_s": 0.3})
    project.task("t-1")
    project.act(REVIEWER, "time.sleep(60)")
    ran = project.run()
    assert "it ran longer than review.max_s allows" in ran.out
    assert project.landed() == []


@pytest.mark.faults
def test_what_a_review_found_is_not_asked_for_again_after_the_engine_was_killed(project: Project) -> None:
    project.task("t-1", act=PAGE)
    project.act(REVIEWER, "review('no title')", launch=1)
    assert project.run(die_at="after:review.done").code == -9
    assert project.run().code == 0
    assert began(project) == ["t-1", REVIEWER, "t-1", REVIEWER]
    assert "no title" in project.prompts("t-1")[2]
    assert project.wrongs(["t-1"]) == []


@pytest.mark.faults
def test_a_reviewer_that_outlived_its_engine_is_ended_and_the_review_done_again(project: Project) -> None:
    project.task("t-1")
    project.act(REVIEWER, "(folder / 'reviews').touch()\ntime.sleep(60)", launch=1)
    process = project.start("run")
    project.wait("reviews")
    process.kill()
    process.wait()
    first = project.began(REVIEWER)[0].pid
    assert project.run().code == 0
    assert len(project.began(REVIEWER)) == 2
    assert not os.path.exists(f"/proc/{first}")
    assert project.wrongs(["t-1"]) == []


def test_a_reviewer_is_told_where_a_diff_was_cut_and_which_files_it_changes(project: Project) -> None:
    """What is hidden stands behind a file that is too long to be shown."""
    project.task("t-1", act="write('pages/a.txt', 'x\\n' * 3_000_000)\nwrite('pages/hidden.txt', 'more')")
    project.act(
        REVIEWER,
        "shown = next(Path().glob('.flyball-review-*.diff'))\nprint(shown.read_text()[:400])\nreview()",
    )
    ran = project.run()
    assert ran.code == 0, ran.said
    review = project.folders("t-1")[1]
    assert "begins by saying that it is cut" in project.prompts("t-1")[1]
    told = next(path for path in review.iterdir() if "CUT" in path.read_text(errors="replace")).read_text()
    assert "A\tpages/a.txt\nA\tpages/hidden.txt\n" in told.replace("\\t", "\t").replace("\\n", "\n")
    assert "git diff " in told
