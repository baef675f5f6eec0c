"""What goes over the wire about leases, tickets and runs.

An answer that a key repeats says only what stays true: the claim, what was asked for, its token. What moves
(places in line, free slots) is in headers, or is looked up.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any

import msgspec
from litestar.openapi.spec import OpenAPIMediaType, Operation, Reference, RequestBody
from msgspec import Meta

from flyball.core.pool.model import Claim, Outcome
from flyball.core.pool.settings import NAME_LIMIT, PRIORITY_LIMIT
from flyball.core.pool.verdict import Verdict
from flyball.governor.remote.leases import DEFAULT_TTL_S

LEAST_TTL_S, MOST_TTL_S = 0.1, 86400.0
Name = Annotated[str, Meta(min_length=1, max_length=NAME_LIMIT)]
Ttl = Annotated[float, Meta(ge=LEAST_TTL_S, le=MOST_TTL_S)]
Amount = Annotated[float, Meta(ge=0, lt=1e15)]


class LeaseAsk(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A request for slots. Everything may be left out."""

    project: Name | None = None
    """Who competes for fairness; the token's name if not given."""
    name: Name = "lease"
    slots: Annotated[int, Meta(ge=1, le=1_000_000_000)] = 1
    priority: Annotated[int, Meta(ge=-PRIORITY_LIMIT, le=PRIORITY_LIMIT)] = 0
    ttl_s: Ttl = DEFAULT_TTL_S
    """It ends so long after the last renewal."""
    wait: bool = False
    """Stand in line where there is no slot: 202 and a ticket instead of 429."""
    model: Annotated[str, Meta(max_length=NAME_LIMIT)] = ""
    cost: dict[Name, Amount] = {}
    """What it expects to use of the pool's windows, by name."""


class LeaseView(msgspec.Struct, frozen=True, kw_only=True):
    """A lease, as its holder is told of it."""

    id: int
    state: str
    """`held`; `waiting` for a ticket."""
    pool: str
    project: str
    name: str
    slots: int
    priority: int
    ttl_s: float
    token: str
    """Send it as `Lease-Token` to renew, release or withdraw."""


class ClaimView(msgspec.Struct, frozen=True, kw_only=True):
    """A lease or a ticket, as any caller may see it."""

    id: int
    state: str
    """`waiting` or `held`."""
    pool: str
    project: str
    name: str
    slots: int
    priority: int
    since_s: float
    """How long it has been in this state."""
    expires_in_s: float | None
    position: int | None = None
    """Of a ticket: 1 is next in line."""
    reason: str | None = None
    estimate_s: float | None = None
    words: str | None = None
    """Why it waits, for people."""


class Renewing(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Go on for so long from now."""

    ttl_s: Ttl = DEFAULT_TTL_S


class Renewed(msgspec.Struct, frozen=True, kw_only=True):
    """It goes on."""

    id: int
    ttl_s: float


class Releasing(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """How the work under a lease ended."""

    outcome: Outcome = Outcome.FINISHED
    words: Annotated[str, Meta(max_length=1000)] = ""


class Said(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What a provider said: an HTTP answer (`status`, `headers`, `body`), or a signal read from it."""

    status: Annotated[int, Meta(ge=100, le=599)] | None = None
    headers: dict[str, str] = {}
    body: Annotated[str, Meta(max_length=16_384)] = ""
    kind: str | None = None
    """`throttled`, `overloaded`, `timeout`, ...: instead of a status."""
    retry_after_s: Annotated[float, Meta(ge=0, le=1e7)] | None = None
    detail: Annotated[str, Meta(max_length=1000)] = ""
    project: Name | None = None
    """For a signal to a pool: who met it."""
    name: Name | None = None
    first: bool = False
    """It answers the one call that the lease was taken for."""


class OrgSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The limits of an org. What is left out stays as it is."""

    max_concurrent_runs: Annotated[int, Meta(ge=1, le=1_000_000)] | None = None
    weight: Annotated[float, Meta(gt=0, le=1e6)] | None = None
    ttl_s: Annotated[float, Meta(ge=1, le=MOST_TTL_S)] | None = None
    """A run ends so long after its last heartbeat; 60 by default."""
    heartbeat_s: Annotated[float, Meta(ge=0.1, le=MOST_TTL_S)] | None = None
    """How often a run should be renewed; 20 by default."""


class OrgView(msgspec.Struct, frozen=True, kw_only=True):
    """An org and how it stands."""

    org: str
    max_concurrent_runs: int
    weight: float
    ttl_s: float
    heartbeat_s: float
    active: int
    queued: int


class RunAsk(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A run to start. Everything may be left out."""

    name: Name = "run"
    priority: Annotated[int, Meta(ge=-PRIORITY_LIMIT, le=PRIORITY_LIMIT)] = 0


class RunView(msgspec.Struct, frozen=True, kw_only=True):
    """A run that was started."""

    run_id: str
    org: str
    name: str
    ttl_s: float
    heartbeat_s: float


BODIES = (LeaseAsk, Renewing, Releasing, Said, OrgSettings, RunAsk)
"""What clients send: the document has to be told of them."""


def claim_view(claim: Claim, now: float, verdict: Verdict | None = None) -> ClaimView:
    since = claim.granted_at if claim.granted_at is not None else claim.asked_at
    waits: dict[str, Any] = {}
    if verdict is not None and not verdict.granted:
        waits = {
            "position": verdict.position,
            "reason": verdict.reason.value,
            "estimate_s": verdict.estimate_s,
            "words": verdict.words(),
        }
    return ClaimView(
        id=claim.id,
        state="held" if claim.held else "waiting",
        pool=claim.pool,
        project=claim.project,
        name=claim.name,
        slots=claim.slots,
        priority=claim.priority,
        since_s=max(0.0, now - since),
        expires_in_s=max(0.0, claim.expires_at - now) if claim.expires_at is not None else None,
        **waits,
    )


def takes(body: type[msgspec.Struct]) -> type[Operation]:
    """Bodies are read strictly by us, so the framework has to be told what they look like."""

    @dataclass
    class Takes(Operation):
        def __post_init__(self) -> None:
            schema = Reference(f"#/components/schemas/{body.__name__}")
            self.request_body = RequestBody(
                content={"application/json": OpenAPIMediaType(schema=schema)}, required=False
            )

    return Takes
