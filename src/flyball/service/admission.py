"""The way of an ask over HTTP, the same for leases and for an org's runs.

    place    one step of the store: replay, grant, stand in line, or refuse
    hold     with ``Prefer: wait``, until a slot is handed over, the time is up, the client leaves, or we end
    leave    a client that dropped its connection gives its place back, and the slot that was just handed
             to it; under a key such a slot is kept for its time, since a client that asks again is told of it

Under a key, one request at a time waits at a server: another is answered 409, since what the first will be
told is not known yet. At two servers both may wait. The ask is then woken at the one that asked last, and is
that one's to withdraw; the other looks for itself.

Here too is the policy by which clients try again: one request changes it for all clients of a store.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from typing import Any, NoReturn

import msgspec
from litestar import Request, get, put
from litestar.di import NamedDependency
from litestar.params import RawBody, SkipValidation

from flyball.client.retry_policy import Policy, parse_policy
from flyball.core.pool.verdict import Verdict
from flyball.errors import StoreError
from flyball.governor.internals import internals
from flyball.governor.remote.leases import RemoteAsk, RemoteLeases
from flyball.observe import metrics
from flyball.service.auth import ANYBODY, Caller
from flyball.service.fair_scheduling import end_turn
from flyball.service.lease_requests import IN_FLIGHT_RETRY_S, read_body
from flyball.service.lease_schemas import takes
from flyball.service.org_settings import OrgRegistry
from flyball.service.problems import ProblemError
from flyball.service.state import ENDING, Service
from flyball.service.tokens import Scope

_LARGEST_ID = 2**63
_ENDING_RETRY_S = 2
_TURNS_TO_NOTICE = 3
"""A closed connection is read in one turn of the loop, reported in the next, and seen in a third."""
AnyRequest = Request[Any, Any, Any]


@dataclass(frozen=True, slots=True)
class Admitted:
    """How an ask ended: a lease, or a place in line, or a verdict that refuses."""

    verdict: Verdict
    held: bool

    @property
    def claim_id(self) -> int:
        return self.verdict.claim_id

    @property
    def replayed(self) -> bool:
        return self.verdict.replayed


class Admission:
    """Asks of clients elsewhere. ``start`` and ``stop`` belong to the event loop that serves."""

    def __init__(self, service: Service) -> None:
        self.service = service
        self.remote = RemoteLeases(service.governor)
        self.orgs = OrgRegistry(service)
        self._waiting: set[str] = set()
        """The keys under which a request waits here."""
        self._sweeping: asyncio.Task[None] | None = None

    async def start(self) -> None:
        self._sweeping = asyncio.create_task(self.remote.run(draining=lambda: self.service.draining))

    async def stop(self) -> None:
        if self._sweeping is not None:
            self._sweeping.cancel()
            await asyncio.wait({self._sweeping})
        await asyncio.to_thread(self.remote.close)

    # -- asking -------------------------------------------------------------------------------------

    async def ask(
        self, request: AnyRequest, order: RemoteAsk, *, park: bool, wait_s: float = 0.0, tickets: bool = True
    ) -> Admitted:
        """Place an order and, if it has to stand in line, hold the request open for ``wait_s``.

        ``tickets``: may it be answered with a place in line? Where not, what is told again under a key is
        told as it stands now.
        """
        self.check_open()
        request.scope["state"]["tenant"] = order.project
        deadline, gone_id = time.monotonic() + wait_s, 0
        while True:
            self._check_not_waiting(order.key)
            verdict = await self.remote.place_async(order, park=park)
            waits = wait_s > 0 or (verdict.replayed and not tickets)
            if verdict.granted or not verdict.claim_id or not waits:
                return await self._finish(request, order, Admitted(verdict, verdict.granted))
            if verdict.replayed and verdict.claim_id == gone_id:
                # A key is remembered only for what was served: it was, and has ended since.
                return Admitted(verdict, held=True)
            held = await self._wait(request, order, verdict, max(0.0, deadline - time.monotonic()))
            if held is not None:
                return await self._finish(request, order, Admitted(verdict, held))
            # The ask was removed: stand in line again, or hear why that is useless.
            gone_id = verdict.claim_id

    async def _finish(self, request: AnyRequest, order: RemoteAsk, admitted: Admitted) -> Admitted:
        """Take an ask back whose client has gone: without a key, it can never learn of it."""
        if admitted.claim_id and not order.key and await has_left(request):
            await self._leave(order, admitted.verdict)
        self._count(request, order, admitted)
        return admitted

    def _count(self, request: AnyRequest, order: RemoteAsk, admitted: Admitted) -> None:
        """A slot that was granted, and how long it was waited for; what is only told again counts once."""
        if admitted.held and not admitted.replayed:
            registry, scope = self.service.registry, request.scope
            registry.add(metrics.HTTP_GRANTS, order.slots, pool=order.pool, tenant=order.project)
            endpoint = f"{request.method} {scope.get('path_template') or ''}"
            waited_s = scope["state"].get("waited_s", 0.0)
            registry.observe(metrics.HTTP_WAIT, waited_s, endpoint=endpoint, tenant=order.project)

    async def _wait(
        self, request: AnyRequest, order: RemoteAsk, verdict: Verdict, wait_s: float
    ) -> bool | None:
        """True: it became a lease. False: it still waits. None: it is gone."""
        began = time.monotonic()
        end_turn()
        leaving = asyncio.create_task(until_left(request))
        try:
            with self._waiting_under(order.key if wait_s else ""):
                waited = await self.remote.wait_async(
                    verdict.claim_id,
                    pool=order.pool,
                    timeout_s=wait_s,
                    ttl_s=order.ttl_s,
                    look_first=verdict.replayed,
                    left=leaving,
                    asked_at=verdict.asked_at,
                )
        except asyncio.CancelledError:
            await self._leave(order, verdict)
        finally:
            leaving.cancel()
            request.scope["state"]["waited_s"] = time.monotonic() - began
        if waited.left:
            await self._leave(order, verdict)
        if waited.gone:
            return None
        if not waited.held and wait_s > order.ttl_s / 4:
            await self.remote.extend_async(verdict.claim_id, ttl_s=order.ttl_s, asked_at=verdict.asked_at)
        return waited.held

    async def _leave(self, order: RemoteAsk, verdict: Verdict) -> NoReturn:
        """The client is gone."""
        with suppress(StoreError):  # if it cannot be written now, its time ends it
            await self.withdraw(order, verdict)
        raise ProblemError(408, "left", "the client did not wait for its answer")

    async def withdraw(self, order: RemoteAsk, verdict: Verdict) -> bool:
        """Give up an ask, or the lease it just became; whether such a lease was kept, as it is under a key.

        An ask for which another server waits by now is left to that one.
        """
        claim = await self.remote.claim_async(verdict.claim_id) if order.key else None
        if claim is not None and claim.held:
            return True
        if claim is None or self.remote.woken_here(claim):
            await self.remote.withdraw_async(verdict.claim_id, asked_at=verdict.asked_at)
        return False

    def check_open(self) -> None:
        if self.service.draining:
            raise ProblemError(503, "draining", ENDING, headers={"Retry-After": str(_ENDING_RETRY_S)})

    def _check_not_waiting(self, key: str) -> None:
        if key in self._waiting:
            words = "a request with this Idempotency-Key is still being answered; ask again in a moment"
            raise ProblemError(409, "in-flight", words, headers={"Retry-After": str(IN_FLIGHT_RETRY_S)})

    @contextmanager
    def _waiting_under(self, key: str) -> Iterator[None]:
        if not key:
            yield
            return
        self._check_not_waiting(key)
        self._waiting.add(key)
        try:
            yield
        finally:
            self._waiting.discard(key)

    # -- whose it is --------------------------------------------------------------------------------

    async def check_token(self, claim_id: int, token: str) -> float:
        """Refuse a client that does not have the claim's token; when the claim was asked for."""
        await self.remote.ready_async()
        known = 0 < claim_id < _LARGEST_ID
        asked_at = self.remote.vouched_at(claim_id, token) if known else None
        if asked_at is None:
            words = f"Lease-Token is not the token of {claim_id}; it was in the answer that gave the lease"
            raise ProblemError(403, "lease-token", words, lease=claim_id if known else None)
        return asked_at


def tenant_name(request: AnyRequest) -> str:
    """Whose token it is; empty where none was brought."""
    caller: Caller = request.scope["state"].get("caller", ANYBODY)
    return caller.name


def known_id(claim_id: int) -> int:
    """Beyond this no store counts."""
    if not 0 < claim_id < _LARGEST_ID:
        raise unknown_error(claim_id)
    return claim_id


def unknown_error(claim_id: int) -> ProblemError:
    words = f"there is no lease or ticket {claim_id}: it ended, or never was"
    return ProblemError(404, "unknown-lease", words, lease=claim_id if 0 < claim_id < _LARGEST_ID else None)


def gone_error(claim_id: int) -> ProblemError:
    words = f"{claim_id} has ended: it was released, or not renewed in time"
    return ProblemError(410, "gone", words, lease=claim_id)


async def until_left(request: AnyRequest) -> None:
    """Returns when the client has gone."""
    while (await request.receive())["type"] != "http.disconnect":
        pass


async def has_left(request: AnyRequest) -> bool:
    """Is the client known to have gone?"""
    leaving = asyncio.create_task(until_left(request))
    for _ in range(_TURNS_TO_NOTICE):
        await asyncio.sleep(0)
    left = leaving.done()
    leaving.cancel()
    return left


Admitting = NamedDependency[SkipValidation[Admission]]


_NOTE = "client-policy"


@get("/v1/policy", operation_id="policy", tags=["lease"])
async def get_policy(admission: Admitting) -> Policy:
    """How clients should try again after a refusal."""
    store = internals(admission.service.governor).store
    said = (await admission.remote.call(partial(store.notes, _NOTE))).get(_NOTE)
    return parse_policy(said.encode(), "the policy in the store") if said is not None else Policy()


@put(
    "/v1/policy",
    operation_id="set_policy",
    tags=["admin"],
    opt={"scope": Scope.ADMIN},
    operation_class=takes(Policy),
)
async def put_policy(admission: Admitting, body: RawBody) -> Policy:
    """Replace it; what is left out is as it is out of the box. Clients ask once a minute."""
    policy = read_body(body, Policy)
    text = msgspec.json.encode(policy).decode()
    await admission.remote.call(partial(internals(admission.service.governor).store.set_note, _NOTE, text))
    return policy


ROUTES = [get_policy, put_policy]
