"""The times of a share lease, all derived from its heartbeat.

    0 ------------- 1 ------------- 2 ------------- 3 ------------- 4      beats after a renewal was sent
    renewal         next one                                  |     |
                    fails: again every quarter beat        fence    the store may give the slots away

The holder counts from the moment it *sent* the last renewal that was answered; the store counts from the
moment it handled that renewal, which is later. So the fence comes first, however long the answer took, as
long as the two clocks run at nearly the same rate. They are never compared: only durations travel. The
margin between fence and expiry pays for the difference in rate (``drift``) and for a timer that fires late (a
quarter beat).

``grace_s`` is for work that cannot be interrupted: the store keeps the slots that much longer after the
fence, so work which ends within the grace never runs beside its successor.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from flyball.errors import UsageError

BEATS_PER_TTL = 4
PLAN_PER_NODE_S = 0.0005
"""Who gets how much is worked out at most so often: the time a plan takes grows with the nodes."""
DRIFT = 0.01
"""How much faster the store's clock may run than a holder's. Quartz is off by 1e-4, a slewed one by 5e-4."""


class AllotRule(Enum):
    """How nodes compete inside one pool (see allotment.py)."""

    EVEN = "even"
    DEMAND = "demand"


class FoldRule(Enum):
    """How what each node believes about the whole becomes one figure. Never by sum: all speak of the same."""

    MEDIAN = "median"
    MIN = "min"


@dataclass(frozen=True, slots=True, kw_only=True)
class ShareTiming:
    """What all holders of share leases of one pool agree on. Stored with the pool."""

    heartbeat_s: float = 1.0
    ttl_s: float = BEATS_PER_TTL * 1.0
    drift: float = DRIFT
    grace_s: float = 0.0

    def __post_init__(self) -> None:
        if not 0 < self.heartbeat_s < float("inf"):
            raise UsageError(
                f"a heartbeat of {self.heartbeat_s:g} s makes no sense: take more than 0, such as 1"
            )
        if not 0 <= self.drift < 1 or not 0 <= self.grace_s < float("inf"):
            raise UsageError("drift must be from 0 up to 1, and the grace 0 s or more")
        # A renewal that is lost is noticed a beat later; the one after it must still come in time.
        if self.fence_s < 2 * self.heartbeat_s:
            raise UsageError(
                f"a TTL of {self.ttl_s:g} s leaves no room for a missed renewal at a heartbeat of "
                f"{self.heartbeat_s:g} s: take {BEATS_PER_TTL * self.heartbeat_s:g} s, or a shorter heartbeat"
            )

    @property
    def margin_s(self) -> float:
        """Between the fence and the end of the TTL."""
        return self.margin_for(self.ttl_s)

    @property
    def fence_s(self) -> float:
        """After the send of an answered renewal its holder admits for this long."""
        return self.fence_for(self.ttl_s)

    @property
    def lease_s(self) -> float:
        """After a renewal was handled the store keeps its slots for this long."""
        return self.ttl_s + self.grace_s

    @property
    def retry_s(self) -> float:
        """After a renewal failed the next one goes out this soon."""
        return self.heartbeat_s / 4

    @property
    def eager_s(self) -> float:
        """Between two renewals that do not wait for the beat."""
        return self.heartbeat_s / 20

    @property
    def turn_s(self) -> float:
        """With fewer slots than nodes each has one for this long, then the next."""
        return 2 * self.heartbeat_s

    def plan_every_s(self, nodes: int) -> float:
        """Between two plans of who should get how much."""
        return max(self.eager_s, PLAN_PER_NODE_S * nodes)

    def margin_for(self, ttl_s: float) -> float:
        return self.heartbeat_s / 4 + ttl_s * self.drift

    def fence_for(self, ttl_s: float) -> float:
        """As ``fence_s``, for a TTL that came with a reply: the store's word counts."""
        return ttl_s - self.margin_for(ttl_s)


def timing_for(heartbeat_s: float, *, grace_s: float = 0.0) -> ShareTiming:
    """Terms of which only the heartbeat was chosen.

    >>> terms = timing_for(0.5)
    >>> terms.ttl_s, round(terms.margin_s, 3), round(terms.fence_s, 3)
    (2.0, 0.145, 1.855)
    """
    return ShareTiming(heartbeat_s=heartbeat_s, ttl_s=BEATS_PER_TTL * heartbeat_s, grace_s=grace_s)
