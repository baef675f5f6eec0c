"""``flyball merge``: a person lands finished work."""

from __future__ import annotations

import pytest

from tests.cli.kit import Cli
from tests.factory.kit import Project

WAITS = "(folder / 'up').touch()\nwait_for(folder / 'go')\nwrite(f'pages/{task}.txt', 'page')"


@pytest.fixture(autouse=True)
def manual(site: Project) -> None:
    site.configure(merge={"policy": "manual"}, gate={"commands": ["echo looking", "! grep -rqs bad pages"]})
    site.commit("work waits for a person")


def finished(site: Project, *names: str) -> None:
    for name in names:
        site.task(name)
    assert site.run().code == 0


# -- what cannot be landed ----------------------------------------------------------------------------------


def test_an_unknown_task_is_asked_about(here: Cli, site: Project) -> None:
    site.task("t-1")
    result = here("merge", "t1")
    assert result.code == 2
    assert "did you mean 't-1'?" in result.err


def test_a_task_without_any_work_has_nothing_to_land(here: Cli, site: Project) -> None:
    site.task("t-1")
    result = here("merge", "t-1")
    assert result.code == 2
    assert "no work was done on t-1 yet" in result.err
    assert "flyball task why t-1" in result.err


def test_a_task_whose_agent_works_lands_later(here: Cli, site: Project) -> None:
    site.task("t-1", act=WAITS)
    run = site.start("run")
    site.wait("up")
    result = here("merge", "t-1")
    assert result.code == 2
    assert "t-1 is running in the run that is going on; once it is done it waits for you" in result.err
    site.say("go")
    run.communicate(timeout=60)


def test_a_red_gate_is_not_merged_and_the_next_step_is_named(here: Cli, site: Project) -> None:
    site.configure(run={"gate_retries": 0})
    site.task("t-1", act="write('pages/t-1.txt', 'bad')")
    site.run()
    before = site.tips()
    result = here("merge", "t-1")
    assert result.code == 1
    assert "t-1 not merged" in result.out
    assert "exited with 1" in result.out
    assert "flyball tail t-1 --gate" in result.out
    assert site.tips() == before
    again = here("merge", "t-1", "--json")
    assert (again.code, again.json["merged"], again.json["state"]) == (1, False, "blocked")


# -- what is landed -----------------------------------------------------------------------------------------


def test_work_that_waits_is_landed_with_the_gates_output_shown(here: Cli, site: Project) -> None:
    finished(site, "t-1", "t-2")
    assert site.landed() == []
    result = here("merge", "t-1")
    assert result.code == 0
    assert "looking\n" in result.out
    commit = site.git("rev-parse", "--short=12", "main")
    assert f"t-1 merged in {commit}" in result.out
    assert site.landed() == ["t-1"]
    assert site.wrongs(["t-1"]) == []


def test_json_is_the_result_and_nothing_else(here: Cli, site: Project) -> None:
    finished(site, "t-1")
    result = here("merge", "t-1", "--json")
    assert (result.code, result.json["merged"]) == (0, True)
    assert result.json["commit"] == site.git("rev-parse", "main")


def test_what_is_merged_stays_merged(here: Cli, site: Project) -> None:
    finished(site, "t-1")
    assert here("merge", "t-1").code == 0
    again = here("merge", "t-1")
    assert (again.code, "t-1 merged in" in again.out) == (0, True)
    assert site.landed() == ["t-1"]


def test_what_was_mended_by_hand_can_be_landed(here: Cli, site: Project) -> None:
    site.configure(run={"gate_retries": 0})
    site.task("t-1", act="write('pages/t-1.txt', 'bad')")
    site.run()
    assert here("merge", "t-1").code == 1
    tree = site.workspace("t-1")
    (tree / "pages/t-1.txt").write_text("good")
    site.git("commit", "--quiet", "--all", "--message", "mend", cwd=tree)
    assert here("merge", "t-1").code == 0
    assert site.wrongs(["t-1"]) == []


def test_a_run_that_is_going_on_does_the_landing(here: Cli, site: Project) -> None:
    finished(site, "t-1")
    site.task("t-2", act=WAITS)
    run = site.start("run")
    site.wait("up")
    result = here("merge", "t-1")
    assert (result.code, "t-1 merged in" in result.out) == (0, True)
    assert "looking\n" in result.out
    assert run.poll() is None
    site.say("go")
    run.communicate(timeout=60)
    assert site.wrongs(["t-1"]) == []


def test_a_red_landing_by_hand_is_not_handed_to_an_agent_even_while_a_run_goes_on(
    here: Cli, site: Project
) -> None:
    site.task("t-1", act="write('pages/t-1.txt', 'bad')")
    site.run()
    site.act("t-1", WAITS)
    site.task("t-2", act=WAITS.replace("up", "up-2"))
    run = site.start("run")
    site.wait("up-2")
    result = here("merge", "t-1")
    assert result.code == 1
    assert "t-1 not merged" in result.out
    assert "flyball merge t-1" in result.out
    site.say("go")
    run.communicate(timeout=60)
