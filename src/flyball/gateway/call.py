"""One call through the gateway: stand in line, pass it on, read along, hand the answer over.

    take a slot of the pool -> send -> refused, and no byte was handed over -> free the slot, wait, again
                                    -> else tell the pool, hand over as it comes, settle, free the slot

A call waits here instead of being refused there. How long is the client's to say: the official SDKs send
their time-out in a header, and ``WAIT_S`` is less than what others wait. After that the client gets a 429
with Retry-After, or the provider's own refusal if there was one, and decides for itself.

Only a refusal is tried again. What may have been worked on (a broken connection, a server's error) is the
client's to judge: it has retries of its own, and each of them is a call.
"""

from __future__ import annotations

import asyncio
import logging
import math
import zlib
from collections.abc import Coroutine, Generator
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

from flyball.core.durations import number
from flyball.core.pool.settings import NAME_LIMIT
from flyball.core.provider.latency import LatencyTracker
from flyball.core.signals import Signal, SignalKind
from flyball.errors import RefusedError, StoreError
from flyball.gateway.address import Route
from flyball.gateway.call_slots import CallGate, CallSlots
from flyball.gateway.upload import Upload
from flyball.gateway.upstream import Answer, AnswerError, UpstreamConnection, UpstreamConnections
from flyball.governor.ask import AskRequest, asking_for
from flyball.governor.family_pools import FamilyPools
from flyball.governor.governor import Governor
from flyball.integrations.gate import Gate
from flyball.integrations.held_slot import AsyncHold, NoGate
from flyball.integrations.model_call import called_model, is_model_call
from flyball.integrations.outcome import JudgedResponse, broken_signal, judge_http, no_answer_signal
from flyball.integrations.retry import (
    AttemptResult,
    Episode,
    IoAdapter,
    RetryPolicy,
    pursue,
    run_async,
)

WAIT_S = 240.0
"""How long a call waits whose client does not say its time-out. Node's fetch gives up after 300 s."""
LONGEST_WAIT_S = 540.0
TIMEOUT_HEADERS = (b"x-stainless-read-timeout", b"x-stainless-timeout", b"x-server-timeout")
"""In seconds, from the official SDKs; one of them may say that it was not given."""
LANGUAGE_HEADER = b"x-stainless-lang"
REPEAT_HEADER = b"x-stainless-retry-count"
WAITING_LIMIT = 5000
"""More calls than this do not wait: each keeps its request in memory."""
_REFUSALS = frozenset({SignalKind.THROTTLED, SignalKind.OVERLOADED, SignalKind.WINDOW_USED_UP})
_DROPPED = frozenset({b"connection", b"expect", b"host", b"keep-alive", b"proxy-connection"})
"""Headers that are about the connection to us and not about the call."""


@dataclass(slots=True)
class Request:
    """A client's request, whole, or with a body that is passed on as it comes."""

    method: str
    headers: list[tuple[bytes, bytes]]
    body: bytes = b""
    version: str = "1.1"
    keep_alive: bool = True
    upload: Upload | None = None
    _values: dict[bytes, bytes] = field(init=False)
    """The first value of each header, by its name in small letters."""

    def __post_init__(self) -> None:
        self._values = {name.lower(): value for name, value in reversed(self.headers)}

    @property
    def is_chunked(self) -> bool:
        return b"transfer-encoding" in self._values

    def header(self, name: bytes) -> str:
        """The value of the header of this name in small letters; empty where there is none."""
        return self._values.get(name, b"").decode("latin-1")

    def dump(self, route: Route) -> bytes:
        """What is sent to the provider: the same headers in the same order, with the host's own name."""
        lines = [
            f"{self.method} {route.path} HTTP/{self.version}\r\nHost: {route.upstream.authority}\r\n".encode(
                "latin-1"
            )
        ]
        lines += [b"%b: %b\r\n" % pair for pair in self.headers if pair[0].lower() not in _DROPPED]
        body = self.body
        if self.is_chunked and self.upload is None:
            body = (b"%x\r\n%b\r\n0\r\n\r\n" % (len(body), body)) if body else b"0\r\n\r\n"
        return b"".join((*lines, b"\r\n", body))

    @property
    def wait_s(self) -> float:
        """How long the client lets this call wait, with room for the answer's first byte."""
        # A client in JavaScript says 600 s, and its runtime's fetch gives up before.
        longest_s = WAIT_S if self.header(LANGUAGE_HEADER) == "js" else LONGEST_WAIT_S
        said = [said for name in TIMEOUT_HEADERS if (said := number(self.header(name))) and said > 0]
        return min(0.9 * min(said), longest_s) if said else WAIT_S


class CallerConnection(Protocol):
    """What a call needs of the connection that it came from."""

    def write(self, data: bytes) -> None: ...

    def follow(self, source: UpstreamConnection | None) -> None:
        """Slow this source down while the client does not read."""


@dataclass(frozen=True, slots=True)
class GatewayRefusal:
    """An answer of the gateway's own."""

    status: int
    words: str
    retry_after_s: float | None = None


@dataclass(slots=True)
class _ConnectedAnswer:
    """An answer and the connection that it comes over."""

    connection: UpstreamConnection
    answer: Answer


@dataclass(slots=True)
class Calls:
    """Passes calls on. One for the whole gateway; used from its event loop only."""

    governor: Governor
    families: FamilyPools
    policy: RetryPolicy = field(default_factory=lambda: RetryPolicy(attempts=1000, max_wait_s=LONGEST_WAIT_S))
    connections: UpstreamConnections = field(default_factory=UpstreamConnections)
    waiting_limit: int = WAITING_LIMIT
    under_way: int = field(default=0, init=False)
    """Model calls whose clients do not have the whole answer yet; those that wait are among them."""
    refused: int = field(default=0, init=False)
    """Model calls whose clients were told to come back later, by the provider or from here."""
    slots: CallSlots = field(init=False)
    _latency: LatencyTracker = field(default_factory=LatencyTracker)

    def __post_init__(self) -> None:
        self.slots = CallSlots(self.governor, self.families.weights)

    def close(self) -> None:
        self.slots.close()
        self.connections.close()

    async def pass_on(
        self, request: Request, route: Route, client: CallerConnection
    ) -> GatewayRefusal | bool:
        """Carry the call out. A refusal is for the caller to write; else, whether the connection is kept."""
        if not is_model_call(request.method, route.path):
            return await self._pass_on(request, route, client, governed=False)
        self.under_way += 1
        try:
            done = await self._pass_on(request, route, client, governed=True)
        finally:
            self.under_way -= 1
        self.refused += isinstance(done, GatewayRefusal) and done.retry_after_s is not None
        return done

    async def _pass_on(
        self, request: Request, route: Route, client: CallerConnection, *, governed: bool
    ) -> GatewayRefusal | bool:
        deadline = asyncio.get_running_loop().time() + request.wait_s
        gate: Gate = CallGate(self.slots, self._ask_for(request, route), deadline) if governed else NoGate()
        if governed and self.slots.waiting >= self.waiting_limit:
            return GatewayRefusal(
                429, f"{self.slots.waiting} calls wait at the gateway, and more do not", 5.0
            )
        try:
            result, hold = await run_async(
                pursue(
                    gate,
                    lambda: self._attempt(request, route, deadline),
                    policy=self.policy,
                    hands=IoAdapter(AsyncHold.of, asyncio.sleep),
                    episode=Episode(repeats=request.header(REPEAT_HEADER) not in ("", "0")),
                    drop=self._drop,
                )
            )
        except RefusedError as error:
            return GatewayRefusal(429, str(error), error.retry_after_s or 5.0)
        except StoreError as error:
            return GatewayRefusal(503, f"the state of the pool cannot be reached: {error}", 5.0)
        if result.error is not None:
            await hold.free(result.error)
            return GatewayRefusal(
                502, f"{route.upstream.authority}: {str(result.error) or type(result.error).__name__}"
            )
        self.refused += governed and result.judged.signal.kind in _REFUSALS
        return await self._hand_over(result.unwrap(), hold, route, client)

    def _ask_for(self, request: Request, route: Route) -> AskRequest:
        model = called_model(route.path, request.body)[:NAME_LIMIT]
        model = model if model.isprintable() else ""
        pool = self.families.pool(route.pool, model)
        return asking_for(pool, project=route.project, name=route.name, model=model, priority=route.priority)

    def _attempt(
        self, request: Request, route: Route, deadline: float
    ) -> Generator[Any, Any, AttemptResult[_ConnectedAnswer]]:
        loop = asyncio.get_running_loop()
        sent_at = loop.time()
        try:
            exchange: _ConnectedAnswer = yield self._send(request, route)
        except AnswerError as error:
            return AttemptResult(JudgedResponse(broken_signal(error)), error=error, final=True)
        except OSError as error:  # a time-out of the connection is one, too
            return AttemptResult(JudgedResponse(no_answer_signal(error)), error=error, final=True)
        answer = exchange.answer
        judged = _judge(answer)
        kind = judged.signal.kind
        if kind is SignalKind.OK:
            what = f"{request.method} {route.upstream.host}{route.path.partition('?')[0]}"
            if self._latency.note(what, loop.time() - sent_at):
                slow = replace(judged.signal, kind=SignalKind.SLOW, detail=f"{what} is slow")
                judged = replace(judged, signal=slow)
        patience_s = deadline - loop.time()
        final = kind not in _REFUSALS or request.upload is not None
        return AttemptResult(judged, exchange, final=final, patience_s=patience_s)

    async def _send(self, request: Request, route: Route) -> _ConnectedAnswer:
        """Until the head of a good answer, or an error's body, is there."""
        data, fresh = request.dump(route), request.upload is not None
        while True:
            connection = await self.connections.connection(route.upstream, fresh=fresh)
            try:
                answer = connection.send(data, head_only=request.method == "HEAD")
                if request.upload is not None:
                    _send_beside(connection.send_body(request.upload, chunked=request.is_chunked), answer)
                await answer.ready
                return _ConnectedAnswer(connection, answer)
            except AnswerError as error:
                if error.started or fresh:
                    raise
                fresh = True  # a kept connection that the server had closed meanwhile
            except BaseException:
                connection.transport.abort()
                raise

    def _drop(self, result: AttemptResult[_ConnectedAnswer]) -> None:
        if result.value is not None:
            result.value.connection.transport.abort()

    async def _hand_over(
        self, exchange: _ConnectedAnswer, hold: AsyncHold, route: Route, client: CallerConnection
    ) -> bool:
        connection, answer = exchange.connection, exchange.answer
        tells: list[asyncio.Task[None]] = []

        def tell(signal: Signal) -> None:
            tells.append(asyncio.ensure_future(hold.tell(signal, news=True)))

        error: BaseException | None = None
        try:
            client.follow(connection)
            answer.relay_to(client, tell)
            await answer.done
        except AnswerError as broken:
            logging.getLogger("flyball").info("%s: %s", route.upstream.authority, broken)
            error = broken
        except BaseException as stopped:
            error = stopped
            connection.transport.abort()
            raise
        else:
            hold.settle(answer.listener.used)
            # The client's next call may be here before the slot is given back.
            self._put_away(connection, answer, route)
        finally:
            client.follow(None)
            for telling in tells:
                with suppress(Exception):
                    await telling
            await hold.free(error)
        return error is None and answer.keeps_connection

    def _put_away(self, connection: UpstreamConnection, answer: Answer, route: Route) -> None:
        if answer.keeps_connection:
            self.connections.give_back(route.upstream, connection)
        else:
            connection.transport.close()


def _send_beside(sending: Coroutine[Any, Any, None], answer: Answer) -> None:
    """Send until the server has answered; one that did so before it had all is not asked again there."""
    task = asyncio.ensure_future(sending)

    def stop(_: object) -> None:
        if not task.done():
            answer.keeps_connection = False
            task.cancel()

    answer.done.add_done_callback(stop)


def _judge(answer: Answer) -> JudgedResponse:
    headers = [(n.decode("latin-1"), v.decode("latin-1")) for n, v in answer.headers]
    if answer.status < 400:
        return judge_http(answer.status, headers)
    encoding = answer.header_map().get("content-encoding", "").strip().lower()
    body = bytes(answer.body)
    if encoding in ("gzip", "x-gzip", "deflate"):
        with suppress(zlib.error):
            body = zlib.decompressobj(32 + zlib.MAX_WBITS).decompress(body, 1024 * 1024)
    return judge_http(answer.status, headers, body)


def dump_refusal(refusal: GatewayRefusal) -> bytes:
    """An answer of our own, in the form of an error that every vendor's client understands."""
    import json

    kinds = {429: ("rate_limit_error", "RESOURCE_EXHAUSTED"), 503: ("overloaded_error", "UNAVAILABLE")}
    kind, status = kinds.get(refusal.status, ("api_error", "UNAVAILABLE"))
    error = {"type": kind, "status": status, "code": refusal.status, "message": f"flyball: {refusal.words}"}
    body = json.dumps({"type": "error", "error": error}).encode()
    wait = "" if refusal.retry_after_s is None else f"Retry-After: {math.ceil(refusal.retry_after_s)}\r\n"
    head = (
        f"HTTP/1.1 {refusal.status} {_REASONS.get(refusal.status, 'Error')}\r\n"
        f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n{wait}X-Flyball: gateway\r\n\r\n"
    )
    return head.encode() + body


_REASONS = {
    400: "Bad Request",
    403: "Forbidden",
    404: "Not Found",
    413: "Content Too Large",
    426: "Upgrade Required",
    429: "Too Many Requests",
    431: "Request Header Fields Too Large",
    500: "Internal Server Error",
    501: "Not Implemented",
    502: "Bad Gateway",
    503: "Service Unavailable",
}
