"""The real claude, codex, gemini and opencode through whole slot runs: ``flyball run`` takes a task to the
default branch, whatever the provider answers meanwhile.

What happened goes into the table of docs/reference/agents.md (``table.py``).
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest

from tests.agents.bench import Benches, finished, until
from tests.agents.factory_site import GOES_ON, TASK, FactorySite
from tests.agents.kit import Agent, Claude, Codex, Gemini, Opencode
from tests.agents.table import PROPERTY
from tests.factory.kit import Ran
from tests.waiting import until as wait_for

Sites = Callable[..., FactorySite]
Tell = Callable[..., None]

ALL: list[Agent] = [Claude(), Codex(), Gemini(), Opencode()]
four = pytest.mark.parametrize("agent", ALL, ids=lambda agent: agent.name)
ONE, TWO = "write pages/one.txt = 1", "write pages/two.txt = 2"
COMMIT = ("run git add --all", "run git commit -m One")
LACKS_TWO = f"test -f pages/two.txt || {{ echo 'errand: {TWO}'; false; }}"
"""A gate that says in the model's words what is missing."""


@pytest.fixture
def site_of(bench_of: Benches) -> Iterator[Sites]:
    with ExitStack() as stack:

        def make(
            agent: Agent, script: str = "", *, answers: int | None = None, **options: object
        ) -> FactorySite:
            """``answers``: so many, and then none until the door is opened."""
            bench = bench_of(script)
            bench.closes_after = answers
            if answers != 0:
                bench.door.set()
            site = FactorySite(bench, agent, **options)  # type: ignore[arg-type]
            stack.callback(site.end)
            return site

        yield make


@pytest.fixture
def tell(record_property: Callable[[str, object], None]) -> Tell:
    def record(scenario: str, site: FactorySite, ran: Ran, besides: str = "") -> None:
        record_property(PROPERTY, (scenario, site.agent.name, site.story(ran) + besides))

    return record


def landed(site: FactorySite, ran: Ran, *pages: str) -> None:
    """Once, whole, closed in the same commit, and nothing is left behind."""
    assert ran.code == 0, ran.said
    assert [site.page(f"{page}.txt") for page in pages] == [{"one": "1", "two": "2"}[page] for page in pages]
    assert site.wrongs([TASK]) == []


def ended(engine: subprocess.Popen[str]) -> Ran:
    done = finished(engine)
    return Ran(done.code, done.stdout, done.stderr)


# -- work ------------------------------------------------------------------------------------------------


@four
def test_an_edit_lands_as_a_commit_that_closes_the_task(agent: Agent, site_of: Sites, tell: Tell) -> None:
    site = site_of(agent)
    site.errands(ONE)
    ran = site.run("--json")
    landed(site, ran, "one")
    (launch,) = site.launches()
    assert (launch.attempt, launch.end, launch.resumed) == (1, "finished", False)
    assert launch.session
    assert launch.tokens
    assert site.git("log", "-1", "--format=%s", "main") == f"Add page {TASK}"
    tell("an edit and a commit", site, ran)


@four
def test_a_red_gate_is_mended_in_the_same_session(agent: Agent, site_of: Sites, tell: Tell) -> None:
    site = site_of(agent)
    site.configure(gate={"commands": [LACKS_TWO]})
    site.errands(ONE)
    ran = site.run("--json")
    landed(site, ran, "one", "two")
    first, second = site.launches()
    assert [(each.attempt, each.end) for each in (first, second)] == [(1, "finished"), (2, "finished")]
    assert second.resumed
    assert f"errand: {ONE}" in site.knew("The gate was red on your branch")
    tell("a red gate, mended", site, ran)


@four
def test_a_reviewer_writes_its_answer_and_the_work_lands(agent: Agent, site_of: Sites) -> None:
    site = site_of(agent)
    site.configure(review={"on": True})
    met = [{"criterion": 1, "met": True, "evidence": "seen"}]
    answer = json.dumps({"verdict": "pass", "criteria": met, "findings": []})
    persona = f"You review.\nerrand: write */.flyball-review-*.json = {answer}\n"
    site.write(".agents/personas/reviewer.md", persona)
    site.commit("a reviewer")
    site.errands(ONE)
    ran = site.run("--json")
    landed(site, ran, "one")
    _, review = site.folders(TASK)
    assert json.loads((review / "review.json").read_text())["verdict"] == "pass"
    summary = json.loads((review / "summary.json").read_text())
    assert (summary["stage"], summary["end"]) == ("review", "finished")


# -- limits ----------------------------------------------------------------------------------------------


@four
def test_a_throttle_it_gets_over_is_seen_at_once_and_burns_no_attempt(
    agent: Agent, site_of: Sites, tell: Tell
) -> None:
    site = site_of(agent, "429:1", answers=0, retries=1)
    site.errands(ONE)
    engine = site.begin()
    silent = agent.name == "opencode"
    if not silent:
        until(lambda: site.bench.pool(agent.pool)["throttle_count"], "it in status", while_runs=engine)
    site.until_asked(2, engine)
    assert engine.poll() is None
    site.answer()
    ran = ended(engine)
    landed(site, ran, "one")
    assert [(each.attempt, each.end) for each in site.launches()] == [(1, "finished")]
    assert site.bench.pool(agent.pool)["throttle_count"] == (0 if silent else 1)
    seen = "; it prints nothing about it" if silent else "; in `flyball status` while it ran"
    tell("429, then served", site, ran, seen)


@four
def test_one_throttled_to_death_comes_back_through_admission_with_its_session(
    agent: Agent, site_of: Sites, tell: Tell
) -> None:
    site = site_of(agent, f"ok,429:1x{agent.gives_up_after}")
    tell("429 until it gives up", site, _limited_and_back(site))


@four
def test_one_that_overload_ended_comes_back_through_admission_with_its_session(
    agent: Agent, site_of: Sites, tell: Tell
) -> None:
    site = site_of(agent, f"ok,529:1x{agent.gives_up_after}")
    tell("overload (529) until it gives up", site, _limited_and_back(site))


def _limited_and_back(site: FactorySite) -> Ran:
    site.errands(ONE, TWO)
    ran = site.run("--json")
    landed(site, ran, "one", "two")
    first, second = site.launches()
    assert [(each.attempt, each.end) for each in (first, second)] == [(1, "limited"), (1, "finished")]
    assert first.claim_id != second.claim_id
    assert second.resumed
    assert f"errand: {ONE}" in site.knew(GOES_ON)
    assert site.bench.pool(site.agent.pool)["throttle_count"] == 1
    return ran


# -- trouble ---------------------------------------------------------------------------------------------


@four
def test_an_answer_that_breaks_off_costs_an_attempt_at_most(agent: Agent, site_of: Sites, tell: Tell) -> None:
    """gemini gives up at once and the factory tries again; the others ask again themselves."""
    site = site_of(agent, "ok,cut", retries=1)
    site.errands(ONE, TWO)
    ran = site.run("--json")
    landed(site, ran, "one", "two")
    ends = [(each.attempt, each.end, each.resumed) for each in site.launches()]
    again = agent.name == "gemini"
    assert ends == ([(1, "failed", False), (2, "finished", False)] if again else [(1, "finished", False)])
    tell("an answer breaks off once", site, ran)


@pytest.mark.parametrize("agent", [Claude(), Codex()], ids=lambda agent: agent.name)
def test_one_whose_answers_break_off_until_it_fails_is_tried_again_afresh(
    agent: Agent, site_of: Sites, tell: Tell
) -> None:
    """opencode tries for more than a minute, and cannot be told to do less; gemini fails at the first."""
    site = site_of(agent, "ok,cutx2" if agent.name == "claude" else "ok,cut")
    site.errands(ONE, TWO)
    ran = site.run("--json")
    landed(site, ran, "one", "two")
    ends = [(each.attempt, each.end, each.resumed) for each in site.launches()]
    assert ends == [(1, "failed", False), (2, "finished", False)]
    tell("answers break off until it gives up", site, ran)


@four
def test_a_wrong_key_blocks_the_task_at_once(agent: Agent, site_of: Sites, tell: Tell) -> None:
    site = site_of(agent, "401x*")
    site.errands(ONE)
    ran = site.run("--json")
    assert ran.code == 1
    assert "trying again cannot help, check the login or the key" in ran.json["blocked"][TASK]
    assert [each.end for each in site.launches()] == ["failed"]
    assert site.bench.pool(agent.pool)["throttle_count"] == 0
    assert site.wrongs([]) == []
    tell("a wrong key (401)", site, ran)


# -- going on --------------------------------------------------------------------------------------------


@four
def test_one_that_died_with_the_engine_goes_on_with_its_session_where_it_had_commits(
    agent: Agent, site_of: Sites, tell: Tell
) -> None:
    site = site_of(agent, answers=3, args=agent.may_commit)
    site.errands(ONE, *COMMIT, TWO)
    engine = site.begin()
    site.until_asked(4, engine)
    engine.kill()
    engine.wait()
    site.fell_dead()
    site.answer()
    ran = site.run("--json")
    landed(site, ran, "one", "two")
    first, second = site.launches()
    assert (first.end, second.end, second.attempt, second.resumed) == ("", "finished", 1, True)
    assert f"errand: {ONE}" in site.knew(GOES_ON)
    assert site.git("log", "-2", "--format=%s", "main").splitlines() == [f"Add page {TASK}", "One"]
    tell("agent and engine killed, with commits", site, ran)


@four
def test_one_that_died_with_the_engine_starts_afresh_where_it_had_none(
    agent: Agent, site_of: Sites, tell: Tell
) -> None:
    site = site_of(agent, answers=1)
    site.errands(ONE, TWO)
    engine = site.begin()
    site.until_asked(2, engine)
    engine.kill()
    engine.wait()
    site.fell_dead()
    site.answer()
    ran = site.run("--json")
    landed(site, ran, "one", "two")
    first, second = site.launches()
    assert (first.end, second.end, second.attempt, second.resumed) == ("", "finished", 1, False)
    tell("agent and engine killed, without commits", site, ran)


@four
def test_one_that_outlived_the_engine_is_found_again(agent: Agent, site_of: Sites, tell: Tell) -> None:
    site = site_of(agent, answers=1)
    site.errands(ONE, TWO)
    engine = site.begin()
    site.until_asked(2, engine)
    engine.kill()
    another = site.begin()
    until(lambda: site.follows(another), "it found the agent", while_runs=another)
    site.answer()
    ran = ended(another)
    landed(site, ran, "one", "two")
    assert [(each.attempt, each.end) for each in site.launches()] == [(1, "finished")]
    tell("engine killed, agent found again", site, ran)


@four
def test_one_that_ended_unwatched_is_judged_by_what_it_left(agent: Agent, site_of: Sites, tell: Tell) -> None:
    site = site_of(agent, answers=1)
    site.errands(ONE, TWO)
    engine = site.begin()
    site.until_asked(2, engine)
    engine.kill()
    site.answer()
    wait_for(lambda: not site.processes(), "the agent to end")
    ran = site.run("--json")
    landed(site, ran, "one", "two")
    (launch,) = site.launches()
    assert (launch.attempt, launch.end) == (1, "finished")
    assert launch.session
    tell("engine killed, agent finished meanwhile", site, ran)
