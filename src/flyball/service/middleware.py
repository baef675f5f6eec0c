"""What holds for every request, before and after its route.

**Paths.** A name in a path may contain anything, so a path is taken apart as it was sent: ``%2F`` is a slash
inside a name, not between two. What is not UTF-8 or steers a terminal is refused here.

**Answers.** Each is timed from here to its first byte, counted by route and status, and gets the headers that
every answer should have. ``HEAD`` is ``GET`` without its body, which the server below leaves out.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from typing import Any, Protocol
from urllib.parse import unquote_to_bytes

from litestar.enums import ScopeType
from litestar.types import ASGIApp, HTTPScope, Message, Receive, Scope, Send

from flyball.observe import metrics
from flyball.observe.metrics import MetricRegistry
from flyball.service.auth import Caller
from flyball.service.fair_scheduling import TenantScheduler, end_turn, tenant_in
from flyball.service.problems import MEDIA_TYPE, ProblemError, answer
from flyball.service.schemas import ENCODED_SLASH

NO_ROUTE = "none"
_SERVED = "/v1/"
"""Requests for these take turns; probes and the page's files do not wait behind a flood."""
_MACHINES = ("/healthz", "/readyz", "/metrics")
_EXTRA = [(b"x-content-type-options", b"nosniff"), (b"referrer-policy", b"no-referrer")]
_NO_STORE = (b"cache-control", b"no-store")
_access_log = logging.getLogger("flyball.access")


class RequestSpan(Protocol):
    def end(self, route: str, status: int) -> None: ...


class Tracing(Protocol):
    """Where spans go (observe/otel.py)."""

    def begin(self, method: str, headers: Mapping[str, str]) -> RequestSpan: ...


class RequestMiddleware:
    """The application as the server below sees it."""

    def __init__(self, app: ASGIApp, registry: MetricRegistry, *, tracing: Tracing | None = None) -> None:
        self._app, self._registry, self._tracing = app, registry, tracing
        self._turns = TenantScheduler()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != ScopeType.HTTP:
            await self._app(scope, receive, send)
            return
        passed = _RequestScope(scope, send, self._registry, self._tracing)
        try:
            inner = passed.scope
            inner["path"] = readable_path(scope.get("raw_path") or scope["path"].encode())
        except ProblemError as error:
            inner["state"]["refusal"] = error.kind
            await _say(error, passed.send)
        else:
            if not inner["path"].startswith(_SERVED):
                await self._app(inner, receive, passed.send)
                return
            turn = await self._turns.take(tenant_in(*_shown(scope)))
            try:
                await self._app(inner, receive, passed.send)
            finally:
                turn.over()
        finally:
            passed.over()


def _shown(scope: HTTPScope) -> tuple[bytes, bytes]:
    """The path and the token, as they were sent."""
    given = b""
    for name, value in scope["headers"]:
        if name == b"authorization":
            given = value
    return scope.get("raw_path") or b"", given


def readable_path(raw: bytes) -> str:
    """
    >>> readable_path(b"/v1/pools/provider%2Faccount/reset").replace("\\x1f", "|")
    '/v1/pools/provider|account/reset'
    """
    try:
        parts = [unquote_to_bytes(part).decode() for part in raw.split(b"/")]
    except UnicodeDecodeError:
        raise ProblemError(400, "bad-request", "the path is not UTF-8") from None
    if any(ord(char) < 32 or ord(char) == 127 for part in parts for char in part):
        raise ProblemError(400, "bad-request", "the path contains control characters")
    return "/".join(part.replace("/", ENCODED_SLASH) for part in parts)


async def _say(error: ProblemError, send: Send) -> None:
    """An answer without a route."""
    said = answer(error)
    body: bytes = said.content
    length = str(len(body)).encode()
    headers = [(b"content-type", MEDIA_TYPE.encode()), (b"content-length", length)]
    await send({"type": "http.response.start", "status": said.status_code or 400, "headers": headers})
    await send({"type": "http.response.body", "body": body, "more_body": False})


class _RequestScope:
    """One request on its way through."""

    def __init__(
        self, scope: HTTPScope, send: Send, registry: MetricRegistry, tracing: Tracing | None
    ) -> None:
        self._began = time.perf_counter()
        self._send, self._registry = send, registry
        self._status = 0
        state: dict[str, Any] = {**scope.get("state", {})}
        method = scope["method"]
        # A copy: the server below looks at the method that was really sent.
        self.scope: HTTPScope = {**scope, "state": state}
        # A stream has no end, so it has no head alone either.
        if method == "HEAD" and "events" not in scope["path"]:
            self.scope["method"] = "GET"
        self._method = str(method)
        self._span = None
        if tracing is not None:
            headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
            self._span = tracing.begin(self._method, headers)

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self._record(message["status"])
            given = {name.lower() for name, _ in message["headers"]}
            missing = [header for header in (*_EXTRA, _NO_STORE) if header[0] not in given]
            message["headers"] = [*message["headers"], *missing]
        await self._send(message)

    def _record(self, status: int) -> None:
        self._status = status
        state = self.scope["state"]
        end_turn()
        spent_s = time.perf_counter() - self._began - state.get("waited_s", 0.0)
        tenant = state.get("tenant", metrics.UNKNOWN_TENANT)
        self._registry.observe(metrics.HTTP_DECISION, spent_s, endpoint=self._endpoint, tenant=tenant)
        self._registry.add(metrics.HTTP_ANSWERS, endpoint=self._endpoint, status=str(status))
        if "refusal" in state:
            self._registry.add(metrics.HTTP_REFUSALS, reason=state["refusal"])

    @property
    def _route(self) -> str:
        return self.scope.get("path_template") or NO_ROUTE

    @property
    def _endpoint(self) -> str:
        """The route as a label: the page's files are one."""
        route = self._route
        if route.startswith("/v1/") or route in _MACHINES:
            return f"{self._method} {route}"
        return route if route == NO_ROUTE else "page"

    def over(self) -> None:
        if self._span is not None:
            self._span.end(self._route, self._status)
        if _access_log.isEnabledFor(logging.INFO):
            caller: Caller | None = self.scope["state"].get("caller")
            path = (self.scope.get("raw_path") or b"")[:200].decode("ascii", "backslashreplace")
            spent_ms = (time.perf_counter() - self._began) * 1000
            who = caller.name if caller is not None and caller.name else "-"
            _access_log.info("%s %s %s %.1f ms %s", self._method, path, self._status, spent_ms, who)
