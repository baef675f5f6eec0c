"""The real claude, codex, gemini and opencode, launched as the factory launches them: prompt on stdin, in a
linked worktree, with permission to edit what is in it and nothing else."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from flyball.core.signals import End, SignalKind
from tests.agents.bench import Benches
from tests.agents.kit import Agent, Claude, Codex, Gemini, Opencode
from tests.agents.site import Site

Sites = Callable[..., Site]

ALL: list[Agent] = [Claude(), Codex(), Gemini(), Opencode()]
four = pytest.mark.parametrize("agent", ALL, ids=lambda agent: agent.name)
HELLO = "Do this, please.\nerrand: write hello.txt = Hello there\n"
TWO = "Do both.\nerrand: write one.txt = 1\nerrand: write two.txt = 2\n"
GO_ON = "Go on where you stopped.\n"


@pytest.fixture
def site_of(bench_of: Benches) -> Sites:
    def make(agent: Agent, script: str = "", *, retries: int = 0) -> Site:
        bench = bench_of(script)
        bench.door.set()
        return Site(bench, agent, retries=retries)

    return make


# -- work ------------------------------------------------------------------------------------------------


@four
def test_it_edits_a_file_in_its_worktree_and_finishes(agent: Agent, site_of: Sites) -> None:
    site = site_of(agent)
    told = site.run(HELLO)
    assert told.ending.end is End.FINISHED, told
    assert site.written("hello.txt") == "Hello there\n"
    assert told.ending.progress.session
    assert told.ending.progress.turns == 2
    assert told.ending.progress.tokens is not None
    assert told.signals == []


@four
def test_a_long_prompt_in_any_alphabet_arrives_whole(agent: Agent, site_of: Sites) -> None:
    words = "caf\u00e9 \u6f22\u5b57 \U0001f6d1 " * 20_000
    told = site_of(agent).run(f"Begin.\n{words}\nEnd.\n")
    assert told.ending.end is End.FINISHED, told.stderr
    body = told.heard[0]
    assert words in _texts(body.get("messages") or body.get("input") or body.get("contents"))


@four
def test_the_model_is_the_one_that_was_asked_for(agent: Agent, site_of: Sites) -> None:
    other = {"claude": "claude-haiku-4-5", "codex": "gpt-5.4", "gemini": "gemini-2.5-pro"}.get(agent.name)
    told = site_of(agent).run(GO_ON, model=other or agent.model)
    assert told.heard[0]["model"] == (other or agent.model.partition("/")[2])


# -- what it may do --------------------------------------------------------------------------------------


@four
def test_what_it_may_not_do_is_refused_and_it_works_on(agent: Agent, site_of: Sites) -> None:
    site = site_of(agent)
    outside, before = site.bench.folder / "outside.txt", site.head()
    told = site.run(
        f"errand: write {outside} = no\n"
        "errand: run git commit --allow-empty -m no\n"
        "errand: write hello.txt = yes\n"
    )
    assert told.ending.end is End.FINISHED, told
    assert site.written("hello.txt") == "yes\n"
    assert not outside.exists()
    assert site.head() == before


@pytest.mark.parametrize(
    ("agent", "args"),
    [
        pytest.param(agent, args, id=f"{agent.name}{'_'.join(args)}")
        for agent, args in (
            (Claude(), ("--permission-mode", "plan")),
            (Codex(), ("--sandbox", "read-only")),
            (Codex(), ("-c", 'sandbox_mode="read-only"')),
            (Gemini(), ("--approval-mode", "plan")),
        )
    ],
)
def test_what_the_project_says_about_permissions_wins(
    agent: Agent, args: tuple[str, ...], site_of: Sites
) -> None:
    site = site_of(agent)
    told = site.run(HELLO, args=args)
    assert told.ending.end is End.FINISHED, told
    assert site.written("hello.txt") is None


def test_an_opencode_that_may_do_all_it_asks_for_has_a_shell(site_of: Sites) -> None:
    site = site_of(Opencode())
    assert site.run("errand: run touch ran.txt\n").ending.end is End.FINISHED
    assert site.written("ran.txt") is None
    assert site.run("errand: run touch ran.txt\n", args=("--auto",)).ending.end is End.FINISHED
    assert site.written("ran.txt") == ""


def test_an_opencode_that_asks_and_gets_no_answer_has_failed_and_says_what_it_asked_for(
    site_of: Sites,
) -> None:
    site = site_of(Opencode())
    site.env["OPENCODE_PERMISSION"] = '{"bash": "ask"}'
    ending = site.run("errand: run touch ran.txt\n").ending
    assert ending.end is End.FAILED
    assert ending.reason == "it stopped because no person was there to permit it: bash (touch ran.txt)"


@four
def test_options_of_ours_that_the_project_repeats_do_no_harm(agent: Agent, site_of: Sites) -> None:
    site = site_of(agent)
    ours = [word for word in site.launch().argv[1:] if word.startswith("--") and word not in agent.args]
    told = site.run(HELLO, args=ours)
    assert told.ending.end is End.FINISHED, told
    assert site.written("hello.txt") == "Hello there\n"


# -- ceilings --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("ceiling", "words"),
    [({"max_turns": 1}, "maximum number of turns (1)"), ({"max_cost_usd": 0.001}, "maximum budget ($0.001)")],
    ids=["turns", "cost"],
)
def test_claude_minds_its_own_ceilings(ceiling: dict[str, float], words: str, site_of: Sites) -> None:
    site = site_of(Claude())
    told = site.run(TWO, **ceiling)
    assert told.ending.end is End.FAILED
    assert words in told.ending.reason
    assert site.written("one.txt") == "1\n"


# -- going on --------------------------------------------------------------------------------------------


@four
def test_it_goes_on_with_its_session(agent: Agent, site_of: Sites) -> None:
    site = site_of(agent)
    first = site.run(HELLO)
    second = site.run("errand: write more.txt = More\n", session=first.ending.progress.session)
    assert second.ending.end is End.FINISHED, second
    assert site.written("more.txt") == "More\n"
    assert "errand: write hello.txt" in second.asked_first
    assert second.ending.progress.turns == 2
    forked = second.ending.progress.session != first.ending.progress.session
    assert forked == (agent.name != "gemini")


def test_what_a_resumed_claude_cost_is_without_its_sessions_earlier_cost(site_of: Sites) -> None:
    site = site_of(Claude())
    first = site.run(HELLO).ending.progress
    second = site.run("errand: write more.txt = More\n", session=first.session).ending.progress
    assert first.cost_usd
    assert second.cost_usd == pytest.approx(first.cost_usd)


@four
def test_a_session_that_is_not_there_is_told_from_every_other_failure(agent: Agent, site_of: Sites) -> None:
    told = site_of(agent).run(GO_ON, session="11111111-2222-4333-8444-555555555555")
    assert (told.ending.end, told.ending.session_gone) == (End.FAILED, True), told
    assert told.ending.progress.session is None
    assert told.heard == []


@four
def test_a_killed_one_goes_on_with_its_session(agent: Agent, site_of: Sites) -> None:
    site = site_of(agent)
    killed = site.kill_at_request(2, TWO)
    assert killed.ending.end is End.KILLED
    assert (site.written("one.txt"), site.written("two.txt")) == ("1\n", None)
    told = site.run(GO_ON, session=killed.ending.progress.session)
    assert told.ending.end is End.FINISHED, told
    assert "errand: write one.txt" in told.asked_first


# -- trouble ---------------------------------------------------------------------------------------------


@four
def test_a_bad_key_is_a_failure_that_trying_again_will_not_change(agent: Agent, site_of: Sites) -> None:
    told = site_of(agent, "401x*").run(HELLO)
    assert told.ending.end is End.FAILED, told
    assert told.ending.signal is not None
    assert told.ending.signal.kind is SignalKind.AUTH


@four
def test_a_throttle_it_gets_over_costs_nothing_but_time(agent: Agent, site_of: Sites) -> None:
    site = site_of(agent, "429:1", retries=1)
    told = site.run(HELLO)
    assert told.ending.end is End.FINISHED, told
    assert site.written("hello.txt") == "Hello there\n"
    kinds = [signal.kind for signal in told.signals]
    assert kinds == ([] if agent.name == "opencode" else [SignalKind.THROTTLED])


@four
def test_one_throttled_to_death_goes_on_with_its_session(agent: Agent, site_of: Sites) -> None:
    site = site_of(agent, f"ok,429:1x{agent.gives_up_after}")
    told = site.run(TWO)
    assert told.ending.end is End.LIMITED, told
    assert told.ending.signal is not None
    assert told.ending.signal.kind is SignalKind.THROTTLED
    assert told.ending.told
    assert told.ending.progress.turns == 1
    assert (site.written("one.txt"), site.written("two.txt")) == ("1\n", None)
    again = site.run(GO_ON, session=told.ending.progress.session)
    assert again.ending.end is End.FINISHED, again
    assert site.written("two.txt") == "2\n"


@four
def test_one_throttled_before_its_first_answer_names_a_session_only_if_there_is_one(
    agent: Agent, site_of: Sites
) -> None:
    site = site_of(agent, f"429:1x{agent.gives_up_after}")
    told = site.run(HELLO)
    assert told.ending.end is End.LIMITED, told
    session = told.ending.progress.session
    assert (session is None) == (agent.name == "gemini")
    again = site.run(GO_ON if session else HELLO, session=session)
    assert again.ending.end is End.FINISHED, again
    assert site.written("hello.txt") == "Hello there\n"


@four
def test_an_overload_that_lasts_is_a_limit(agent: Agent, site_of: Sites) -> None:
    told = site_of(agent, "529:1x*").run(HELLO)
    assert told.ending.end is End.LIMITED, told
    assert told.ending.signal is not None
    assert told.ending.signal.kind is SignalKind.OVERLOADED


@pytest.mark.parametrize("agent", [Claude(), Codex(), Opencode()], ids=lambda agent: agent.name)
def test_an_answer_that_breaks_off_once_is_asked_for_again(agent: Agent, site_of: Sites) -> None:
    site = site_of(agent, "ok,cut", retries=1)
    told = site.run(HELLO)
    assert told.ending.end is End.FINISHED, told
    assert told.ending.progress.turns == 2
    assert site.written("hello.txt") == "Hello there\n"
    assert told.signals == []


@pytest.mark.parametrize("agent", [Claude(), Codex(), Gemini()], ids=lambda agent: agent.name)
def test_one_whose_answers_break_off_fails_and_goes_on_with_its_session(agent: Agent, site_of: Sites) -> None:
    """opencode tries for more than a minute, and cannot be told to do less."""
    site = site_of(agent, "ok,cutx2" if agent.name == "claude" else "ok,cut")
    told = site.run(TWO)
    assert told.ending.end is End.FAILED, told
    assert told.ending.signal is None
    assert site.written("one.txt") == "1\n"
    again = site.run(GO_ON, session=told.ending.progress.session)
    assert again.ending.end is End.FINISHED, again
    assert "errand: write one.txt" in again.asked_first


def _texts(entries: object) -> str:
    """Every text in a conversation, one after another."""
    if isinstance(entries, str):
        return entries
    if isinstance(entries, dict):
        return "".join(_texts(entries.get(key)) for key in ("content", "parts", "text"))
    return "".join(map(_texts, entries)) if isinstance(entries, list) else ""
