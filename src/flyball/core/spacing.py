"""A minimum, jittered time between two grants, so that a raised cap does not start a herd.

Only a grant moves the clock. A denial for spacing leaves it alone, or a busy queue would push the
next grant away for ever.
"""

from __future__ import annotations


def next_grant_at(now: float, spacing_s: float, spread: float, chance: float) -> float:
    """When the grant after this one may happen; ``chance`` is uniform in [0, 1).

    >>> [next_grant_at(100, 3, 0.5, chance) for chance in (0.0, 0.5)]
    [101.5, 103.0]
    """
    return now + spacing_s * (1 + spread * (2 * chance - 1))
