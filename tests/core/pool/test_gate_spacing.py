"""Spacing at a gate without rows: chance is an argument, and the trial does not wait for it."""

from __future__ import annotations

from flyball.core.pool.local_pool import LocalPool
from flyball.core.pool.model import Phase
from flyball.core.pool.setting_table import resolve_pool
from flyball.core.signals import Signal, SignalKind
from tests.core.kit import T0


def test_starts_are_spaced_with_the_chance_that_is_passed_in() -> None:
    gate = LocalPool(resolve_pool({"cap": 4, "spacing_s": 3.0, "spacing_jitter": 0.5}), T0)
    assert gate.earliest_start(T0) == T0
    gate.start(T0, chance=0.0)
    assert gate.earliest_start(T0) == T0 + 1.5
    assert gate.earliest_start(T0 + 1.0) == T0 + 1.5
    gate.start(T0 + 1.5)
    assert gate.earliest_start(T0 + 1.5) == T0 + 4.5


def test_a_trial_is_exempt_from_spacing() -> None:
    gate = LocalPool(
        resolve_pool({"cap": 1, "controller": "koryph", "spacing_s": 600.0, "break_s": 20.0}), T0
    )
    first = gate.start(T0)
    gate.end(first, Signal(SignalKind.THROTTLED), T0 + 130.0)
    opens = gate.earliest_start(T0 + 130.0)
    assert T0 + 130.0 < opens < T0 + 600.0
    assert gate.earliest_start(opens) == opens
    assert gate.limits.phase is Phase.TRIAL
