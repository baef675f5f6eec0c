"""The rule with one line broken: what a search must find, each with the kind of fault that comes of it.

Every line that carries a bound is here, and every kind of fault is found at least once, so no check can be
blind. Designs of others are in elsewhere.py.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tests.explore.model import Model
from tests.explore.rule import SHIPPED, Rule, broken
from tests.explore.world import AtFence, Kind, Process, Scenario


@dataclass(frozen=True, kw_only=True)
class Mutant:
    name: str
    scenario: Scenario
    finds: Kind = Kind.OVERSHOOT
    rule: Callable[[], Rule] = lambda: SHIPPED
    model: type[Model] = Model
    """The store's part in it, where that is what is broken."""


QUIET = Scenario(name="messages only", time=False)
CROWDED = Scenario(name="two messages", time=False, wire=2, twice=False, lossy=False)
TIMED = Scenario(name="with time", ttls=(1,), twice=False, lossy=False)
LEAVING = Scenario(name="leave", time=False, rare={"leave": 1})

MUTANTS = (
    Mutant(
        name="no check of sequence numbers",
        scenario=CROWDED,
        rule=lambda: broken(
            "renewal",
            (
                "if lease is not None and renewal.seq <= lease.seq:",
                "if lease is not None and renewal.seq < 0:",
            ),
        ),
    ),
    Mutant(
        name="a smaller size is declared before the work fits",
        scenario=QUIET,
        rule=lambda: broken("holder", ("holds = max(gate, in_flight)", "holds = gate")),
    ),
    Mutant(
        name="what is unused is given back with the gate still open",
        scenario=QUIET,
        rule=lambda: broken("holder", ("holds = max(gate, in_flight)", "holds = in_flight")),
    ),
    Mutant(
        name="the fence counts from the reply",
        scenario=TIMED,
        rule=lambda: broken("holder", ("fence_at=holding.sent_at + terms", "fence_at=now + terms")),
    ),
    Mutant(
        name="the margin leaves no room for a late timer",
        scenario=TIMED,
        rule=lambda: broken(
            "timing", ("return self.heartbeat_s / 4 + ttl_s * self.drift", "return ttl_s * self.drift")
        ),
    ),
    Mutant(
        name="the margin ignores drift",
        scenario=Scenario(
            name="drift", ttls=(3,), processes=(Process(drift=1), Process()), twice=False, lossy=False
        ),
        rule=lambda: broken(
            "timing", ("return self.heartbeat_s / 4 + ttl_s * self.drift", "return self.heartbeat_s / 4")
        ),
    ),
    Mutant(
        name="the grace is not added to the lease",
        scenario=Scenario(
            name="grace", ttls=(1,), grace=1, at_fence=AtFence.LINGER, twice=False, lossy=False, caps=(1,)
        ),
        rule=lambda: broken("timing", ("return self.ttl_s + self.grace_s", "return self.ttl_s")),
    ),
    Mutant(
        name="what is owed may be refilled",
        scenario=Scenario(name="stubborn", ttls=(1,), twice=False, lossy=False, at_fence=AtFence.STUBBORN),
        rule=lambda: broken("renewal", ("gate=min(target, slots - owed)", "gate=min(target, slots)")),
    ),
    Mutant(
        name="what a fenced holder runs is a right while the store learns",
        scenario=Scenario(
            name="stubborn",
            ttls=(1,),
            caps=(1,),
            twice=False,
            lossy=False,
            at_fence=AtFence.STUBBORN,
            rare={"flush": 1},
        ),
        rule=lambda: broken("renewal", ("max(row.owed, renewal.beyond)", "row.owed")),
    ),
    Mutant(
        name="what outlived a fence is a right again once its holder was answered and the store forgot",
        scenario=Scenario(
            name="stubborn", ttls=(1,), twice=False, lossy=False, at_fence=AtFence.STUBBORN, rare={"flush": 1}
        ),
        finds=Kind.OVERGRANT,
        rule=lambda: broken("holder", ("beyond=holds - gate,", "beyond=holds if over else 0,")),
    ),
    Mutant(
        name="a renewal from before the fence lifts it",
        scenario=Scenario(name="flush", ttls=(2,), twice=False, lossy=False, rare={"flush": 1}),
        rule=lambda: broken("holder", ("if holding.sent_at < holding.fence_at <= now:", "if False:")),
    ),
    Mutant(
        name="a store that learns grants what no holder declared",
        scenario=Scenario(name="flush", time=False, rare={"flush": 1}),
        finds=Kind.OVERGRANT,
        rule=lambda: broken(
            "renewal",
            ("    if not learning:\n", "    if True:\n"),
        ),
    ),
    Mutant(
        name="what was not granted is not owed",
        scenario=Scenario(name="stubborn", ttls=(1,), twice=False, lossy=False, at_fence=AtFence.STUBBORN),
        finds=Kind.OVERCOUNT,
        rule=lambda: broken(
            "renewal",
            ("min(row.owed + max(0, renewal.holds - row.slots), max(0, excess), slots)", "min(0, excess, 0)"),
        ),
    ),
    Mutant(
        name="what was owed is forgotten at the next renewal",
        scenario=Scenario(name="stubborn", ttls=(1,), twice=False, lossy=False, at_fence=AtFence.STUBBORN),
        finds=Kind.OVERCOUNT,
        rule=lambda: broken("renewal", ("min(row.owed + max(0, renewal", "min(max(0, renewal")),
    ),
    Mutant(
        name="what is owed stays owed when there is room",
        scenario=Scenario(name="with time", ttls=(2,), twice=False, lossy=False),
        finds=Kind.LOST,
        rule=lambda: broken("renewal", ("max(0, excess), slots)", "slots)")),
    ),
    Mutant(
        name="word from outside opens the gate",
        scenario=Scenario(name="notice", time=False, rare={"notice": 1}),
        rule=lambda: broken("holder", ("gate=min(holding.gate, target), target", "gate=target, target")),
    ),
    Mutant(
        name="who leaves is gone with work running",
        scenario=Scenario(name="leave", ttls=(1,), caps=(1,), twice=False, lossy=False, rare={"leave": 1}),
        rule=lambda: broken(
            "holder", ("and answered and not holding.slots and not in_flight", "and answered")
        ),
    ),
    Mutant(
        name="a shorter lease overtakes the one that its holder counts on",
        scenario=Scenario(name="shorter", ttls=(2, 1), caps=(1,), rare={"ttl": 1}, twice=False, lossy=False),
        finds=Kind.UNCOVERED,
        rule=lambda: broken(
            "renewal", ("max(row.expires_at, now + pot.terms.lease_s)", "now + pot.terms.lease_s")
        ),
    ),
    Mutant(
        name="a lease ends when its holder is fenced, not after",
        scenario=Scenario(
            name="drift", ttls=(3,), processes=(Process(drift=1), Process()), twice=False, lossy=False
        ),
        finds=Kind.UNCOVERED,
        rule=lambda: broken(
            "renewal", ("return lease.expires_at <= now", "return lease.expires_at - 1 <= now")
        ),
    ),
    Mutant(
        name="a lease does not end",
        scenario=Scenario(name="crash", time=False, rare={"crash": 1}),
        finds=Kind.LOST,
        rule=lambda: broken("renewal", ("return lease.expires_at <= now", "return False")),
    ),
    Mutant(
        name="no holder is asked for less",
        scenario=Scenario(name="cap", time=False, caps=(2, 1), rare={"cap": 1}),
        finds=Kind.STUCK,
        rule=lambda: broken("renewal", ("gate=min(target, slots - owed)", "gate=slots - owed")),
    ),
    Mutant(
        name="the gate stays open when less is asked for",
        scenario=QUIET,
        finds=Kind.STARVED,
        rule=lambda: broken("holder", ("gate=reply.gate,", "gate=reply.slots,")),
    ),
    Mutant(
        name="a reply that hangs is waited for without end",
        scenario=QUIET,
        finds=Kind.STARVED,
        rule=lambda: broken(
            "holder", ("Due(holding.sent_at + _patience_s(holding, terms)", 'Due(float("inf")')
        ),
    ),
    Mutant(
        name="who was fenced has no more to say",
        scenario=Scenario(name="with time", ttls=(2,), twice=False, lossy=False),
        finds=Kind.STARVED,
        rule=lambda: broken(
            "holder", ("return Due(holding.sent_at + terms.retry_s", 'return Due(float("inf")')
        ),
    ),
)
