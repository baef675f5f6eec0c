"""The routes of a place in line. A ticket's id and token are those of the lease it becomes.

A request with the ticket's token shows that its client still waits: its place is kept for another time to
live. One without only reads. A request that was held open and is dropped keeps its place for ``BLIP_S``
only: long enough for a browser that comes back, and too short to delay the asks behind it.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import suppress
from functools import partial

import msgspec
from litestar import Response, delete, get
from litestar.openapi.datastructures import ResponseSpec
from litestar.params import FromPath

from flyball.core.pool.model import Claim
from flyball.errors import StoreError
from flyball.governor.internals import internals
from flyball.governor.remote.leases import DEFAULT_TTL_S, WaitResult
from flyball.service.admission import Admission, Admitting, AnyRequest, known_id, unknown_error, until_left
from flyball.service.fair_scheduling import end_turn
from flyball.service.lease_requests import parse_wait, retry_after_s
from flyball.service.lease_schemas import ClaimView, claim_view
from flyball.service.monitor import StreamEnd
from flyball.service.problems import ProblemError
from flyball.service.routes.leases import LEASE, LeaseToken, Prefer
from flyball.service.routes.reads import EVENT_STREAM, EventStream
from flyball.service.state import ENDING
from flyball.service.streams import HEARTBEAT_S, RETRY_MS, event

BLIP_S = 5.0
LOOK_S = 2.0
"""How often a watcher is told its place, if that has changed."""


@get("/v1/tickets/{ticket:int}", operation_id="ticket", tags=["lease"])
async def get_ticket(
    admission: Admitting,
    request: AnyRequest,
    ticket: FromPath[int],
    lease_token: LeaseToken = "",
    prefer: Prefer = None,  # noqa: ARG001 (read from the headers; here for the document)
) -> Response[ClaimView]:
    """How a ticket stands: `held` once it is a lease. With `Prefer: wait=N` the answer waits for that."""
    claim = await _find_claim(admission, known_id(ticket), lease_token)
    wait_s = parse_wait(request.headers)
    if wait_s and not claim.held:
        found = await _wait(admission, request, claim, wait_s, theirs=bool(lease_token))
        if found is None:
            raise unknown_error(ticket)
        claim = found
    verdict = None
    if not claim.held:
        look = partial(admission.remote.look, ticket, asked_at=claim.asked_at)
        verdict = await admission.remote.call(look)
    headers = {}
    if verdict is not None and not verdict.granted:
        headers["Retry-After"] = str(round(retry_after_s(verdict, chance=0.5)))
    view = claim_view(claim, internals(admission.service.governor).store.now(), verdict)
    return Response(view, headers=headers)


async def _find_claim(admission: Admission, ticket: int, token: str) -> Claim:
    """The claim; a request with its token also keeps it for longer."""
    remote = admission.remote
    asked_at = await admission.check_token(ticket, token) if token else None
    claim = await remote.claim_async(ticket, asked_at=asked_at)
    if claim is None:
        raise unknown_error(ticket)
    if token and not claim.held and claim.expires_at is not None:
        await remote.extend_async(ticket, ttl_s=DEFAULT_TTL_S, asked_at=asked_at)
    return claim


async def _wait(
    admission: Admission, request: AnyRequest, claim: Claim, wait_s: float, *, theirs: bool
) -> Claim | None:
    admission.check_open()
    end_turn()
    ttl_s = DEFAULT_TTL_S if theirs else None
    leaving = asyncio.create_task(until_left(request))
    try:
        waited = await admission.remote.wait_async(
            claim.id,
            pool=claim.pool,
            timeout_s=wait_s,
            ttl_s=ttl_s,
            mailbox=claim.mailbox,
            left=leaving,
            asked_at=claim.asked_at,
        )
    finally:
        leaving.cancel()
    if waited.left:
        await _keep_briefly(admission, claim, theirs=theirs)
        raise ProblemError(408, "left", "the client did not wait for its answer")
    return await _claim_after(admission, waited, claim)


async def _claim_after(admission: Admission, waited: WaitResult, asked: Claim) -> Claim | None:
    """What it waited for; looked up where it was only told."""
    if not waited.held:
        return waited.claim
    return await admission.remote.claim_async(asked.id, asked_at=asked.asked_at)


async def _keep_briefly(admission: Admission, claim: Claim, *, theirs: bool) -> None:
    if theirs:
        with suppress(StoreError):
            await admission.remote.extend_async(claim.id, ttl_s=BLIP_S, asked_at=claim.asked_at)


@delete("/v1/tickets/{ticket:int}", operation_id="withdraw_ticket", tags=["lease"], opt=LEASE)
async def withdraw_ticket(admission: Admitting, ticket: FromPath[int], lease_token: LeaseToken = "") -> None:
    """Leave the line, or give back the lease that the ticket just became. Again, it changes nothing."""
    asked_at = await admission.check_token(ticket, lease_token)
    await admission.remote.withdraw_async(ticket, asked_at=asked_at)


@get(
    "/v1/tickets/{ticket:int}/events",
    operation_id="ticket_events",
    tags=["lease"],
    media_type=EVENT_STREAM,
    responses={200: ResponseSpec(str, media_type=EVENT_STREAM, description="Server-sent events.")},
)
async def get_ticket_events(
    admission: Admitting, ticket: FromPath[int], lease_token: LeaseToken = ""
) -> Response[bytes]:
    """Live: `ticket` when its place changed (and at once), `lease` when it became one, `gone`, `end`."""
    admission.check_open()
    claim = await _find_claim(admission, known_id(ticket), lease_token)
    return EventStream(_events(admission, claim, theirs=bool(lease_token)))


async def _events(admission: Admission, claim: Claim, *, theirs: bool) -> AsyncGenerator[bytes, None]:
    yield b"retry: %d\n\n" % RETRY_MS
    found: Claim | None = claim
    told, silent_s, done = b"", 0.0, False
    look_on = partial(
        admission.remote.wait_async,
        claim.id,
        pool=claim.pool,
        ttl_s=None,
        mailbox=claim.mailbox,
        asked_at=claim.asked_at,
    )
    try:
        while not done:
            name, said, done = await _next_event(admission, claim.id, found)
            if said != told:
                told, silent_s = said, 0.0
                yield event(name, said)
            elif silent_s >= HEARTBEAT_S:
                silent_s = 0.0
                yield b": nothing new\n\n"
                if theirs:
                    await admission.remote.extend_async(
                        claim.id, ttl_s=DEFAULT_TTL_S, asked_at=claim.asked_at
                    )
            if not done:
                silent_s += LOOK_S
                found = await _claim_after(admission, await look_on(timeout_s=LOOK_S), claim)
    finally:
        if not done:
            await _keep_briefly(admission, claim, theirs=theirs)


async def _next_event(admission: Admission, ticket: int, claim: Claim | None) -> tuple[str, bytes, bool]:
    """What there is to tell, and whether it is the last."""
    if claim is None:
        return "gone", msgspec.json.encode(unknown_error(ticket).problem), True
    now = internals(admission.service.governor).store.now()
    if claim.held:
        return "lease", msgspec.json.encode(claim_view(claim, now)), True
    if admission.service.draining:
        return "end", msgspec.json.encode(StreamEnd(ENDING)), True
    verdict = await admission.remote.call(partial(admission.remote.look, ticket, asked_at=claim.asked_at))
    view = claim_view(claim, now, verdict)
    # Ages and estimates move by themselves: only another place is news.
    still = msgspec.structs.replace(view, since_s=0.0, expires_in_s=None, estimate_s=None, words=None)
    return "ticket", msgspec.json.encode(still), False


ROUTES = [get_ticket, withdraw_ticket, get_ticket_events]
