"""Whether a kind of call has become slower than it used to be. Smoothed, per class, and slow to say so.

A single slow answer means nothing: a long answer takes long. So answer times are compared within a class
(one path, one model), the recent average against the long one, and only a rise that lasts is told. Then each
answer tells it, until the recent average is down again: growth stops with the first, and it never cuts. What
stays slow becomes the usual, about two hundred answers later. The time to the first byte is the one to feed,
where it is seen: it does not grow with the answer.
"""

from __future__ import annotations

from dataclasses import dataclass

SHORT, LONG = 0.25, 0.02
"""How much one answer moves the recent and the long average."""
LONG_WHILE_SLOW = 0.001
"""Where many calls run at once, their slow answers would be the usual ones within a round."""
TIMES_SLOWER = 2.0
LEAST_ANSWERS = 30
"""Before so many it is not known what is usual."""
LASTING = 8
"""So many answers in a row must find the recent average too high."""
CLASSES_KEPT = 256


@dataclass(slots=True)
class _Class:
    answers: int = 0
    recent_s: float = 0.0
    usual_s: float = 0.0
    high: int = 0


class LatencyTracker:
    """Not thread-safe by need: a lost update moves an average by one answer.

    >>> watch = LatencyTracker()
    >>> any(watch.note("/v1/messages", 1.0) for _ in range(100))
    False
    >>> any(watch.note("/v1/messages", 5.0) for _ in range(20))
    True
    """

    def __init__(self) -> None:
        self._classes: dict[str, _Class] = {}

    def note(self, kind: str, took_s: float) -> bool:
        """One answer of a class took so long. True while the class is slower than it used to be."""
        known = self._classes.get(kind)
        if known is None:
            if len(self._classes) >= CLASSES_KEPT:
                del self._classes[next(iter(self._classes))]
            known = self._classes[kind] = _Class(recent_s=took_s, usual_s=took_s)
        known.answers = answers = known.answers + 1
        if known.high >= LASTING:
            short, long = SHORT, LONG_WHILE_SLOW
        elif answers * LONG < 1:
            # Until an average has seen enough, each answer weighs as in a plain mean.
            short, long = max(SHORT, 1 / answers), 1 / answers
        else:
            short, long = SHORT, LONG
        known.recent_s = recent_s = known.recent_s + (took_s - known.recent_s) * short
        known.usual_s = usual_s = known.usual_s + (took_s - known.usual_s) * long
        if answers < LEAST_ANSWERS or recent_s < TIMES_SLOWER * usual_s:
            known.high = 0
            return False
        known.high += 1
        return known.high >= LASTING
