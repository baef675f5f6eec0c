"""beads: what bd's answers mean, and what happens when it does not answer."""

from __future__ import annotations

import json
import os
import signal
import time
from pathlib import Path
from typing import Any

import psutil
import pytest

from flyball.core.tasks.footprint import Footprint
from flyball.core.tasks.task import Task, TaskStatus
from flyball.errors import SourceError, UsageError
from flyball.factory.tasks.beads import BeadsSource
from flyball.factory.tasks.port import NewTask
from tests.factory.tasks.beads_kit import Call, scripted
from tests.waiting import until

LOCKED = json.dumps(
    {
        "error": "failed to open database: embeddeddolt: another process holds the exclusive lock on "
        "/p/.beads/embeddeddolt; the embedded backend supports only one writer at a time"
    }
)
NO_DATABASE = "Error: no beads database found\nHint: run 'bd init' to create a new database\n"


def issue(name: str = "bd-1", **fields: Any) -> dict[str, Any]:
    return {"id": name, "title": "T", "status": "open", "priority": 2, "issue_type": "task", **fields}


def listed(*issues: dict[str, Any]) -> Call:
    return Call(json.dumps(list(issues)))


@pytest.fixture
def naps() -> list[float]:
    return []


@pytest.fixture
def answering(tmp_path: Path, naps: list[float]) -> Any:
    """A source whose bd gives these answers in turn."""
    return lambda *calls: BeadsSource(
        tmp_path, command=scripted(tmp_path, *calls), nap=naps.append, wall=lambda: 1_793_527_200.0
    )


def only(source: BeadsSource) -> Task:
    [task] = source.load().tasks
    return task


# -- what an issue means --------------------------------------------------------------------------


def test_everything_that_bd_says_about_an_issue_is_read(answering: Any) -> None:
    source = answering(
        listed(
            issue(
                "bd-a3f8.1",
                title="Fix it",
                description="What to do\r\n",
                design="How",
                notes="Seen twice",
                acceptance_criteria="it works",
                status="in_progress",
                priority=0,
                issue_type="bug",
                created_at="2026-11-01T10:00:00.42852067Z",
                labels=["area:web", "fp:pages/hello*", "fp:read:lib/**"],
                dependencies=[
                    {"issue_id": "bd-a3f8.1", "depends_on_id": "bd-a3f8", "type": "parent-child"},
                    {"issue_id": "bd-a3f8.1", "depends_on_id": "bd-2", "type": "blocks"},
                    {"issue_id": "bd-a3f8.1", "depends_on_id": "bd-3", "type": "related"},
                    {"issue_id": "bd-a3f8.1", "depends_on_id": "bd-4", "type": "discovered-from"},
                    {"issue_id": "bd-a3f8.1", "depends_on_id": "bd-5", "type": "waits-for"},
                ],
                a_field_of_a_later_version=[1, 2, 3],
            )
        )
    )
    assert only(source) == Task(
        id="bd-a3f8.1",
        title="Fix it",
        status=TaskStatus.IN_PROGRESS,
        type="bug",
        priority=0,
        needs=("bd-2", "bd-5"),
        parent="bd-a3f8",
        labels=("area:web",),
        footprint=Footprint(write=("pages/hello*",), read=("lib/**",)),
        acceptance="it works",
        body="What to do\n\n## Design\n\nHow\n\n## Notes\n\nSeen twice",
        created=1793527200.42852,
        where="bd show bd-a3f8.1",
    )


@pytest.mark.parametrize(
    ("said", "meant"),
    [
        ("open", TaskStatus.OPEN),
        ("blocked", TaskStatus.BLOCKED),
        ("deferred", TaskStatus.DEFERRED),
        ("closed", TaskStatus.CLOSED),
        ("hooked", TaskStatus.IN_PROGRESS),
        ("pinned", TaskStatus.DEFERRED),
        ("awaiting_review", TaskStatus.BLOCKED),
    ],
)
def test_only_an_open_issue_is_open(answering: Any, said: str, meant: TaskStatus) -> None:
    assert only(answering(listed(issue(status=said)))).status is meant


def test_a_deferral_counts_until_its_time_has_come(tmp_path: Path) -> None:
    now = [1_793_527_200.0]
    answer = listed(issue(defer_until="2026-11-01T11:00:00Z"))
    source = BeadsSource(tmp_path, command=scripted(tmp_path, answer, answer, answer), wall=lambda: now[0])
    assert only(source).status is TaskStatus.DEFERRED
    now[0] += 3599
    assert only(source).status is TaskStatus.DEFERRED
    now[0] += 1
    assert only(source).status is TaskStatus.OPEN


@pytest.mark.parametrize("kind", ["gate", "molecule", "message", "event", "milestone"])
def test_the_machinery_of_beads_is_kept_from_agents(answering: Any, kind: str) -> None:
    assert only(answering(listed(issue(issue_type=kind)))).labels == ("no-dispatch",)


@pytest.mark.parametrize(
    ("labels", "footprint", "left"),
    [
        (["fp:a"], Footprint(write=("a",)), ()),
        (["fp:read:a"], Footprint(read=("a",)), ()),
        (["fp:read:a", "area:web"], None, ("fp:read:a", "area:web")),
        (["fp:/etc"], None, ("fp:/etc",)),
        (["fast"], None, ("fast",)),
        (None, None, ()),
    ],
)
def test_footprints_are_kept_in_labels(answering: Any, labels: Any, footprint: Any, left: Any) -> None:
    task = only(answering(listed(issue(labels=labels))))
    assert (task.footprint, task.labels) == (footprint, left)


def test_missing_and_empty_fields_are_not_a_problem(answering: Any) -> None:
    source = answering(listed({"id": "bd-1", "title": "T", "description": None, "dependencies": None}))
    assert only(source) == Task(id="bd-1", title="T", where="bd show bd-1")


@pytest.mark.parametrize("out", ["[]", "null", "[]\n"])
def test_without_issues_there_are_no_tasks(answering: Any, out: str) -> None:
    assert answering(Call(out)).load().tasks == ()


@pytest.mark.parametrize(
    ("bad", "words"),
    [
        (issue("a b"), "cannot be a task's id"),
        (issue(title=""), "there is no title"),
        ({"title": "no id"}, "an issue cannot be read"),
        (issue(priority="high"), "an issue cannot be read"),
        (issue(labels={"a": 1}), "an issue cannot be read"),
    ],
)
def test_an_issue_that_makes_no_sense_is_a_problem_beside_the_others(
    answering: Any, bad: dict[str, Any], words: str
) -> None:
    loaded = answering(listed(bad, issue("bd-2"))).load()
    assert [task.id for task in loaded.tasks] == ["bd-2"]
    [problem] = loaded.problems
    assert words in problem.words
    assert problem.where.startswith("bd ")


def test_a_title_of_several_lines_becomes_one(answering: Any) -> None:
    assert only(answering(listed(issue(title="a\n b")))).title == "a b"


def test_the_same_answer_is_not_parsed_twice(answering: Any) -> None:
    source = answering(listed(issue()), listed(issue()), listed(issue(title="New")))
    first = source.load()
    assert source.load() is first
    assert only(source).title == "New"


def test_ten_thousand_issues_are_read_quickly(answering: Any) -> None:
    many = [issue(f"bd-{n}", description="words " * 100, labels=["x"]) for n in range(10_000)]
    source = answering(listed(*many))
    began = time.process_time()
    assert len(source.load().tasks) == 10_000
    assert time.process_time() - began < 2


# -- when bd fails --------------------------------------------------------------------------------


def test_a_missing_bd_is_said_with_how_to_get_it(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match=r"no-such-bd was not found; install it .*go install"):
        BeadsSource(tmp_path, command=["no-such-bd"]).load()


def test_a_bd_that_does_not_come_back_is_ended_with_its_children(tmp_path: Path) -> None:
    command = ["sh", "-c", "sleep 600 & sleep 600"]
    with pytest.raises(SourceError, match=r"sh list took longer than 0\.3 s"):
        BeadsSource(tmp_path, command=command, timeout_s=0.3).load()
    until(lambda: not _processes_in(tmp_path), "all of its processes to end")


def _processes_in(folder: Path) -> list[psutil.Process]:
    found = (each for each in psutil.process_iter(["cwd"]) if each.info["cwd"] == str(folder))
    return [each for each in found if each.is_running()]


def test_a_daemon_that_bd_leaves_behind_is_not_waited_for(tmp_path: Path) -> None:
    pid = tmp_path / "pid"
    source = BeadsSource(tmp_path, command=["sh", "-c", f"sleep 600 & echo $! >{pid}; echo '[]'"])
    assert source.load().tasks == ()
    os.kill(int(pid.read_text()), signal.SIGKILL)  # it lives on


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (Call(err=NO_DATABASE, code=1), "bd list failed in .*: no beads database found"),
        (Call(out='{"error": "it broke\\nbadly"}', code=1), ": it broke$"),
        (Call(err='{"error": "it broke"}', code=1), ": it broke$"),
        (Call(err="warning: x\npanic: oh no\n", code=2), ": panic: oh no$"),
        (Call(code=1), "it did not say why"),
        (Call(out=""), "did not answer with a list .* it said nothing"),
        (Call(out="Warning: old\n[]"), "did not answer with a list .* it said 'Warning: old"),
        (Call(out='{"id": "bd-1"}'), "did not answer with a list"),
        (Call(out='[{"id": "bd-1"'), "did not answer with a list"),
        (Call(out="[" * 5000), "did not answer with a list"),
    ],
)
def test_an_answer_that_is_none_is_an_error_in_words(answering: Any, answer: Call, words: str) -> None:
    with pytest.raises(SourceError, match=words):
        answering(answer).load()


@pytest.mark.parametrize("said", [LOCKED, '{"error": "database is locked"}'])
def test_being_turned_away_is_tried_again(answering: Any, naps: list[float], said: str) -> None:
    busy = Call(out=said, code=1)
    assert answering(busy, busy, listed(issue())).load().tasks
    assert naps == [0.1, 0.2]


def test_being_turned_away_is_not_tried_for_ever(answering: Any, naps: list[float]) -> None:
    with pytest.raises(SourceError, match="another process holds the exclusive lock"):
        answering(*[Call(out=LOCKED, code=1)] * 20).load()
    assert len(naps) == 8
    assert sum(naps) < 15


def test_any_other_failure_is_not_tried_again(answering: Any, naps: list[float]) -> None:
    with pytest.raises(SourceError):
        answering(Call(err=NO_DATABASE, code=1), listed(issue())).load()
    assert not naps


# -- changing -------------------------------------------------------------------------------------


def test_a_claim_names_an_assignee_only_where_there_is_none(answering: Any) -> None:
    update = ["update", "bd-1", "--status=in_progress"]
    changed = json.dumps([issue(status="in_progress")])
    answering(listed(issue()), Call(changed, argv=[*update, "--assignee=flyball", "--json"])).claim("bd-1")
    answering(listed(issue(assignee="ada")), Call(changed, argv=[*update, "--json"])).claim("bd-1")


def test_taking_a_claim_back_removes_only_our_own_name(answering: Any) -> None:
    update = ["update", "bd-1", "--status=open"]
    claimed = issue(status="in_progress", assignee="flyball")
    answering(listed(claimed), Call("[{}]", argv=[*update, "--assignee=", "--json"])).unclaim("bd-1")
    theirs = issue(status="in_progress", assignee="ada")
    answering(listed(theirs), Call("[{}]", argv=[*update, "--json"])).unclaim("bd-1")


def test_a_change_that_an_older_bd_refuses_with_exit_0_is_an_error(answering: Any) -> None:
    refused = Call(err="Error updating bd-1: validate field update: invalid status: x\n")
    with pytest.raises(SourceError, match="bd did not change bd-1: Error updating bd-1"):
        answering(listed(issue()), refused).claim("bd-1")


@pytest.mark.parametrize("act", ["claim", "unclaim", "close"])
def test_a_task_that_is_gone_is_an_error(answering: Any, act: str) -> None:
    words = {"commit": "abc"} if act == "close" else {}
    with pytest.raises(SourceError, match="beads has no task 'bd-1' any more"):
        getattr(answering(listed()), act)("bd-1", **words)


def test_another_close_at_the_same_moment_is_not_an_error(answering: Any) -> None:
    gone = Call(err="Error closing bd-1: issue not found: bd-1\n", code=1)
    answering(listed(issue()), gone, listed(issue(status="closed"))).close("bd-1", commit="abc")


def test_a_close_that_did_not_happen_is_an_error(answering: Any) -> None:
    refused = Call(err="cannot close bd-1: blocked by open issues\n", code=1)
    with pytest.raises(SourceError, match="bd did not close bd-1: cannot close bd-1: blocked"):
        answering(listed(issue()), refused, listed(issue())).close("bd-1", commit="abc")


def test_an_id_that_is_taken_is_refused_before_bd_overwrites_it(answering: Any) -> None:
    with pytest.raises(UsageError, match="there is a task 'bd-1' already"):
        answering(listed(issue())).add(NewTask(title="T", id="bd-1"))


@pytest.mark.parametrize("new", [NewTask(title="T", needs=["bd-9"]), NewTask(title="T", parent="bd-9")])
def test_what_does_not_exist_cannot_be_needed(answering: Any, new: NewTask) -> None:
    with pytest.raises(UsageError, match="there is no task 'bd-9', and beads links only to what is there"):
        answering(listed(issue())).add(new)


def test_a_task_that_lost_its_need_is_kept_from_starting(answering: Any) -> None:
    warned = "Warning: failed to add dependency bd-2 -> bd-1: epics can only block other epics, not tasks\n"
    blocked = Call("[{}]", argv=["update", "bd-2", "--status=blocked", "--json"])
    made = Call(json.dumps(issue("bd-2")), err=warned)
    with pytest.raises(
        SourceError, match=r"added bd-2, but bd did not keep that it needs bd-1 .*epics can only"
    ):
        answering(listed(issue()), made, listed(issue("bd-2")), blocked).add(
            NewTask(title="T", needs=["bd-1"])
        )


def test_a_named_task_with_a_parent_is_linked_in_a_second_step(answering: Any) -> None:
    child = issue("bd-x", dependencies=[{"depends_on_id": "bd-1", "type": "parent-child"}])
    source = answering(
        listed(issue()),
        Call(
            json.dumps(issue("bd-x")),
            argv=["create", "--title=T", "--type=task", "--priority=2", "--id=bd-x", "--json"],
        ),
        Call("{}", argv=["dep", "add", "bd-x", "bd-1", "--type=parent-child", "--json"]),
        listed(child),
    )
    assert source.add(NewTask(title="T", id="bd-x", parent="bd-1")).parent == "bd-1"


def test_lists_are_written_as_bd_reads_them(answering: Any) -> None:
    argv = ["create", "--title=T", "--type=task", "--priority=2", '--labels="a,b","c""d",e', "--json"]
    made = issue("bd-2", labels=["a,b", 'c"d', "e"])
    source = answering(listed(), Call(json.dumps(made), argv=argv), listed(made))
    assert source.add(NewTask(title="T", labels=["a,b", 'c"d', "e"])).labels == ("a,b", 'c"d', "e")


def test_a_create_that_does_not_say_what_it_made_is_an_error(answering: Any) -> None:
    with pytest.raises(SourceError, match="bd create did not say what it made: it said 'ok'"):
        answering(listed(), Call("ok")).add(NewTask(title="T"))


def test_nothing_is_watched_and_nothing_is_written_into_a_worktree(answering: Any, tmp_path: Path) -> None:
    source = answering()
    assert not source.watch_folders()
    assert not source.close_in("bd-1", tmp_path).paths
