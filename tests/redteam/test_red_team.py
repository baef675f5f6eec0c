"""Every hostile agent in every mode: it does harm where that is recorded, and is stopped everywhere else."""

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
from tests.redteam.trial import BROKEN, DONE, NOT_TRIED

QUICK = [("user", sandbox) for sandbox in SANDBOXES]
ALL = [(user, sandbox) for user in USERS for sandbox in SANDBOXES if user == "user" or os.geteuid() == 0]


@pytest.mark.parametrize(("user", "sandbox"), ALL if SOAK else QUICK)
def test_each_hostile_agent_does_harm_or_is_stopped_as_it_is_recorded(user: str, sandbox: str) -> None:
    try:
        trials = run_trial_as(user, sandbox)
    except CannotRunError as problem:
        pytest.skip(f"NO RED TEAM IN {sandbox}: {problem}")
    known = recorded()[user][sandbox]
    assert set(known) == set(trials), f"not those in {OUTCOMES.name}; run: python -m tests.redteam.record"
    tried = {name: each for name, each in trials.items() if each.outcome != NOT_TRIED}
    wrong = {
        name: each
        for name, each in tried.items()
        if each.outcome == BROKEN or (known[name] == DONE) != (each.outcome == DONE)
    }
    assert not wrong, f"not as in {OUTCOMES.name}; if it is meant, run: python -m tests.redteam.record"


def test_the_page_of_threats_says_what_is_recorded() -> None:
    stale = "stale; run: python -m tests.redteam.record --page"
    assert PAGE.read_text(encoding="utf-8") == threats_page(), stale
