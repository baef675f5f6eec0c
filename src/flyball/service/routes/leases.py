"""The routes of a lease: ask, look, renew, release, tell what the provider said."""

from __future__ import annotations

import time
from functools import partial
from typing import Annotated

from litestar import Response, get, post
from litestar.openapi.datastructures import ResponseSpec
from litestar.params import FromPath, HeaderParameter, RawBody

from flyball.core.pool.verdict import one_line
from flyball.core.provider.http_response import from_http
from flyball.core.signals import Signal, SignalKind
from flyball.core.suggestions import did_you_mean
from flyball.governor.internals import internals
from flyball.governor.remote.leases import RemoteAsk
from flyball.service.admission import (
    Admission,
    Admitted,
    Admitting,
    AnyRequest,
    gone_error,
    known_id,
    tenant_name,
    unknown_error,
)
from flyball.service.lease_requests import (
    REPLAYED,
    LimitProblem,
    parse_key,
    parse_wait,
    read_body,
    refusal_error,
    retry_after_s,
    room_headers,
)
from flyball.service.lease_schemas import (
    ClaimView,
    LeaseAsk,
    LeaseView,
    Releasing,
    Renewed,
    Renewing,
    Said,
    claim_view,
    takes,
)
from flyball.service.problems import MEDIA_TYPE, Problem, ProblemError
from flyball.service.schemas import name_in_path
from flyball.service.tokens import Scope

LEASE = {"scope": Scope.LEASE}
LeaseToken = Annotated[
    str,
    HeaderParameter(name="Lease-Token", max_length=200, description="From the answer that gave the lease."),
]
IdempotencyKey = Annotated[
    str | None,
    HeaderParameter(
        name="Idempotency-Key",
        description="1 to 255 printable ASCII characters; asked again, nothing starts twice. An answer with "
        "`Idempotent-Replayed` may be about what has ended since: renew it before you rely on it.",
    ),
]
Prefer = Annotated[
    str | None,
    HeaderParameter(name="Prefer", description="`wait=N` holds the request for N seconds, at most 60."),
]
_NO_PROJECT = "http"


def _no(words: str, kind: type[Problem] = Problem) -> ResponseSpec:
    return ResponseSpec(kind, media_type=MEDIA_TYPE, description=words)


REFUSALS = {
    413: _no("The body is larger than 64 KiB."),
    409: _no("A request with this key is still being answered."),
    422: _no("The key was used for another request."),
    429: _no("No slot now; `Retry-After` says when to come back.", LimitProblem),
}
GONE = {410: _no("It has ended."), 413: _no("The body is larger than 64 KiB.")}


@post(
    "/v1/pools/{pool:str}/leases",
    operation_id="ask_for_lease",
    tags=["lease"],
    opt=LEASE,
    operation_class=takes(LeaseAsk),
    responses={
        202: ResponseSpec(
            LeaseView, description="It stands in line: a ticket, whose `id` becomes the lease's."
        ),
        **REFUSALS,
    },
)
async def post_lease(
    admission: Admitting,
    request: AnyRequest,
    pool: FromPath[str],
    body: RawBody,
    idempotency_key: IdempotencyKey = None,  # noqa: ARG001 (read from the headers; here for the document)
    prefer: Prefer = None,  # noqa: ARG001
) -> Response[LeaseView]:
    """Ask for slots of a pool."""
    name, asked = name_in_path("pool", pool), read_body(body, LeaseAsk)
    order = _order(request, name, asked, body)
    wait_s = parse_wait(request.headers)
    admitted = await admission.ask(request, order, park=asked.wait or wait_s > 0, wait_s=wait_s)
    if not admitted.claim_id:
        raise refusal_error(admitted.verdict)
    return await _answer(admission, order, admitted, wait_s)


def _order(request: AnyRequest, pool: str, asked: LeaseAsk, body: bytes) -> RemoteAsk:
    tenant = tenant_name(request)
    key = parse_key(request.headers, body, tenant=tenant, route=f"POST /v1/pools/{pool}/leases")
    return RemoteAsk(
        pool=pool,
        project=asked.project or tenant or _NO_PROJECT,
        name=asked.name,
        slots=asked.slots,
        priority=asked.priority,
        model=asked.model,
        cost=asked.cost,
        ttl_s=asked.ttl_s,
        key=key.key,
        fingerprint=key.fingerprint,
    )


async def _answer(
    admission: Admission, order: RemoteAsk, admitted: Admitted, wait_s: float
) -> Response[LeaseView]:
    await admission.remote.ready_async()
    claim_id, held = admitted.claim_id, admitted.held
    view = LeaseView(
        id=claim_id,
        state="held" if held else "waiting",
        pool=order.pool,
        project=order.project,
        name=order.name,
        slots=order.slots,
        priority=order.priority,
        ttl_s=order.ttl_s,
        token=admission.remote.token(claim_id, admitted.verdict.asked_at),
    )
    headers = {
        "Location": f"/v1/{'leases' if held else 'tickets'}/{claim_id}",
        **room_headers(admitted.verdict),
    }
    if not held:
        headers["Retry-After"] = str(round(retry_after_s(admitted.verdict, chance=0.5)))
    if wait_s:
        headers["Preference-Applied"] = f"wait={wait_s:.0f}"
    if admitted.replayed:
        headers |= REPLAYED
    return Response(view, status_code=201 if held else 202, headers=headers)


@get("/v1/leases/{lease:int}", operation_id="lease", tags=["lease"])
async def get_lease(admission: Admitting, lease: FromPath[int]) -> ClaimView:
    """One lease, or the ask that may become it."""
    remote = admission.remote
    claim = await remote.claim_async(known_id(lease))
    if claim is None:
        raise unknown_error(lease)
    return claim_view(claim, internals(admission.service.governor).store.now())


@post(
    "/v1/leases/{lease:int}/renew",
    operation_id="renew_lease",
    tags=["lease"],
    opt=LEASE,
    status_code=200,
    operation_class=takes(Renewing),
    responses=GONE,
)
async def renew_lease(
    admission: Admitting, lease: FromPath[int], body: RawBody, lease_token: LeaseToken = ""
) -> Renewed:
    """It goes on for `ttl_s` from now. Renewing an ask in line keeps its place."""
    renewing = read_body(body, Renewing)
    asked_at = await admission.check_token(lease, lease_token)
    if not await admission.remote.extend_async(lease, ttl_s=renewing.ttl_s, asked_at=asked_at):
        raise gone_error(lease)
    return Renewed(id=lease, ttl_s=renewing.ttl_s)


@post(
    "/v1/leases/{lease:int}/release",
    operation_id="end_lease",
    tags=["lease"],
    opt=LEASE,
    status_code=204,
    operation_class=takes(Releasing),
)
async def end_lease(
    admission: Admitting, lease: FromPath[int], body: RawBody, lease_token: LeaseToken = ""
) -> None:
    """Give the slots back and say how the work ended. Saying it again changes nothing."""
    releasing = read_body(body, Releasing)
    asked_at = await admission.check_token(lease, lease_token)
    await admission.remote.end_async(lease, releasing.outcome, words=releasing.words, asked_at=asked_at)


# -- signals ------------------------------------------------------------------------------------------


@post(
    "/v1/leases/{lease:int}/signals",
    operation_id="tell_lease",
    tags=["lease"],
    opt=LEASE,
    status_code=204,
    operation_class=takes(Said),
    responses=GONE,
)
async def post_lease_signal(
    admission: Admitting, lease: FromPath[int], body: RawBody, lease_token: LeaseToken = ""
) -> None:
    """What the provider said to the work under this lease. A throttle counts at once, for the whole pool."""
    said = read_body(body, Said)
    signal = to_signal(said)
    asked_at = await admission.check_token(lease, lease_token)
    claim = await admission.remote.claim_async(lease, asked_at=asked_at)
    if claim is None:
        raise gone_error(lease)
    tell = partial(
        admission.service.governor.report, claim.pool, signal, project=claim.project, name=claim.name
    )
    await admission.remote.call(partial(tell, claim_id=lease, first=said.first, asked_at=asked_at))


@post(
    "/v1/pools/{pool:str}/signals",
    operation_id="tell_pool",
    tags=["lease"],
    opt=LEASE,
    status_code=204,
    operation_class=takes(Said),
)
async def post_pool_signal(
    admission: Admitting, request: AnyRequest, pool: FromPath[str], body: RawBody
) -> None:
    """What the provider said to work that holds no lease here."""
    name, said = name_in_path("pool", pool), read_body(body, Said)
    project = said.project or tenant_name(request) or _NO_PROJECT
    tell = partial(admission.service.governor.report, name, to_signal(said), project=project)
    await admission.remote.call(partial(tell, name=said.name or ""))


def to_signal(said: Said) -> Signal:
    """
    >>> to_signal(Said(status=429, headers={"Retry-After": "7"})).retry_after_s
    7.0
    """
    if (said.status is None) == (said.kind is None):
        raise ProblemError(400, "malformed", 'say either {"status": 429} or {"kind": "throttled"}')
    if said.status is not None:
        headers = {name.lower(): value for name, value in said.headers.items()}
        return from_http(said.status, headers, said.body or None, wall_s=time.time())
    kinds = [kind.value for kind in SignalKind]
    if said.kind not in kinds:
        hint = did_you_mean(said.kind or "", kinds) or f"known: {', '.join(kinds)}"
        raise ProblemError(
            400, "malformed", f"unknown kind of signal {one_line(said.kind or '', 40)!r}; {hint}"
        )
    return Signal(SignalKind(said.kind), said.retry_after_s, detail=one_line(said.detail))


ROUTES = [post_lease, get_lease, renew_lease, end_lease, post_lease_signal, post_pool_signal]
