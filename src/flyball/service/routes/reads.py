"""The routes that only look. Each is a look that began after the request did; many at once share one."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Annotated, Any

from litestar import Request, Response, get
from litestar.openapi.datastructures import ResponseSpec
from litestar.params import FromPath, HeaderParameter, QueryParameter
from litestar.response.base import ASGIResponse
from litestar.response.streaming import ASGIStreamingResponse
from litestar.types import Receive, Send

from flyball import __version__
from flyball.core.suggestions import did_you_mean, nearest
from flyball.governor.status import Status
from flyball.service.auth import ANYBODY, Caller, scope_without_token
from flyball.service.problems import ProblemError
from flyball.service.schemas import FactList, PoolBrief, PoolList, PoolRecord, Whoami, brief, name_in_path
from flyball.service.state import Serving
from flyball.service.store_reader import FACTS_SEEN, StoreSnapshot
from flyball.service.timeline import KEPT_S, HistoryView
from flyball.service.tokens import Scope

EVENT_STREAM = "text/event-stream"


@get(
    "/v1/status",
    operation_id="status",
    tags=["read"],
    responses={200: ResponseSpec(Status, description="As `flyball status --json` prints it.")},
)
async def get_status(service: Serving) -> Response[bytes]:
    """Everything: pools, leases, who waits and why, and the limits over all pools."""
    look = await service.watch.fresh()
    return Response(look.body, media_type="application/json")


@get("/v1/pools", operation_id="pools", tags=["read"])
async def get_pools(service: Serving) -> PoolList:
    """Every pool in a few words, with its settings."""
    look = await service.watch.fresh()
    return PoolList([brief(PoolBrief, pool, look.snapshots[pool.name]) for pool in look.status.pools])


@get("/v1/pools/{pool:str}", operation_id="pool", tags=["read"])
async def get_pool(service: Serving, pool: FromPath[str]) -> PoolRecord:
    """One pool: its settings, and how it stands."""
    name = name_in_path("pool", pool)
    return known_pool(await service.watch.fresh(), name)


def known_pool(look: StoreSnapshot, name: str, notes: list[str] | None = None) -> PoolRecord:
    found = look.pool(name)
    if found is None:
        raise unknown_pool(look, name)
    return brief(PoolRecord, found, look.snapshots[name], status=found, notes=notes or [])


def unknown_pool(look: StoreSnapshot, name: str) -> ProblemError:
    known = [pool.name for pool in look.status.pools]
    close = nearest(name, known, at_most=1)
    hint = did_you_mean(name, known) or "GET /v1/pools lists those in use"
    return ProblemError(
        404,
        "unknown-pool",
        f"there is no pool {name!r}; {hint}",
        pool=name,
        nearest=close[0] if close else None,
    )


@get("/v1/facts", operation_id="facts", tags=["read"])
async def get_facts(
    service: Serving,
    limit: Annotated[int, QueryParameter(ge=1, le=FACTS_SEEN, description="How many, at most.")] = 100,
) -> FactList:
    """What happened lately: cuts, probes, settles, who was granted, refused or taken back."""
    look = await service.watch.fresh()
    return FactList(service.watch.timeline.newest(look, limit=limit))


@get("/v1/history", operation_id="history", tags=["read"])
async def get_history(
    service: Serving,
    pool: Annotated[str | None, QueryParameter(description="Only this pool.")] = None,
    seconds: Annotated[int, QueryParameter(ge=1, le=KEPT_S, description="How far back.")] = KEPT_S,
) -> HistoryView:
    """One sample a second of the last fifteen minutes, for as long as this server runs."""
    return service.watch.history.view(seconds=seconds, pool=pool)


@get(
    "/v1/events",
    operation_id="events",
    tags=["read"],
    media_type=EVENT_STREAM,
    responses={200: ResponseSpec(str, media_type=EVENT_STREAM, description="Server-sent events.")},
)
async def get_events(
    service: Serving,
    last_event_id: Annotated[
        str,
        HeaderParameter(
            name="Last-Event-ID",
            max_length=64,
            description="The last fact that was seen; what followed it is told.",
        ),
    ] = "",
) -> Response[bytes]:
    """Live: `state` when something changed (and at once), `fact`, `outage`, `end`."""
    return EventStream(await service.watch.watch(last_event_id))


@get("/v1/whoami", operation_id="whoami", tags=["read"])
async def get_whoami(service: Serving, request: Request[Any, Any, Any]) -> Whoami:
    """Whose token this is, what it may do, and whether one is needed at all."""
    caller: Caller = request.scope["state"].get("caller", ANYBODY)
    scope = caller.scope if caller.name else await scope_without_token(request, Scope.ADMIN)
    return Whoami(caller.name, scope.value, service.access.token_needed, __version__)


class EventStream(Response[bytes]):
    """An answer without an end. When the client goes, its place is given back at once."""

    def __init__(self, chunks: AsyncGenerator[bytes, None]) -> None:
        super().__init__(b"", media_type=EVENT_STREAM)
        self._chunks = chunks

    def to_asgi_response(self, *_: Any, **__: Any) -> ASGIResponse:
        # Proxies would otherwise keep events back until there are many.
        headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
        return _Chunks(iterator=self._chunks, headers=headers, media_type=EVENT_STREAM, status_code=200)


class _Chunks(ASGIStreamingResponse):
    iterator: AsyncGenerator[str | bytes, None]

    async def send_body(self, send: Send, receive: Receive) -> None:
        async with aclosing(self.iterator):
            await super().send_body(send, receive)


ROUTES = [get_status, get_pools, get_pool, get_facts, get_history, get_events, get_whoami]
