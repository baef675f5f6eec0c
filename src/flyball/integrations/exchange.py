"""What every governed client does with one request, whatever HTTP library sends it.

The libraries are alike but share no class. What differs is behind ``Wire``: what a request says, what an
error means, how an answer is read and closed, and how its slot ends with it. The work is written here once.

    which gate      the one given; else the pool of the request's host and ``account``. Where the pool's
                    models have pools of their own (``core/pool/families.py``), that of the model called.
                    ``only`` leaves other requests alone; what the loopback gateway governs is left alone too
    which attempts  throttles, overloads, timeouts and server errors are tried again as the policy says, as
                    long as the request can be sent twice and the caller has nothing of an answer yet
    how long        the slot is held until the answer's body is read or closed, for a stream long after the
                    call returned; an error's body is read at once, told from, and given on unchanged

A stream that says in the middle that it cannot go on is told from, and not tried again: the caller has a part
of it. No answer in time, or no connection, is told as a timeout. Waiting for a connection of our own pool is
not: that says nothing about the provider. An SDK that retries by itself says so in a header; what it repeats
is not told again.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from inspect import signature
from typing import TYPE_CHECKING, Any, Protocol, TypedDict, TypeVar

from flyball.core.provider.latency import LatencyTracker
from flyball.core.signals import SignalKind
from flyball.errors import StoreError, UsageError
from flyball.governor.family_pools import REFRESH_S, FamilyPools
from flyball.governor.internals import internals
from flyball.host.event_loop import asyncio_loop
from flyball.integrations.gate import Gate, Pool, SlotOptions, gate_for, pool_of_host
from flyball.integrations.gateway_calls import passes_gateway
from flyball.integrations.model_call import called_model
from flyball.integrations.outcome import JudgedResponse
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
    from flyball.integrations.gate import Gate

Resp = TypeVar("Resp")
_ONCE = RetryPolicy(attempts=1)
RETRY_COUNT = "x-stainless-retry-count"
"""How the official SDKs number the attempts of one call."""


class RuleOptions(TypedDict, total=False):
    """Keyword arguments of everything that governs a client."""

    retry: RetryPolicy | None
    """None: hand over every answer as it comes."""
    only: Sequence[str]
    """Prefixes of the paths (``/v1/messages``) or addresses (``https://api.openai.com/``) to govern."""
    slot_timeout_s: float | None
    """How long to wait for a slot; then a ``WaitTimeoutError``."""
    account: str | None
    """Where the host decides the pool, the account that it is of: ``anthropic:work``."""
    estimate: Callable[[Any], Mapping[str, float]]
    """What a request will use of the pool's or limiter's windows, such as ``{"tokens": 1200}``."""
    environment: RetryEnvironment
    """Time and chance, for tests."""


@dataclass(frozen=True, slots=True)
class Call:
    """A request, as far as it matters here."""

    method: str
    url: object
    """Its ``str`` is the whole address."""
    host: str
    path: str
    repeats: bool = False
    """The SDK tries again by itself, and this is not the first time."""
    resendable: bool = True
    body: Callable[[], bytes] = bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """What a user said about a client; transports that share it share the budget for retries."""

    gate: Gate | str | None = None
    retry: RetryPolicy | None = field(default_factory=RetryPolicy)
    only: Sequence[str] = ()
    slot_timeout_s: float | None = None
    account: str | None = None
    estimate: Callable[[Any], Mapping[str, float]] | None = None
    environment: RetryEnvironment = REAL
    stops_at_last_event: bool = False
    """The client reads a stream up to its last event, and leaves the rest to the collector."""

    def __post_init__(self) -> None:
        if isinstance(self.only, str):
            raise UsageError(f"only is a list of prefixes: only=[{self.only!r}]")
        if self.account is not None and self.gate is not None:
            raise UsageError(
                "account is for pools that the host decides; name the pool itself: 'anthropic:work'"
            )
        if self.gate is not None and not isinstance(self.gate, str):
            gate_for(self.gate)

    def ask(self, request: Any) -> SlotOptions:
        said: SlotOptions = {}
        if self.slot_timeout_s is not None:
            said["timeout"] = self.slot_timeout_s
        if self.estimate is not None:
            said["cost"] = self.estimate(request)
        return said

    def covers(self, call: Call) -> bool:
        return not passes_gateway(call.host, call.url) and (
            not self.only
            or any(
                call.path.startswith(prefix) if prefix.startswith("/") else str(call.url).startswith(prefix)
                for prefix in self.only
            )
        )


class Wire(Protocol):
    """What differs between libraries. Methods that do I/O return what the flow yields: in a thread the
    result, on an event loop something to await."""

    is_async: bool

    def call(self, request: Any) -> Call: ...

    def judge_error(self, error: Exception) -> JudgedResponse | None:
        """What no answer means; None: nothing about the provider."""

    def is_error(self, response: Any) -> bool: ...

    def read_error(self, response: Any) -> Any:
        """Effect: read of an error's body what it takes to understand it."""

    def judge_answer(self, response: Any, body: Any) -> JudgedResponse:
        """``body``: what ``read_error`` read; None: nothing yet."""

    def close(self, response: Any) -> Any:
        """Effect: close an answer that is not handed over."""

    def hand_over(self, response: Any, body: Any, hold: Any, rules: Rules) -> Generator[Any, Any, Any]:
        """Flow: the answer for the caller, with its slot, which ends when its body does."""


@dataclass(frozen=True, slots=True)
class Got:
    """A response, and how much of its body was read to understand it."""

    response: Any
    body: Any = None


class Exchange:
    """One client's work: from a request to its answer, through the gate."""

    def __init__(self, wire: Wire, rules: Rules) -> None:
        self.wire, self.rules = wire, rules
        self._slowness = LatencyTracker()
        self._gates: dict[str, Gate] = {}
        self._families: FamilyPools | None = None
        self._families_at = float("-inf")
        hands = loop_hands if wire.is_async else thread_hands
        self._hands: IoAdapter = hands(rules.environment)

    def send(self, request: Any, send: Callable[[Any], Resp]) -> Resp:
        call = self.wire.call(request)
        if not self.rules.covers(call):
            return send(request)
        response: Resp = run_sync(self._flow(call, request, send))
        return response

    async def send_async(self, request: Any, send: Callable[[Any], Awaitable[Resp]]) -> Resp:
        call = self.wire.call(request)
        if not self.rules.covers(call):
            return await send(request)
        asyncio_loop()
        response: Resp = await run_async(self._flow(call, request, send))
        return response

    def _gate(self, call: Call) -> Flow[Gate]:
        gate = self._gates.get(call.host)
        if gate is None:
            given, account = self.rules.gate, self.rules.account
            if given is None:
                given = pool_of_host(call.host) + (f":{account}" if account else "")
            gate = gate_for(given)
            if self.rules.estimate is not None and "cost" not in signature(gate.slot).parameters:
                raise UsageError(f"an estimate needs a gate with windows, such as a Limiter, not {gate!r}")
            self._gates[call.host] = gate
        if not isinstance(gate, Pool):
            return gate
        families = yield from self._family_pools(gate)
        if not families.has_families(gate.pool):
            return gate
        return gate.of(families.pool(gate.pool, called_model(call.path, call.body())))

    def _family_pools(self, gate: Pool) -> Flow[FamilyPools]:
        """Which models have pools of their own, read again now and then."""
        families, now = self._families, self.rules.environment.clock()
        if families is None:
            families = self._families = FamilyPools(gate.governor)
        if now >= self._families_at + REFRESH_S:
            self._families_at = now
            try:
                yield self._hands.call(families.refresh)
            except StoreError as error:
                # The slot will say it where it matters; until then what was read last holds.
                logging.getLogger("flyball").warning("could not read the families of models: %s", error)
        return families

    def _flow(self, call: Call, request: Any, send: Callable[[Any], Any]) -> Flow[Any]:
        rules, wire = self.rules, self.wire
        gate = yield from self._gate(call)
        answer, hold = yield from pursue(
            gate,
            lambda: self._attempt(call, request, send),
            policy=rules.retry or _ONCE,
            hands=self._hands,
            environment=rules.environment,
            ask=rules.ask(request),
            episode=Episode(repeats=call.repeats),
            drop=lambda answer: wire.close(answer.value.response) if answer.value else None,
        )
        if answer.error is not None:
            yield hold.free(answer.error)
        got: Got = answer.unwrap()
        return (yield from wire.hand_over(got.response, got.body, hold, rules))

    def _attempt(self, call: Call, request: Any, send: Callable[[Any], Any]) -> Flow[AttemptResult[Got]]:
        wire, final = self.wire, not call.resendable
        response = body = None
        clock = self.rules.environment.clock
        sent_at = clock()
        try:
            response = yield send(request)
            took_s = clock() - sent_at
            if wire.is_error(response):
                body = yield wire.read_error(response)
        except Exception as error:
            judged = wire.judge_error(error)
            if judged is None:
                raise
            if response is not None:
                # The status came, its explanation did not: the status is what was said.
                yield wire.close(response)
                judged = wire.judge_answer(response, None)
            return AttemptResult(judged, error=error, final=final)
        judged = self._judge_time(call, wire.judge_answer(response, body), took_s)
        return AttemptResult(judged, Got(response, body), final=final)

    def _judge_time(self, call: Call, judged: JudgedResponse, took_s: float) -> JudgedResponse:
        """A class of calls whose first byte comes later and later asks for no more of them."""
        if judged.signal.kind is not SignalKind.OK:
            return judged
        kind, gate = f"{call.method} {call.host}{call.path}", self._gates[call.host]
        # What one pool's answers take is the same for all clients of this process.
        slowness = internals(gate.governor).latency if isinstance(gate, Pool) else self._slowness
        if not slowness.note(kind, took_s):
            return judged
        return replace(judged, signal=replace(judged.signal, kind=SignalKind.SLOW, detail=f"{kind} is slow"))


def is_repeat(headers: Mapping[str, Any]) -> bool:
    """Whether an official SDK says that it tries this call again."""
    count = str(headers.get(RETRY_COUNT, "0"))
    return bool(count.isdecimal() and int(count) > 0)
