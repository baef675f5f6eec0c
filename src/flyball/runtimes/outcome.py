"""What the pool is told of a run that has ended: one map from its ending to the outcome of its lease."""

from __future__ import annotations

from flyball.core.pool.model import Outcome
from flyball.runtimes.port import End

_OUTCOMES = {End.FINISHED: Outcome.FINISHED, End.FAILED: Outcome.FAILED}


def outcome_of(end: End) -> Outcome:
    """Limited, killed and unknown say nothing about the work. A limit has told the pool of itself by its
    signal; released as throttled it would count twice.

    >>> outcome_of(End.LIMITED)
    <Outcome.ABANDONED: 'abandoned'>
    """
    return _OUTCOMES.get(end, Outcome.ABANDONED)
