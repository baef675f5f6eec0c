"""Calls that wait for a slot of a share while its store cannot be heard."""

from __future__ import annotations

import pytest

from flyball import Governor, WaitTimeoutError
from flyball.testing import FaultyStore
from tests.governor.people import Person
from tests.governor.sharing import POOL, divided
from tests.waiting import until

BEAT_S = 0.1


def test_a_waiter_under_a_fence_is_served_when_the_store_is_heard_again(
    broken: FaultyStore, gov: Governor
) -> None:
    divided(gov, 2, heartbeat_s=BEAT_S)
    with gov.share(POOL, node="a") as share:
        until(lambda: share.stats().limit == 2, "both slots")
        broken.break_on("renew")
        until(lambda: share.stats().fenced, "the fence")

        def wait() -> int:
            with share.slot(timeout=10):
                return share.stats().in_flight

        waiting = Person(wait)
        until(lambda: share.stats().waiting == 1, "a call to wait")
        with pytest.raises(WaitTimeoutError, match="was not renewed"), share.slot(timeout=0.01):
            pass
        broken.mend()
        assert waiting.outcome() == 1
