"""Spacing: a minimum time between grants, jittered."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from flyball.core.pool.admission import next_grant_at
from tests.core.kit import T0


@given(st.floats(0, 1e4), st.floats(0, 1), st.floats(0, 1, exclude_max=True))
def test_the_next_grant_is_the_spacing_away_give_or_take_the_jitter(
    spacing_s: float, spread: float, chance: float
) -> None:
    wait_s = next_grant_at(0.0, spacing_s, spread, chance)
    assert spacing_s * (1 - spread) - 1e-9 <= wait_s <= spacing_s * (1 + spread) + 1e-9


def test_the_jitter_covers_half_the_spacing_to_both_sides() -> None:
    assert next_grant_at(T0, 3, 0.5, 0.0) == T0 + 1.5
    assert T0 + 4.49 < next_grant_at(T0, 3, 0.5, 0.999) < T0 + 4.5


def test_no_spacing_means_no_wait() -> None:
    assert next_grant_at(T0, 0.0, 0.5, 0.9) == T0
