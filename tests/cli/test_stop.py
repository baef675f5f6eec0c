"""``flyball stop``: a run or a task pauses, and nothing is lost."""

from __future__ import annotations

import json

import pytest

from tests.cli.kit import Cli
from tests.factory.kit import Project
from tests.waiting import until

WAITS = "(folder / f'up-{task}').touch()\nwait_for(folder / f'go-{task}')\nwrite(f'pages/{task}.txt', 'page')"


@pytest.mark.parametrize("words", [["stop"], ["stop", "t-1"], ["drain"], ["resize", "2"]])
def test_without_a_run_the_way_out_is_named(here: Cli, site: Project, words: list[str]) -> None:
    site.task("t-1")
    result = here(*words)
    assert result.code == 2
    assert "no run of blog is going on; flyball run starts one" in result.err
    assert here(*words, "--json").json["exit"] == 2
    assert not (site.root / ".flyball").exists(), "asking where no run is leaves nothing behind"


def test_an_unknown_task_is_asked_about(here: Cli, site: Project) -> None:
    site.task("t-1")
    result = here("stop", "t-11")
    assert result.code == 2
    assert "did you mean 't-1'?" in result.err


def test_a_stopped_run_ends_its_agents_and_the_next_one_goes_on(here: Cli, site: Project) -> None:
    site.task("t-1", act=WAITS)
    run = site.start("run")
    site.wait("up-t-1")
    result = here("stop")
    assert (result.code, result.out) == (0, "stopping; everything is kept, flyball run goes on from here\n")
    out, _ = run.communicate(timeout=60)
    assert run.returncode == 75
    assert "left" in out
    assert site.leases() == []
    site.say("go-t-1")
    assert site.run().code == 0
    assert site.wrongs(["t-1"]) == []


def test_one_task_is_stopped_and_the_others_are_not(here: Cli, site: Project) -> None:
    for name in ("t-1", "t-2"):
        site.task(name, act=WAITS)
    site.task("t-3", "needs: [t-2]")
    run = site.start("run")
    for name in ("t-1", "t-2"):
        site.wait(f"up-{name}")
    idle = here("stop", "t-3", "--json")
    assert (idle.code, idle.json["stopped"], idle.json["outcome"]) == (1, False, "unchanged")
    stopped = here("stop", "t-1", "--json")
    assert (stopped.code, stopped.json["stopped"], stopped.json["outcome"]) == (0, True, "done")
    until(lambda: len(site.leases()) == 1, "the slot of the stopped one to come back")
    until(lambda: "t-1" in site.saying("stopped by a person"), "the board to say so")
    why = here("task", "why", "t-1").out
    assert "t-1 is left as it stands: stopped by a person (flyball stop t-1)" in why
    site.say("go-t-2")
    out, _ = run.communicate(timeout=60)
    assert site.landed() == ["t-2", "t-3"]
    assert run.returncode == 75, "t-1 is left, though nothing is blocked"
    assert "t-1  stopped by a person (flyball stop t-1)" in out
    assert "the run was stopped" not in out
    assert "stopped by a person" in here("board").out


def test_one_that_waits_for_its_slot_is_stopped_and_named(here: Cli, site: Project) -> None:
    site.patient_pool(cap=1)
    site.task("t-1", act=WAITS)
    run = site.start("run", "--json")
    site.wait("up-t-1")
    site.task("t-2", act=WAITS)
    until(lambda: "t-2" in site.saying("anthropic 1 of 1 in use"), "t-2 to wait")
    assert here("stop", "t-2").code == 0
    site.say("go-t-1")
    out, _ = run.communicate(timeout=60)
    assert run.returncode == 75
    assert json.loads(out)["left"] == {"t-2": "stopped by a person (flyball stop t-2)"}
