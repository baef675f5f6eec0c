"""Discrete-event time: clients with endless work, a provider with hidden limits, and a policy between them.

Deterministic: the same scenario, seed and policy give the same run. A policy is anything that says when the
next call may start and learns how each one ended: flyball's are in ``controllers.py``, others in
``rivals.py``. The oracle below looks into the provider and starts a call exactly when it would be served.

Clients with one policy between them are coordinated: they take turns. A refused job goes back to the front
of its client's line, at once or after the time its policy asks for, and is tried again until it is served:
no policy gains by giving up.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from flyball.core.signals import Signal, SignalKind
from flyball.errors import invariant
from flyball.sim.simulator.jobs import Job
from flyball.sim.simulator.limits import INFINITY, Rule

OK = SignalKind.OK
_SERVED = Signal(OK)


class CallPolicy(Protocol):
    """Decides for one client, or for all of them together."""

    @property
    def level(self) -> float:
        """How many it believes may run at once."""

    def earliest_start(self, t_s: float, job: Job) -> float:
        """``t_s`` if the job may start now, else when to look again; infinity: when something ends."""

    def start(self, t_s: float, job: Job) -> object:
        """It starts; what this returns comes back with ``end``."""

    def end(self, started: object, job: Job, signal: Signal, t_s: float) -> float | None:
        """It ended. For a refused job: how long it waits before it is back in line; None: not at all."""


@dataclass(slots=True)
class SimulatedProvider:
    """Rules, and how long a refusal takes."""

    rules: Sequence[Rule]
    reject_s: float = 0.15
    _telling: list[Rule] = field(init=False)
    """The rules whose state is in the answers' headers."""

    def __post_init__(self) -> None:
        self._telling = [rule for rule in self.rules if rule.buckets(0.0)]

    def attempt(self, t_s: float, job: Job) -> Signal:
        job.attempts += 1
        for rule in self.rules:
            refusal = rule.refusal(t_s, job)
            if refusal is not None:
                return self._with_headers(refusal, t_s)
        for rule in self.rules:
            rule.enter(t_s, job)
        return self._with_headers(_SERVED, t_s)

    def leave(self, t_s: float, job: Job) -> None:
        for rule in self.rules:
            rule.leave(t_s, job)

    def room_at(self, t_s: float, job: Job) -> float:
        return max(rule.room_at(t_s, job) for rule in self.rules)

    def _with_headers(self, signal: Signal, t_s: float) -> Signal:
        if not self._telling:
            return signal
        buckets = tuple(bucket for rule in self._telling for bucket in rule.buckets(t_s))
        return Signal(signal.kind, signal.retry_after_s, buckets=buckets)


class Oracle:
    """Knows what no real client can know. What it still wastes, no policy could have saved."""

    def __init__(self, provider: SimulatedProvider) -> None:
        self._provider = provider
        self.running = 0

    @property
    def level(self) -> float:
        return float(self.running)

    def earliest_start(self, t_s: float, job: Job) -> float:
        return self._provider.room_at(t_s, job)

    def start(self, t_s: float, job: Job) -> object:  # noqa: ARG002
        self.running += 1
        return None

    def end(self, started: object, job: Job, signal: Signal, t_s: float) -> None:  # noqa: ARG002
        self.running -= 1


@dataclass(frozen=True, slots=True)
class Moment:
    """One look at a run, for plots."""

    t_s: float
    level: float
    served: int
    in_flight: int
    rejected: int
    """So far."""
    waiting: int
    """Jobs that were refused and are not served yet."""


@dataclass(slots=True)
class ClientTally:
    """What one client got."""

    done: int = 0
    rejected: int = 0
    served_s: float = 0.0
    """Time spent being served, within the horizon."""
    tokens: float = 0.0
    accepted: int = 0


@dataclass(slots=True)
class SimulatedRun:
    """What happened. One tally per client; ``moments`` at a fixed pace."""

    clients: list[ClientTally]
    moments: list[Moment] = field(default_factory=list)
    rejected_at_s: list[float] = field(default_factory=list)
    in_service: int = 0
    """Accepted and not done when the horizon came."""

    @property
    def total(self) -> ClientTally:
        return ClientTally(
            sum(c.done for c in self.clients),
            sum(c.rejected for c in self.clients),
            sum(c.served_s for c in self.clients),
            sum(c.tokens for c in self.clients),
            sum(c.accepted for c in self.clients),
        )


@dataclass(slots=True)
class _ClientState:
    policy: CallPolicy
    work: Iterator[Job]
    again: deque[Job] = field(default_factory=deque)
    """Refused jobs: tried again before anything new."""
    fresh: Job | None = None
    look_at_s: float = INFINITY

    def job(self) -> Job:
        if self.again:
            return self.again[0]
        if self.fresh is None:
            self.fresh = next(self.work)
        return self.fresh

    def take(self) -> None:
        """The job is on its way."""
        if self.again:
            self.again.popleft()
        else:
            self.fresh = None


@dataclass(slots=True)
class _CallInFlight:
    """One attempt on its way."""

    started: object
    job: Job
    signal: Signal


_Event = tuple[float, int, int, "_CallInFlight | Job | None"]
"""When; a count that keeps equal times in order; which client; an end, a return to the line, or a look."""


class Engine:
    """Several clients, each with its own policy, or several that share one (coordinated)."""

    def __init__(
        self,
        provider: SimulatedProvider,
        clients: Sequence[tuple[CallPolicy, Iterator[Job]]],
        *,
        horizon_s: float,
        moments: int = 0,
    ) -> None:
        self._provider, self._horizon_s = provider, horizon_s
        self._clients = [_ClientState(policy, work) for policy, work in clients]
        self._shared = len({id(policy) for policy, _ in clients}) < len(clients)
        self._events: list[_Event] = []
        self._count = 0
        self._turn = 0
        self._served = self._in_flight = self._rejected = self._waiting = 0
        self._every_s = horizon_s / moments if moments else INFINITY
        self._next_moment_s = 0.0 if moments else INFINITY
        self.run = SimulatedRun([ClientTally() for _ in clients])

    def play(self) -> SimulatedRun:
        for number in range(len(self._clients)):
            self._push(0.0, number, None)
        events = self._events
        while events and events[0][0] <= self._horizon_s:
            t_s, _, number, what = heapq.heappop(events)
            self._sample_until(t_s)
            if isinstance(what, _CallInFlight):
                self._end(t_s, number, what)
            elif isinstance(what, Job):
                self._clients[number].again.append(what)
            elif self._clients[number].look_at_s <= t_s:
                self._clients[number].look_at_s = INFINITY
            self._pump(t_s, number)
        self._sample_until(self._horizon_s)
        self.run.in_service = self._served
        return self.run

    def _push(self, t_s: float, number: int, what: _CallInFlight | Job | None) -> None:
        self._count += 1
        heapq.heappush(self._events, (t_s, self._count, number, what))

    def _pump(self, t_s: float, number: int) -> None:
        """Start what may start. Clients that share a policy take turns."""
        for _ in range(10_000):
            chosen = self._turn % len(self._clients) if self._shared else number
            client = self._clients[chosen]
            job = client.job()
            at_s = client.policy.earliest_start(t_s, job)
            if at_s > t_s:
                if at_s < client.look_at_s:
                    client.look_at_s = at_s
                    self._push(at_s, chosen, None)
                return
            self._turn += 1
            client.take()
            self._start(t_s, chosen, client, job)
        invariant(False, "a policy starts calls without end")

    def _start(self, t_s: float, number: int, client: _ClientState, job: Job) -> None:
        self._waiting -= job.attempts > 0
        started = client.policy.start(t_s, job)
        signal = self._provider.attempt(t_s, job)
        self._in_flight += 1
        served = signal.kind is OK
        took_s = job.service_s if served else self._provider.reject_s
        if served:
            self._served += 1
            tally = self.run.clients[number]
            tally.accepted += 1
            tally.served_s += min(took_s, self._horizon_s - t_s)
            tally.tokens += job.tokens
        self._push(t_s + took_s, number, _CallInFlight(started, job, signal))

    def _end(self, t_s: float, number: int, call: _CallInFlight) -> None:
        client, tally = self._clients[number], self.run.clients[number]
        self._in_flight -= 1
        if call.signal.kind is OK:
            self._served -= 1
            self._provider.leave(t_s, call.job)
            tally.done += 1
        else:
            tally.rejected += 1
            self._rejected += 1
            self._waiting += 1
            self.run.rejected_at_s.append(t_s)
        wait_s = client.policy.end(call.started, call.job, call.signal, t_s)
        if call.signal.kind is OK:
            return
        if wait_s:
            self._push(t_s + wait_s, number, call.job)
        else:
            client.again.append(call.job)

    def _sample_until(self, t_s: float) -> None:
        while (at_s := self._next_moment_s) <= t_s:
            clients = self._clients
            level = clients[0].policy.level if self._shared else sum(c.policy.level for c in clients)
            counts = self._served, self._in_flight, self._rejected, self._waiting
            self.run.moments.append(Moment(at_s, level, *counts))
            self._next_moment_s += self._every_s
