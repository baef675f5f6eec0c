"""Every hostile agent in every mode: what it did, or what stopped it, is what is recorded."""

from __future__ import annotations

import os

import pytest

from tests.factory.kit import SOAK
from tests.redteam.record import (
    OUTCOMES,
    PAGE,
    SANDBOXES,
    USERS,
    CannotRunError,
    recorded,
    run_trial_as,
    threats_page,
)

QUICK = [("user", sandbox) for sandbox in SANDBOXES]
ALL = [(user, sandbox) for user in USERS for sandbox in SANDBOXES if user == "user" or os.geteuid() == 0]


@pytest.mark.parametrize(("user", "sandbox"), ALL if SOAK else QUICK)
def test_each_hostile_agent_ends_as_it_is_recorded(user: str, sandbox: str) -> None:
    try:
        trials = run_trial_as(user, sandbox)
    except CannotRunError as problem:
        pytest.skip(f"NO RED TEAM IN {sandbox}: {problem}")
    known = recorded()[user][sandbox]
    other = {name: each for name, each in trials.items() if known.get(name) != each.outcome}
    assert not other, f"not as in {OUTCOMES.name}; if that is meant, run: python -m tests.redteam.record"
    assert set(known) == set(trials)


def test_the_page_of_threats_says_what_is_recorded() -> None:
    stale = "stale; run: python -m tests.redteam.record --page"
    assert PAGE.read_text(encoding="utf-8") == threats_page(), stale
