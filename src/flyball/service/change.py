"""Is this news? Two looks differ in every age and every countdown; that alone is worth no event.

An age that grew by the time between the looks, or a countdown that shrank by it, has not changed. Whoever
shows them counts on by itself. What follows from time in other ways (an estimate, words that name it, how
full a window is, when somebody last showed a sign of life) is not compared at all.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

TOLERANCE_S = 0.5
"""Ages of one look are taken one after the other."""
_AGES = ("_s_ago", "held_s", "waiting_s", "resting_s", "since_s")
_COUNTDOWNS = ("_in_s", "_for_s")
_UNCOMPARED = frozenset(
    ["words", "estimate_s", "left", "confirmed_s_ago", "heard_s_ago", "renewed_s_ago", "expires_in_s"]
)


def same(before: Any, after: Any, *, elapsed_s: float, key: str = "") -> bool:
    """Did nothing happen between these two states, but that time passed?

    >>> same({"cap": 8, "settle_ends_in_s": 20.0}, {"cap": 8, "settle_ends_in_s": 10.0}, elapsed_s=10)
    True
    >>> same({"cap": 8, "settle_ends_in_s": 20.0}, {"cap": 8, "settle_ends_in_s": 20.0}, elapsed_s=10)
    False
    """
    if isinstance(before, Mapping) and isinstance(after, Mapping):
        return before.keys() == after.keys() and all(
            name in _UNCOMPARED or same(value, after[name], elapsed_s=elapsed_s, key=name)
            for name, value in before.items()
        )
    if isinstance(before, (list, tuple)) and isinstance(after, (list, tuple)):
        return len(before) == len(after) and all(
            same(one, other, elapsed_s=elapsed_s, key=key) for one, other in zip(before, after, strict=True)
        )
    expected = _expected(key, before, elapsed_s)
    if expected is None or not isinstance(after, float):
        return bool(before == after)
    return abs(after - expected) <= TOLERANCE_S


def _expected(key: str, value: object, elapsed_s: float) -> float | None:
    """What a moving value should have become; None for one that stays."""
    if not isinstance(value, float):
        return None
    if key.endswith(_AGES):
        return value + elapsed_s
    return value - elapsed_s if key.endswith(_COUNTDOWNS) else None
