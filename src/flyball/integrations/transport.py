"""What the governed transports do, for every library of the httpx family.

``httpx2`` carries the official anthropic (1.0 on) and openai (3.0 on) packages, ``httpx`` the older ones and
many others. They are alike but share no class, so the work is written here once over what both have, and
``httpx_transport.py`` and ``httpx2_transport.py`` only bind it to their library's classes.

    which gate      the one given; else the pool of the request's host. ``only`` leaves other requests alone
    which attempts  throttles, overloads, timeouts and server errors are tried again as the policy says, as
                    long as the request can be sent twice and the caller has nothing of an answer yet
    how long        the slot is held until the answer's body is read or closed, for a stream long after the
                    call returned; an error's body is read at once, told from, and given on unchanged

A stream that says in the middle that it cannot go on is told from, and not tried again: the caller has a part
of it. No answer in time, or no connection, is told as a timeout. Waiting for a connection of our own pool is
not: that says nothing about the provider. An SDK that retries by itself says so in a header; what it repeats
is not told again.

The two-line door: an httpx client whose every call goes through a pool.

    client = anthropic.Anthropic(http_client=flyball.httpx_client("anthropic"), max_retries=0)

``govern`` does the same to a client that exists. It replaces the client's transports in place, the one for
proxies included, because a client that is told its transport forgets the proxies of the environment.

Two libraries go by that name: ``httpx2``, which the official SDKs are built on since anthropic 1.0 and openai
3.0, and ``httpx`` before. httpx2 is taken where it is installed; ``library="httpx"`` asks for the other.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib import import_module
from importlib.util import find_spec
from inspect import signature
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypedDict, TypeVar, overload

from flyball.core.provider.latency import LatencyTracker
from flyball.core.signals import SignalKind
from flyball.errors import UsageError
from flyball.host.install_hints import extra_command
from flyball.integrations.gate import Gate, SlotOptions, gate_for, pool_of_host
from flyball.integrations.outcome import JudgedResponse, broken_signal, judge_http, no_answer_signal
from flyball.integrations.response_stream import (
    DEAF,
    AsyncRelay,
    Relay,
    StreamHead,
    listener_for,
    read_opening,
    read_opening_async,
)
from flyball.integrations.retry import (
    REAL,
    AttemptResult,
    Episode,
    Flow,
    IoAdapter,
    RetryEnvironment,
    RetryPolicy,
    loop_hands,
    pursue,
    run_async,
    run_sync,
    thread_hands,
)

if TYPE_CHECKING:
    from typing import Unpack

    import httpx
    import httpx2

    from flyball.integrations.gate import Gate


ERROR_BODY_BYTES = 64 * 1024
"""As much of an error as is read to understand it. The rest stays for the caller."""
RETRY_COUNT = "x-stainless-retry-count"
"""How the official SDKs number the attempts of one call."""

Resp = TypeVar("Resp")
Body = StreamHead[Any]
_UNREAD: Body = StreamHead((), None)
_ONCE = RetryPolicy(attempts=1)


class RuleOptions(TypedDict, total=False):
    """Keyword arguments of everything that makes a governed transport."""

    retry: RetryPolicy | None
    """None: hand over every answer as it comes."""
    only: Sequence[str]
    """Prefixes of the paths (``/v1/messages``) or addresses (``https://api.openai.com/``) to govern."""
    slot_timeout_s: float | None
    """How long to wait for a slot; then a ``WaitTimeoutError``."""
    estimate: Callable[[Any], Mapping[str, float]]
    """What a request will use of the pool's or limiter's windows, such as ``{"tokens": 1200}``."""
    environment: RetryEnvironment
    """Time and chance, for tests."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """What a user said about a transport; transports that share it share the budget for retries."""

    gate: Gate | str | None = None
    retry: RetryPolicy | None = field(default_factory=RetryPolicy)
    only: Sequence[str] = ()
    slot_timeout_s: float | None = None
    estimate: Callable[[Any], Mapping[str, float]] | None = None
    environment: RetryEnvironment = REAL

    def __post_init__(self) -> None:
        if isinstance(self.only, str):
            raise UsageError(f"only is a list of prefixes: only=[{self.only!r}]")

    def ask(self, request: Any) -> SlotOptions:
        said: SlotOptions = {}
        if self.slot_timeout_s is not None:
            said["timeout"] = self.slot_timeout_s
        if self.estimate is not None:
            said["cost"] = self.estimate(request)
        return said

    def covers(self, url: Any) -> bool:
        return not self.only or any(
            url.path.startswith(prefix) if prefix.startswith("/") else str(url).startswith(prefix)
            for prefix in self.only
        )


class Family:
    """The classes of one library that matter here; ``library`` is httpx or httpx2."""

    def __init__(self, library: Any) -> None:
        self.late: type[Exception] = library.TimeoutException
        self.our_own: type[Exception] = library.PoolTimeout
        self.refused: type[Exception] = library.ConnectError
        self.broken = (library.ReadError, library.WriteError, library.RemoteProtocolError)
        self.resendable: type = library.ByteStream
        self.relay: type[Relay] = type("Relay", (Relay, library.SyncByteStream), {})
        self.async_relay: type[AsyncRelay] = type("AsyncRelay", (AsyncRelay, library.AsyncByteStream), {})
        self._response = library.Response

    def judge_error(self, error: Exception) -> JudgedResponse | None:
        """What no answer means; None: nothing about the provider."""
        if isinstance(error, self.our_own):
            return None
        if isinstance(error, (self.late, self.refused)):
            return JudgedResponse(no_answer_signal(error))
        return JudgedResponse(broken_signal(error)) if isinstance(error, self.broken) else None

    def judge_answer(self, response: Any, body: Body) -> JudgedResponse:
        status, headers = response.status_code, response.headers
        plain = None
        if status >= 400:
            raw = b"".join(body.head)
            try:
                plain = response.content if response.is_closed else self._decode(status, headers, raw)
            except Exception:  # an encoding that the library cannot read, or one cut short
                plain = raw
        return judge_http(status, headers.multi_items(), plain)

    def _decode(self, status: int, headers: Any, raw: bytes) -> bytes:
        content: bytes = self._response(status, headers=headers, content=raw).content
        return content


class Got(NamedTuple):
    """A response, and how much of its body was read to understand it."""

    response: Any
    body: Body


@dataclass(frozen=True, slots=True)
class _Reading:
    """How a thread or an event loop reads and closes a body, and gives it on."""

    hands: IoAdapter
    open: Callable[[Any, int], Any]
    close: Callable[[Any], Any]
    relay: Callable[..., Any]


class Exchange:
    """One transport's work: from a request to its answer, through the gate."""

    def __init__(self, family: Family, rules: Rules) -> None:
        self._family, self._rules = family, rules
        self._slowness = LatencyTracker()
        self._gates: dict[str, Gate] = {}
        environment = rules.environment
        self._thread = _Reading(thread_hands(environment), read_opening, lambda s: s.close(), family.relay)
        self._loop = _Reading(
            loop_hands(environment), read_opening_async, lambda s: s.aclose(), family.async_relay
        )

    def send(self, request: Any, send: Callable[[Any], Resp]) -> Resp:
        if not self._rules.covers(request.url):
            return send(request)
        response: Resp = run_sync(self._flow(request, send, self._thread))
        return response

    async def send_async(self, request: Any, send: Callable[[Any], Awaitable[Resp]]) -> Resp:
        if not self._rules.covers(request.url):
            return await send(request)
        response: Resp = await run_async(self._flow(request, send, self._loop))
        return response

    def _gate(self, host: str) -> Gate:
        gate = self._gates.get(host)
        if gate is None:
            given = self._rules.gate
            gate = gate_for(pool_of_host(host) if given is None else given)
            if self._rules.estimate is not None and "cost" not in signature(gate.slot).parameters:
                raise UsageError(f"an estimate needs a gate with windows, such as a Limiter, not {gate!r}")
            self._gates[host] = gate
        return gate

    def _flow(self, request: Any, send: Callable[[Any], Any], reading: _Reading) -> Flow[Any]:
        rules = self._rules
        answer, hold = yield from pursue(
            self._gate(request.url.host),
            lambda: self._attempt(request, send, reading),
            policy=rules.retry or _ONCE,
            hands=reading.hands,
            environment=rules.environment,
            ask=rules.ask(request),
            episode=Episode(repeats=_is_repeat(request)),
            drop=lambda answer: reading.close(answer.value.response.stream) if answer.value else None,
        )
        if answer.error is not None:
            yield hold.free(answer.error)
        response, body = answer.unwrap()
        listener = listener_for(response.headers) if response.status_code < 400 else DEAF
        if response.is_closed and response.status_code < 400:
            listener.hear(response.content)
            listener.end()
            hold.settle(listener.used)
        if response.is_closed or body.rest is None:
            yield hold.free()
        if not response.is_closed:
            response.stream = reading.relay(body, response.stream, hold, self._family.late, listener)
        return response

    def _attempt(
        self, request: Any, send: Callable[[Any], Any], reading: _Reading
    ) -> Flow[AttemptResult[Got]]:
        final = not isinstance(request.stream, self._family.resendable)
        response, body = None, _UNREAD
        clock = self._rules.environment.clock
        sent_at = clock()
        try:
            response = yield send(request)
            took_s = clock() - sent_at
            if response.status_code < 400:
                body = StreamHead((), response.stream)
            elif not response.is_closed:
                body = yield reading.open(response.stream, ERROR_BODY_BYTES)
        except Exception as error:
            judged = self._family.judge_error(error)
            if judged is None:
                raise
            if response is not None:
                # The status came, its explanation did not: the status is what was said.
                yield reading.close(response.stream)
                judged = self._family.judge_answer(response, body)
            return AttemptResult(judged, error=error, final=final)
        judged = self._judge_time(request, self._family.judge_answer(response, body), took_s)
        return AttemptResult(judged, Got(response, body), final=final)

    def _judge_time(self, request: Any, judged: JudgedResponse, took_s: float) -> JudgedResponse:
        """A class of calls whose first byte comes later and later asks for no more of them."""
        if judged.signal.kind is not SignalKind.OK:
            return judged
        kind = f"{request.method} {request.url.host}{request.url.path}"
        if not self._slowness.note(kind, took_s):
            return judged
        return replace(judged, signal=replace(judged.signal, kind=SignalKind.SLOW, detail=f"{kind} is slow"))


def _is_repeat(request: Any) -> bool:
    count = request.headers.get(RETRY_COUNT, "0")
    return bool(count.isdecimal() and int(count) > 0)


Library = Literal["httpx2", "httpx"]
C = TypeVar("C", bound="httpx.Client | httpx.AsyncClient | httpx2.Client | httpx2.AsyncClient")
_ANSWER_S, _CONNECT_S = 600.0, 5.0
"""As the official SDKs: a long answer may take minutes, a connection may not."""
_RULES = tuple(RuleOptions.__annotations__)


def govern(client: C, gate: Gate | str | None = None, **rules: Unpack[RuleOptions]) -> C:
    """Put every call of this client through a gate: a pool's name, a ``Limiter`` or a ``Pool``.

    Without a gate, the host decides the pool. The client is changed and returned.
    """
    for cls in type(client).__mro__:
        library, kind = cls.__module__.partition(".")[0], cls.__name__
        if library in ("httpx", "httpx2") and kind in ("Client", "AsyncClient"):
            over: Any = import_module(f"flyball.integrations.{library}_transport")
            _wrap(client, getattr(over, f"{kind.removesuffix('Client')}GovernedTransport"), gate, rules)
            return client
    kind = type(client).__name__
    raise UsageError(
        f"{kind} is not a client of httpx or httpx2; an SDK is given a governed one when its client is made: "
        f"{kind}(http_client=flyball.httpx_client(...), max_retries=0), httpx_async_client where it is async"
    )


def _wrap(client: Any, transport: Any, gate: Gate | str | None, options: RuleOptions) -> None:
    if isinstance(client._transport, transport):
        raise UsageError("this client is governed already; a call would take two slots")
    rules = Rules(gate=gate, **options)
    client._transport = transport.under(client._transport, rules)
    client._mounts = {
        pattern: None if mounted is None else transport.under(mounted, rules)
        for pattern, mounted in client._mounts.items()
    }


@overload
def httpx_client(
    gate: Gate | str | None = None, *, library: Literal["httpx"], **options: Any
) -> httpx.Client: ...
@overload
def httpx_client(
    gate: Gate | str | None = None, *, library: Literal["httpx2"] | None = None, **options: Any
) -> httpx2.Client: ...
def httpx_client(gate: Gate | str | None = None, *, library: Library | None = None, **options: Any) -> Any:
    """A client for ``http_client=`` of an SDK, or for your own calls.

    Options are those of ``govern`` (``retry``, ``only``, ``slot_timeout_s``) and of the library's client.
    """
    return _make_client("Client", gate, library, options)


@overload
def httpx_async_client(
    gate: Gate | str | None = None, *, library: Literal["httpx"], **options: Any
) -> httpx.AsyncClient: ...
@overload
def httpx_async_client(
    gate: Gate | str | None = None, *, library: Literal["httpx2"] | None = None, **options: Any
) -> httpx2.AsyncClient: ...
def httpx_async_client(
    gate: Gate | str | None = None, *, library: Library | None = None, **options: Any
) -> Any:
    """``httpx_client`` for an event loop."""
    return _make_client("AsyncClient", gate, library, options)


def _make_client(kind: str, gate: Gate | str | None, library: Library | None, options: dict[str, Any]) -> Any:
    if library not in (None, "httpx", "httpx2"):
        raise UsageError(f"library must be httpx2 or httpx, not {library!r}")
    if gate is not None and not isinstance(gate, str) and not hasattr(gate, "slot"):
        raise UsageError(f"expected a pool's name, a Limiter or a Pool, not {gate!r}")
    lib: Any = import_module(library or _installed_library())
    rules: Any = {name: options.pop(name) for name in _RULES if name in options}
    options.setdefault("timeout", lib.Timeout(_ANSWER_S, connect=_CONNECT_S))
    options.setdefault("follow_redirects", True)
    # The slots are the limit. A smaller one in here would make calls wait with a slot in hand.
    options.setdefault("limits", lib.Limits(max_connections=None, max_keepalive_connections=100))
    return govern(getattr(lib, kind)(**options), gate, **rules)


def _installed_library() -> Library:
    if find_spec("httpx2") is not None:
        return "httpx2"
    if find_spec("httpx") is not None:
        return "httpx"
    raise UsageError(f"neither httpx2 nor httpx is installed; install one with: {extra_command('http')}")
