"""Agents that outlive their engine: found again, judged by what they left, or started anew."""

from __future__ import annotations

import json
import os
import signal
from contextlib import suppress
from pathlib import Path

import pytest

from tests.factory.kit import Project
from tests.waiting import until

pytestmark = pytest.mark.faults


WAITS = "wait_for(folder / 'go')\nwrite('pages/t-1.txt', 'x')"


def killed_while_running(project: Project) -> int:
    """Kill the engine while the agent of t-1 works; the agent's pid."""
    process = project.start("run")
    until(lambda: project.began("t-1"), "the agent to begin")
    process.kill()
    process.wait()
    return project.began("t-1")[-1].pid


def test_a_living_agent_is_found_again_and_keeps_its_slot(project: Project) -> None:
    project.task("t-1", act=WAITS)
    pid = killed_while_running(project)
    [lease] = project.leases()
    assert lease.pid == pid
    assert lease.alive
    process = project.start("run")
    project.read_until(process, "t-1 running")
    assert [(each.id, each.pid) for each in project.leases()] == [(lease.id, pid)]
    project.say("go")
    assert process.wait(30) == 0
    assert len(project.began("t-1")) == 1
    assert project.wrongs(["t-1"]) == []


def test_an_agent_that_finished_unwatched_is_landed_not_run_again(project: Project) -> None:
    project.task("t-1", act=WAITS)
    pid = killed_while_running(project)
    project.say("go")
    until(lambda: not Path(f"/proc/{pid}").exists(), "the agent to end")
    assert project.run().code == 0
    assert len(project.began("t-1")) == 1
    assert project.wrongs(["t-1"]) == []


def test_an_agent_that_was_limited_unwatched_burns_no_attempt(project: Project) -> None:
    project.patient_pool()
    project.task("t-1")
    project.act("t-1", "wait_for(folder / 'go')\nsys.exit(75)", launch=1)
    pid = killed_while_running(project)
    project.say("go")
    until(lambda: not Path(f"/proc/{pid}").exists(), "the agent to end")
    assert project.run().code == 0
    assert [line.attempt for line in project.began("t-1")] == [1, 1]
    assert project.wrongs(["t-1"]) == []


def test_a_dead_agent_with_commits_goes_on_from_them(project: Project) -> None:
    project.task("t-1", act="assert Path('pages/first.txt').exists()\nwrite('pages/t-1.txt', 'x')")
    project.act("t-1", "commit('pages/first.txt', '1')\n" + WAITS, launch=1)
    pid = killed_while_running(project)
    made = ("rev-list", "--count", "main..HEAD")
    until(lambda: project.git(*made, cwd=project.workspace("t-1")) == "1", "the commit")
    _end_with_its_keeper(project, pid)
    assert project.run().code == 0
    assert {"pages/first.txt", "pages/t-1.txt"} <= set(project.files())
    assert project.wrongs(["t-1"]) == []


def test_a_dead_agent_with_nothing_starts_afresh(project: Project) -> None:
    project.task("t-1", act="assert launch == 1 or not Path('junk').exists()\nwrite('pages/t-1.txt', 'x')")
    project.act("t-1", WAITS, launch=1)
    pid = killed_while_running(project)
    _end_with_its_keeper(project, pid)
    assert project.run().code == 0
    assert len(project.began("t-1")) == 2
    assert project.wrongs(["t-1"]) == []


def test_one_that_dies_after_it_was_found_again_costs_no_attempt_where_nothing_tells_its_end(
    project: Project,
) -> None:
    """A process that is killed takes a moment to die, and the next engine may come within it."""
    project.configure(run={"attempts": 1})
    project.task("t-1")
    project.act("t-1", WAITS, launch=1)
    _dies_found_again(project)
    assert [line.attempt for line in project.began("t-1")] == [1, 1]
    assert project.wrongs(["t-1"]) == []


def test_one_with_commits_that_dies_after_it_was_found_again_goes_on_from_them(project: Project) -> None:
    project.configure(run={"attempts": 1})
    project.task("t-1", act="assert Path('pages/first.txt').exists()\nwrite('pages/t-1.txt', 'x')")
    project.act("t-1", "commit('pages/first.txt', '1')\n(folder / 'up').touch()\n" + WAITS, launch=1)
    _dies_found_again(project, after="up")
    assert [line.attempt for line in project.began("t-1")] == [1, 1]
    assert {"pages/first.txt", "pages/t-1.txt"} <= set(project.files())
    assert project.wrongs(["t-1"]) == []


def test_one_that_dies_after_it_was_found_again_costs_an_attempt_where_its_keeper_tells_its_end(
    project: Project,
) -> None:
    project.task("t-1")
    project.act("t-1", WAITS, launch=1)
    pid = killed_while_running(project)
    process = project.start("run")
    project.read_until(process, "t-1 running")
    os.kill(pid, signal.SIGKILL)
    assert process.wait(30) == 0
    assert [line.attempt for line in project.began("t-1")] == [1, 2]
    assert project.wrongs(["t-1"]) == []


def test_a_task_that_failed_too_often_is_blocked_on_the_way_back(project: Project) -> None:
    project.configure(run={"attempts": 2})
    project.task("t-1", act="(folder / f'launch-{launch}').touch()\nwait_for(folder / 'go')\nsys.exit(1)")
    project.act("t-1", "sys.exit(1)", launch=1)
    process = project.start("run")
    project.wait("launch-2")
    process.kill()
    process.wait()
    project.say("go")
    until(lambda: not project.processes(), "the agent to end")
    ran = project.run()
    assert ran.code == 1
    assert "failed 2 times" in ran.out
    assert len(project.began("t-1")) == 2


def test_a_daemon_that_is_still_being_ended_does_not_block_its_task(project: Project) -> None:
    """The agent has finished, its keeper is still busy: neither alive nor at its end."""
    stubborn = "['sh', '-c', 'trap \"\" TERM; touch \"$0\"; while :; do sleep 1; done', str(folder / 'up')]"
    daemon = f"subprocess.Popen({stubborn}, start_new_session=True)\nwait_for(folder / 'up')\n"
    project.task("t-1", act=daemon + WAITS)
    pid = killed_while_running(project)
    project.wait("up")
    project.say("go")
    until(lambda: not Path(f"/proc/{pid}").exists(), "the agent to end")
    ran = project.run()
    assert ran.code == 0, ran.said
    assert len(project.began("t-1")) == 1
    assert project.wrongs(["t-1"]) == []


def test_what_a_found_agent_spent_is_counted_from_its_beginning(project: Project) -> None:
    project.configure(agent={"runtime": "claude"})
    said = '{"type":"system","subtype":"init","session_id":"s-1","model":"m"}'
    usage = '"usage":{"input_tokens":30,"output_tokens":12}'
    done = (
        f'{{"type":"result","subtype":"success","is_error":false,"session_id":"s-1","result":"ok",{usage}}}'
    )
    project.task("t-1", act=f"print('{said}', flush=True)\n{WAITS}\nprint('{done}')")
    killed_while_running(project)
    process = project.start("run")
    project.read_until(process, "t-1 running")
    project.say("go")
    assert process.wait(30) == 0
    summary = json.loads((project.folders("t-1")[0] / "summary.json").read_text())
    assert (summary["session"], summary["tokens"]) == ("s-1", 42)


def _dies_found_again(project: Project, *, after: str = "") -> None:
    pid = killed_while_running(project)
    if after:
        project.wait(after)
    process = project.start("run")
    project.read_until(process, "t-1 running")
    _kill_with_its_keeper(project, pid)
    out, _ = process.communicate(timeout=60)
    assert process.returncode == 0, out


def _end_with_its_keeper(project: Project, pid: int) -> None:
    _kill_with_its_keeper(project, pid)
    until(lambda: not project.processes(), "both to be gone")


def _kill_with_its_keeper(project: Project, pid: int) -> None:
    for each in project.processes():
        if each != pid:
            with suppress(ProcessLookupError):
                os.kill(each, signal.SIGKILL)
    os.kill(pid, signal.SIGKILL)
