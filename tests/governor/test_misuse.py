"""What makes no sense is refused where it is said, and costs nobody a slot."""

from __future__ import annotations

from typing import Any

import pytest

from flyball import Governor, Limiter
from flyball.errors import UsageError
from tests.governor.people import nothing_left, pool

NO_AMOUNTS: list[Any] = [float("nan"), float("inf"), -1, None, "12", True, 10**400]


@pytest.fixture(params=["memory", "sqlite"])
def url(request: pytest.FixtureRequest, home: object) -> str:
    """What is refused before it reaches a store needs no servers."""
    return "memory:" if request.param == "memory" else f"sqlite://{home}/governor.db"


# -- amounts ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("amount", NO_AMOUNTS, ids=lambda a: f"{a!r:.5}")
def test_what_was_used_is_a_number_or_refused_and_the_slot_goes_back(gov: Governor, amount: Any) -> None:
    gov.set_pool("p", windows={"tokens": "1000/min"})
    with (
        pytest.raises(UsageError, match="'tokens' must be a number"),
        gov.slot("p", cost={"tokens": 10}) as lease,
    ):
        lease.settle(tokens=amount)
    assert nothing_left(gov)
    assert [window.spent for window in pool(gov).windows] == [10]


@pytest.mark.parametrize("amount", NO_AMOUNTS, ids=lambda a: f"{a!r:.5}")
def test_a_limiter_is_told_of_numbers_only(amount: Any) -> None:
    limiter = Limiter(maximum=1, windows={"tokens": "1000/min"})
    with pytest.raises(UsageError, match="'tokens' must be a number"), limiter.slot() as slot:
        slot.settle(tokens=amount)
    with pytest.raises(UsageError, match="'tokens' must be a number"):
        limiter.slot(cost={"tokens": amount})
    assert limiter.stats().in_use == 0
