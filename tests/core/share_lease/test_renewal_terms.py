"""The times of a share lease."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flyball.core.share_lease.timing import ShareTiming, timing_for
from flyball.errors import UsageError


def test_the_defaults() -> None:
    terms = ShareTiming()
    assert (terms.heartbeat_s, terms.ttl_s, terms.retry_s) == (1.0, 4.0, 0.25)
    assert terms.margin_s == pytest.approx(0.29)
    assert terms.fence_s == pytest.approx(3.71)
    assert terms.lease_s == 4.0


@given(st.floats(0.01, 100), st.floats(0, 0.1), st.floats(0, 1))
def test_a_holder_is_fenced_before_its_store_may_evict_it(beat_s: float, drift: float, rate: float) -> None:
    """However much faster the store's clock runs within the bound, and with a timer a quarter beat late."""
    terms = ShareTiming(heartbeat_s=beat_s, ttl_s=4 * beat_s, drift=drift)
    store_clock = (terms.fence_s + beat_s / 4) * (1 + drift * rate)
    assert store_clock <= terms.ttl_s * (1 + 1e-12)


@given(st.floats(0.01, 100))
def test_the_heartbeat_alone_makes_terms_with_room_for_a_miss(beat_s: float) -> None:
    terms = timing_for(beat_s, grace_s=7)
    assert terms.fence_s > 3 * beat_s
    assert terms.lease_s == terms.ttl_s + 7


@pytest.mark.parametrize("beat_s", [0.0, -1.0, float("inf"), float("nan")])
def test_a_heartbeat_that_makes_no_sense_is_refused(beat_s: float) -> None:
    with pytest.raises(UsageError, match="heartbeat"):
        ShareTiming(heartbeat_s=beat_s)


def test_a_ttl_without_room_for_a_missed_renewal_is_refused_with_one_that_has_it() -> None:
    with pytest.raises(UsageError, match="take 4 s"):
        ShareTiming(heartbeat_s=1.0, ttl_s=2.0)


@pytest.mark.parametrize(("drift", "grace_s"), [(-0.1, 0.0), (1.0, 0.0), (0.0, -1.0), (0.0, float("nan"))])
def test_drift_and_grace_are_checked(drift: float, grace_s: float) -> None:
    with pytest.raises(UsageError, match="drift"):
        ShareTiming(drift=drift, grace_s=grace_s)
