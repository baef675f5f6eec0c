"""The real agents, launched as the factory does it, may do what they are told: run the gate and commit."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.agents.bench import Benches
from tests.agents.factory_site import TASK, FactorySite
from tests.agents.kit import Agent, Claude, Codex, Gemini, Opencode

ALL: list[Agent] = [Claude(), Codex(), Gemini(), Opencode()]
four = pytest.mark.parametrize("agent", ALL, ids=lambda agent: agent.name)
# codex may not: its sandbox has everything outside its working directory read-only, git's own folder too.
may_commit = pytest.mark.parametrize(
    "agent", [each for each in ALL if each.name != "codex"], ids=lambda agent: agent.name
)
GATE = "sh check.sh --all && test -d pages"
SEEN = "the gate was run here"


@pytest.fixture
def site(agent: Agent, bench_of: Benches) -> Iterator[FactorySite]:
    bench = bench_of("")
    bench.door.set()
    site = FactorySite(bench, agent)
    site.write("check.sh", f"echo {SEEN}\n")
    site.configure(gate={"commands": [GATE]})
    site.commit("a gate")
    yield site
    site.end()


def told(site: FactorySite, words: str) -> bool:
    """Did the model hear this?"""
    return any(words in str(body) for body in site.bench.heard)


@four
def test_it_may_run_the_gate(agent: Agent, site: FactorySite) -> None:
    site.errands("write pages/one.txt = 1", f"run {GATE}")
    ran = site.run("--json")
    assert ran.code == 0, ran.said
    assert told(site, SEEN)
    assert ran.json["denials"] == {}


@may_commit
def test_it_may_commit_and_rebase(agent: Agent, site: FactorySite) -> None:
    work = ("write pages/one.txt = 1", "run git add --all", "run git commit -m One", "run git rebase main")
    site.errands(*work)
    ran = site.run("--json")
    assert ran.code == 0, ran.said
    assert site.git("log", "-1", "--format=%s", "main") == "One"
    assert ran.json["denials"] == {}


@four
def test_what_it_may_not_do_is_refused_and_told(agent: Agent, site: FactorySite, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    site.errands("write pages/one.txt = 1", f"run touch {outside}")
    ran = site.run("--json")
    assert ran.code == 0, ran.said
    assert not outside.exists()
    assert TASK in ran.json["denials"] or agent.name != "claude"
