"""What tokens weigh in dollars, where a transcript gives tokens only.

List prices by tier, per million tokens. A window's ceiling is calibrated with the same weights, so what
counts is how the models and kinds of tokens compare, not the last cent; the figure is tagged an estimate.
"""

from __future__ import annotations

from typing import NamedTuple


class Price(NamedTuple):
    """Dollars per million tokens."""

    sent: float
    answered: float


_WRITE, _READ = 1.25, 0.1
"""Writing to the cache costs a quarter more than sending, reading from it a tenth."""
_TIERS = {"haiku": Price(1.0, 5.0), "sonnet": Price(3.0, 15.0), "opus": Price(15.0, 75.0)}
_UNKNOWN = _TIERS["sonnet"]


def price_of(model: str) -> Price:
    """
    >>> price_of("claude-haiku-4-5"), price_of("something-new")
    (Price(sent=1.0, answered=5.0), Price(sent=3.0, answered=15.0))
    """
    named = next((price for tier, price in _TIERS.items() if tier in model), None)
    if named is None and "fable" in model:
        return _TIERS["opus"]
    return named or _UNKNOWN


def cost_usd(model: str, *, sent: int, written: int, read: int, answered: int) -> float:
    """
    >>> round(cost_usd("claude-sonnet-4-5", sent=1000, written=0, read=0, answered=1000), 6)
    0.018
    """
    price = price_of(model)
    millionths = price.sent * (sent + _WRITE * written + _READ * read) + price.answered * answered
    return millionths / 1e6
