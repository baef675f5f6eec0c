"""When a holder should renew, and why then.

    first     nothing was ever sent: at once
    beat      one heartbeat after the last renewal
    retry     a quarter beat after one that failed; one that hangs is waited for, longer each time
    confirm   we were asked for less and use no more than that: say so, others wait for it
    push      we were asked for less and some of the work beyond it has ended
    pull      we are starved while more is promised, or our hunger is news to the store
    noticed   somebody told us to look

The last four do not wait for the beat: they are *eager*. They are at least ``eager_s`` apart, a pull in vain
doubles the wait for the next until the beat is sooner, and where everybody has its target none of them
happens. Nothing here matters for the bound: a renewal is safe at any time.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum

from flyball.core.holding import Holding, fenced
from flyball.core.terms import ShareTerms


class Why(Enum):
    FIRST = "first"
    BEAT = "beat"
    RETRY = "retry"
    CONFIRM = "confirm"
    PUSH = "push"
    PULL = "pull"
    NOTICED = "noticed"

    @property
    def eager(self) -> bool:
        return self in _EAGER


_EAGER = frozenset({Why.CONFIRM, Why.PUSH, Why.PULL, Why.NOTICED})
MAX_DOUBLINGS = 6


@dataclass(frozen=True, slots=True)
class Due:
    at: float
    """On the holder's clock; in the past means now."""
    why: Why


def due(holding: Holding, *, in_flight: int, wants: int, terms: ShareTerms, now: float) -> Due:
    """The next renewal as things stand; ask again after a reply, a notice, an end of work or a new ask."""
    if holding.seq == 0:
        return Due(now, Why.FIRST)
    if holding.pending:
        return Due(holding.sent_at + _patience_s(holding, terms), Why.RETRY)
    if holding.misses:
        return Due(holding.missed_at + terms.retry_s, Why.RETRY)
    if fenced(holding, now=now):
        # Answered too late. The next answer may be quicker.
        return Due(holding.sent_at + terms.retry_s, Why.RETRY)
    beat = Due(holding.sent_at + terms.heartbeat_s, Why.BEAT)
    eager = _eager(holding, in_flight=in_flight, wants=wants, terms=terms)
    return eager if eager is not None and eager.at < beat.at else beat


def sent_for(holding: Holding, due: Due, *, now: float) -> Holding:
    """Note why a renewal goes out, right before ``send``."""
    if not due.why.eager:
        return holding
    pulls = holding.pulls + 1 if due.why is Why.PULL else holding.pulls
    return replace(holding, eager_at=now, pulls=min(pulls, MAX_DOUBLINGS))


def _eager(holding: Holding, *, in_flight: int, wants: int, terms: ShareTerms) -> Due | None:
    soon = holding.eager_at + terms.eager_s
    if holding.noticed:
        return Due(soon, Why.NOTICED)
    gate = 0 if holding.leaving else holding.gate
    if holding.leaving and not holding.told:
        return Due(soon, Why.CONFIRM)
    if max(gate, in_flight) < holding.slots:
        return Due(soon, Why.CONFIRM if in_flight <= gate else Why.PUSH)
    if wants > gate and not holding.leaving:
        return _pull(holding, gate, terms)
    return None


def _pull(holding: Holding, gate: int, terms: ShareTerms) -> Due | None:
    if gate < holding.target:
        return Due(holding.sent_at + terms.eager_s * 2**holding.pulls, Why.PULL)
    if holding.reported <= gate:
        # The plan may give us what others do not need. A load that flutters must not renew at every flutter.
        return Due(holding.eager_at + terms.retry_s, Why.PULL)
    return None


def _patience_s(holding: Holding, terms: ShareTerms) -> float:
    """A reply that is slow is still the latest one's, if no newer renewal is sent too soon."""
    usual = max(terms.heartbeat_s, 2 * holding.trip_s)
    return float(usual * 2 ** min(holding.misses, MAX_DOUBLINGS))
