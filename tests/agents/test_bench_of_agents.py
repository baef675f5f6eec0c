"""``python -m bench agents`` with the real agents, small."""

from __future__ import annotations

from bench import agents


def test_few_real_agents_and_the_factory_get_through_it_and_see_no_refusal() -> None:
    section = agents.run(agents.QUICK, lambda _: None)
    ours = {figure.what.partition(": ")[2]: figure.ours for figure in section.figures}
    names = ("429s seen by an agent", "agents dead of limits", "agents that did not finish")
    assert [ours[name] for name in names] == [0, 0, 0], section.notes
    assert ours["merged per hour"] > 0
