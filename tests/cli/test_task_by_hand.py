"""``flyball task close`` and ``flyball task reject``: a person decides what becomes of a task's work."""

from __future__ import annotations

import pytest

from tests.cli.kit import Cli
from tests.factory.fake_hosts import Host
from tests.factory.kit import Project
from tests.waiting import until

WAITS = "(folder / f'up-{task}').touch()\nwait_for(folder / f'go-{task}')\nwrite(f'pages/{task}.txt', 'page')"
MANUAL = "labels: [merge:manual]"


def parked(site: Project, task: str = "t-1") -> None:
    site.task(task, MANUAL)
    assert site.run().code == 0
    assert site.branches() == [f"agent/{task}"]


# -- what cannot be closed or sent back -------------------------------------------------------------------


@pytest.mark.parametrize("verb", [["close"], ["reject", "--reason", "x"]])
def test_an_unknown_task_is_asked_about(here: Cli, site: Project, verb: list[str]) -> None:
    site.task("t-1")
    result = here("task", *verb, "t1")
    assert (result.code, "did you mean 't-1'?" in result.err) == (2, True)


def test_a_task_without_any_work_is_not_sent_back(here: Cli, site: Project) -> None:
    site.task("t-1")
    result = here("task", "reject", "t-1", "--reason", "no")
    assert result.code == 2
    assert "no work was done on t-1 yet" in result.err
    assert "flyball nudge t-1" in result.err


def test_what_has_landed_is_not_sent_back(here: Cli, site: Project) -> None:
    path = site.task("t-1")
    assert site.run().code == 0
    assert "is closed" in here("task", "reject", "t-1", "--reason", "no").err
    path.write_text(path.read_text().replace("status: closed", "status: open"))
    result = here("task", "reject", "t-1", "--reason", "no")
    assert (result.code, "t-1 has landed in" in result.err) == (2, True)


def test_what_is_under_way_is_not_sent_back_and_the_way_to_speak_to_it_is_named(
    here: Cli, site: Project
) -> None:
    site.task("t-1", act=WAITS)
    run = site.start("run")
    site.wait("up-t-1")
    result = here("task", "reject", "t-1", "--reason", "no")
    assert result.code == 2
    assert "t-1 is running" in result.err
    assert "flyball nudge t-1 ... --now" in result.err
    site.say("go-t-1")
    run.communicate(timeout=60)
    assert site.landed() == ["t-1"]


def test_an_empty_reason_sends_nothing_back(here: Cli, site: Project) -> None:
    parked(site)
    assert here("task", "reject", "t-1", "--reason", " ").code == 2
    assert "finished and waits for you" in here("task", "why", "t-1").out


def test_a_landing_that_has_begun_is_not_closed(here: Cli, site: Project) -> None:
    path = site.task("t-1")
    assert site.run(die_at="after:land.begun").code == -9
    result = here("task", "close", "t-1")
    assert (result.code, "it is landing" in result.err) == (2, True)
    assert "status: open" in path.read_text()


# -- closing ----------------------------------------------------------------------------------------------


def test_a_task_without_any_work_is_closed_in_its_file_with_the_reason(here: Cli, site: Project) -> None:
    path = site.task("t-1", body="Do it.")
    site.task("t-2", "needs: [t-1]")
    result = here("task", "close", "t-1", "--reason", "not wanted")
    assert result.code == 0
    assert "closed t-1 in tasks/t-1.md\n" in result.out
    assert "t-2 needed it, and may start without it now" in result.out
    text = path.read_text()
    assert "status: closed\n" in text
    assert text.endswith("Do it.\n\nClosed: not wanted\n")
    site.commit("closed")
    assert site.run().code == 0
    assert site.landed() == ["t-2"]
    assert [line.task for line in site.began()] == ["t-2"]


def test_closing_twice_changes_nothing(here: Cli, site: Project) -> None:
    path = site.task("t-1")
    assert here("task", "close", "t-1", "--reason", "one").code == 0
    before = path.read_text()
    result = here("task", "close", "t-1", "--reason", "two")
    assert (result.code, result.out) == (0, "t-1 was closed already\n")
    assert path.read_text() == before


def test_finished_work_that_waits_is_given_up_and_kept(here: Cli, site: Project) -> None:
    parked(site)
    result = here("task", "close", "t-1", "--json")
    assert (result.code, result.json["closed"], result.json["branch"]) == (0, True, "agent/t-1")
    assert result.json["outcome"] == "done"
    assert any("flyball merge t-1 lands it all the same" in note for note in result.json["notes"])
    assert "t-1" not in here("board").out
    ran = site.run("--json")
    assert (ran.code, ran.json["waiting_for_you"], ran.json["blocked"]) == (0, {}, {})
    assert site.landed() == []
    assert site.branches() == ["agent/t-1"]


def test_what_an_engine_left_behind_is_let_go_with_its_agent(here: Cli, site: Project) -> None:
    site.task("t-1", act=f"write('pages/t-1.txt', 'half')\n{WAITS}")
    run = site.start("run")
    site.wait("up-t-1")
    run.kill()  # its agent lives on
    run.wait()
    assert len(site.leases()) == 1
    result = here("task", "close", "t-1")
    assert result.code == 0
    assert (site.leases(), site.processes(), site.branches()) == ([], [], ["agent/t-1"])
    assert (site.workspace("t-1") / "pages/t-1.txt").exists()
    ran = site.run("--json")
    assert (ran.code, ran.json["blocked"], len(site.began())) == (0, {}, 1)


def test_a_task_under_way_is_ended_and_let_go_and_the_others_are_not(here: Cli, site: Project) -> None:
    for name in ("t-1", "t-2"):
        site.task(name, act=f"write(f'pages/{{task}}.txt', 'half')\n{WAITS}")
    run = site.start("run", "--json")
    for name in ("t-1", "t-2"):
        site.wait(f"up-{name}")
    result = here("task", "close", "t-1")
    assert result.code == 0, result.err
    until(lambda: len(site.leases()) == 1, "the slot of the closed one to come back")
    site.say("go-t-2")
    out, err = run.communicate(timeout=60)
    assert run.returncode == 0, out + err
    assert site.landed() == ["t-2"]
    assert len(site.began("t-1")) == 1
    assert "agent/t-1" in site.branches()
    assert (site.workspace("t-1") / "pages/t-1.txt").exists()
    assert "t-1 was closed before it landed and is let go" in out


def test_a_task_that_was_stopped_and_closed_is_not_left_undone(here: Cli, site: Project) -> None:
    for name in ("t-1", "t-2"):
        site.task(name, act=WAITS)
    run = site.start("run")
    for name in ("t-1", "t-2"):
        site.wait(f"up-{name}")
    assert here("stop", "t-1").code == 0
    until(lambda: "t-1" in site.saying("stopped by a person"), "the board to say so")
    assert here("task", "close", "t-1").code == 0
    site.say("go-t-2")
    out, err = run.communicate(timeout=60)
    assert run.returncode == 0, out + err
    assert site.landed() == ["t-2"]


def test_an_agent_that_ends_well_when_it_is_told_to_stop_does_not_land_a_closed_task(
    here: Cli, site: Project
) -> None:
    site.task(
        "t-1",
        act="import signal\nwrite('pages/t-1.txt', 'x')\n"
        "signal.signal(signal.SIGTERM, lambda *_: os._exit(0))\n(folder / 'up').touch()\n"
        "wait_for(folder / 'never')",
    )
    run = site.start("run")
    site.wait("up")
    assert here("task", "close", "t-1").code == 0
    out, err = run.communicate(timeout=60)
    assert run.returncode == 0, out + err
    assert site.landed() == []


def test_a_task_that_was_closed_and_is_opened_again_is_done_again(here: Cli, site: Project) -> None:
    path = site.task("t-1")
    assert site.run(die_at="before:launch.done").code == -9
    assert here("task", "close", "t-1").code == 0
    path.write_text(path.read_text().replace("status: closed", "status: open"))
    assert site.run().code == 0
    assert site.landed() == ["t-1"]


# -- sending back -----------------------------------------------------------------------------------------


def test_finished_work_goes_back_to_an_agent_with_the_words(here: Cli, site: Project) -> None:
    parked(site)
    site.act("t-1", "write('pages/t-1.txt', 'better')")
    result = here("task", "reject", "t-1", "--reason", "keep\nthe old address")
    assert result.code == 0
    assert "t-1 is sent back\nthe next flyball run starts its agent again" in result.out
    assert "was sent back by a person: keep the old address; flyball run goes on" in here("board").out
    assert list(site.run("--dry-run", "--json").json["resumes"]) == ["t-1"]
    assert site.run().code == 0
    second = site.prompts("t-1")[1]
    assert "A person looked at your work and sends it back: keep\nthe old address" in second
    assert [line.attempt for line in site.began()] == [1, 2]
    assert site.git("show", "agent/t-1:pages/t-1.txt") == "better"
    assert here("merge", "t-1").code == 0
    assert site.wrongs(["t-1"]) == []


def test_blocked_work_goes_back_with_new_budgets_and_what_it_was_blocked_for(
    here: Cli, site: Project
) -> None:
    site.configure(run={"gate_retries": 1})
    site.commit("one retry")
    site.task("t-1", act="write('pages/t-1.txt', 'bad')")
    assert site.run().code == 1
    assert len(site.began()) == 2
    site.act("t-1", "write('pages/t-1.txt', 'good')", launch=4)
    assert here("task", "reject", "t-1", "--reason", "say good", "--json").json["sent_back"] is True
    assert site.run().code == 0, "red once more, and sent back once more"
    third = site.prompts("t-1")[2]
    assert "say good" in third
    assert "Before that it was blocked: gate-failed" in third
    assert site.wrongs(["t-1"]) == []


def test_a_run_that_goes_on_takes_it_up_at_once(here: Cli, site: Project) -> None:
    parked(site)
    site.task("t-2", act=WAITS)
    run = site.start("run")
    site.wait("up-t-2")
    result = here("task", "reject", "t-1", "--reason", "again")
    assert result.code == 0, result.err
    assert "the run that is going on starts its agent again" in result.out
    until(lambda: len(site.began("t-1")) == 2, "the agent to be started again")
    site.say("go-t-2")
    out, _ = run.communicate(timeout=60)
    assert run.returncode == 0, out
    assert "again" in site.prompts("t-1")[1]
    assert site.landed() == ["t-2"]
    assert "finished and waits for you" in here("task", "why", "t-1").out


def test_the_pull_request_of_what_was_sent_back_is_brought_up_to_date(here: Cli, site: Project) -> None:
    host = Host(site)
    site.task("t-1")
    site.git("push", "-q", "origin", "main")
    assert site.run().code == 0
    site.act("t-1", "write('pages/t-1.txt', 'better')")
    result = here("task", "reject", "t-1", "--reason", "better please")
    assert result.code == 0
    assert "pull request #12 stays open" in result.out
    assert site.run().code == 0
    assert [pull["number"] for pull in host.pulls] == [12]
    assert site.git("show", "agent/t-1:pages/t-1.txt", cwd=host.origin) == "better"
    assert "pull request #12 is open" in site.flyball("board").out


def test_what_was_sent_back_and_cut_short_while_it_was_checked_is_checked_again(
    here: Cli, site: Project
) -> None:
    """It is not taken for one whose pull request a person had reviewed."""
    host = Host(site)
    site.configure(review={"on": True})
    site.task("t-1")
    site.git("push", "-q", "origin", "main")
    assert site.run().code == 0
    site.act("t-1", "write('pages/t-1.txt', 'better')")
    assert here("task", "reject", "t-1", "--reason", "better please").code == 0
    assert site.run(die_at="after:review.begun").code == -9
    assert site.run().code == 0
    assert site.git("show", "agent/t-1:pages/t-1.txt", cwd=host.origin) == "better"


def test_killed_while_it_is_sent_back_it_is_or_it_is_not(here: Cli, site: Project) -> None:
    parked(site)
    assert site.flyball("task", "reject", "t-1", "--reason", "x", die_at="before:back.done").code == -9
    assert "waits for you" in here("task", "why", "t-1").out
    assert site.flyball("task", "reject", "t-1", "--reason", "x", die_at="after:back.done").code == -9
    assert site.run().code == 0
    assert len(site.began()) == 2
