"""How often the measuring controller probes.

A failed probe costs one refusal, whatever the level; a successful one gains what lies above. So probes are
counted in successes, which bounds the waste, and they come more often the further the level is below one that
was served lately: there is more to win, and successes are slow to come there.

    interval   a probe that found nothing doubles it, one that found much halves it
    look       after a fall or a rise the first probe comes sooner, as long as such looks find something
    best       the level served lately; it fades with every failed probe, so an old one is given up
"""

from __future__ import annotations

from flyball.core.control.port import Seen
from flyball.core.learned import FIRST_LOOK, INTERVAL_LEAST, Measured

INTERVAL_MOST = 360.0
"""Successes between two probes. Waste is about one per probe, so the most bounds it near a third of a
percent."""
MUCH = 0.1
CRASH_HOLDS = 3.0
BELOW, OFTEN_MOST, SLOW_OFTEN_MOST = 4.0, 6.0, 2.0
"""Half of the best level is probed so many times as often; at most; and at most where slot time is the
budget."""
OVERDUE_S = 600.0
PROBE_SHARE = 0.0024
"""The part of the slot time that probes may cost where holds are long."""


def due(own: Measured, level: float, seen: Seen) -> bool:
    """Is it time for a probe? After so many successes; where those are rare (agents), after a time that keeps
    the slot time of failed probes small."""
    often = max(1.0, min(OFTEN_MOST, BELOW * (own.best / level - 1)))
    needed = min(own.look, own.interval) if own.early else own.interval / often
    if own.oks >= needed:
        return True
    elapsed_s = seen.now - own.changed_at
    if own.early and level < own.best / 2 and 0 < CRASH_HOLDS * seen.hold_mean_s <= elapsed_s:
        # So deep a fall is rarely one of seats, and at a low level successes are slow to come.
        return True
    often = min(SLOW_OFTEN_MOST, often)
    return elapsed_s >= OVERDUE_S and elapsed_s * level * PROBE_SHARE * often >= own.reject_s


def next_interval(own: Measured, level: float) -> float:
    """A probe that found nothing doubles it; one that found much shortens it: there is more to follow."""
    found = level - own.climbed_from
    if found < 1:
        return own.interval if own.early else min(INTERVAL_MOST, own.interval * 2)
    if found < max(2.0, MUCH * level):
        return own.interval
    return max(INTERVAL_LEAST, own.interval / 2)


def next_look(own: Measured, level: float) -> float:
    """Many falls are short, but not everywhere: one that found nothing makes the next one come later."""
    if not own.early or own.testing:
        return own.look
    if level - own.climbed_from < 1:
        return min(INTERVAL_MOST, own.look * 2)
    return max(FIRST_LOOK, own.look / 2)
