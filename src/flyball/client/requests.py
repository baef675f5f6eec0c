"""How a client gets its slots, written once for threads and event loops.

A flow is a generator that yields what is to be done (a request, a nap) and is sent what came of it. It asks
under one key, so that an answer that was lost is told again and nothing starts twice:

    201  ours             202  a ticket: wait for it           409  an earlier try is still being answered
    429  by the policy    503, no answer  by the policy        else  the caller's mistake, or the server's
    given up (timeout, Ctrl-C, cancelled): withdraw the ticket
"""

from __future__ import annotations

import random
import time
import uuid
from collections.abc import Generator, Mapping
from dataclasses import dataclass, field
from typing import Any, NoReturn, TypeVar

from flyball.client.retry_policy import Policy, delay_s
from flyball.core.pool.verdict import CLOSED_REASONS, Reason, Verdict, VerdictKind
from flyball.errors import (
    AtCapacityError,
    PoolClosedError,
    StoreError,
    TooLargeError,
    UsageError,
    WaitTimeoutError,
)

R = TypeVar("R")
LOST = 0
"""The status of a request that got no answer."""
GONE = 410
_GRACE_S = 10.0
"""How much longer than the server holds a request open we wait for its answer."""


@dataclass(frozen=True, slots=True)
class Send:
    """A request."""

    method: str
    path: str
    body: Mapping[str, Any] | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    timeout_s: float = _GRACE_S


@dataclass(frozen=True, slots=True)
class Nap:
    for_s: float


@dataclass(frozen=True, slots=True)
class ServiceResponse:
    status: int
    headers: Mapping[str, str]
    body: Mapping[str, Any]
    detail: str = ""
    """Why there is none."""

    @property
    def retry_after_s(self) -> float | None:
        told = self.body.get("retry_after_ms")
        if isinstance(told, int):
            return told / 1000
        text = self.headers.get("retry-after", "")
        return float(text) if text.isdecimal() else None


Flow = Generator[Send | Nap, Any, R]


@dataclass(frozen=True, slots=True)
class LeaseRequest:
    """What to ask for."""

    pool: str
    path: str
    body: Mapping[str, Any]
    timeout_s: float | None


def acquire(wish: LeaseRequest, policy: Policy) -> Flow[Mapping[str, Any]]:
    """The lease, as the server told of it; or an error that says why not."""
    return (yield from _Acquiring(wish, policy).run())


class _Acquiring:
    def __init__(self, wish: LeaseRequest, policy: Policy) -> None:
        self._wish, self._policy = wish, policy
        self._began = time.monotonic()
        self._key = uuid.uuid4().hex
        self._attempt = 0
        self._refused_s = 0.0

    def run(self) -> Flow[Mapping[str, Any]]:
        while True:
            answer: ServiceResponse = yield self._ask()
            if answer.status == 201:
                # What was granted to an earlier try may have ended before we heard of it.
                if "idempotent-replayed" not in answer.headers or (yield from self._goes_on(answer.body)):
                    return answer.body
            elif answer.status == 202:
                if (yield from self._stand_in_line(answer)):
                    return answer.body
            else:
                yield from self._come_back(answer)

    def _goes_on(self, lease: Mapping[str, Any]) -> Flow[bool]:
        """Say how long we need it from now; False where it is gone and has to be asked for anew."""
        token = {"Lease-Token": str(lease["token"])}
        answer: ServiceResponse = yield Send(
            "POST", f"/v1/leases/{lease['id']}/renew", {"ttl_s": lease["ttl_s"]}, token
        )
        if answer.status == GONE:
            self._key = uuid.uuid4().hex
        return answer.status != GONE

    def _ask(self) -> Send:
        wait_s = self._hold_s()
        headers = {"Idempotency-Key": self._key}
        if wait_s >= 1:
            headers["Prefer"] = f"wait={int(wait_s)}"
        return Send("POST", self._wish.path, self._wish.body, headers, wait_s + _GRACE_S)

    def _hold_s(self) -> float:
        left_s = self._left_s()
        return self._policy.wait_s if left_s is None else min(self._policy.wait_s, left_s)

    def _left_s(self) -> float | None:
        """Until the caller's timeout; None where there is none."""
        timeout_s = self._wish.timeout_s
        return None if timeout_s is None else max(0.0, self._began + timeout_s - time.monotonic())

    def _stand_in_line(self, answer: ServiceResponse) -> Flow[bool]:
        """True: it became a lease. False: the place was lost and has to be asked for again."""
        ticket = answer.body
        path, token = f"/v1/tickets/{ticket['id']}", {"Lease-Token": str(ticket["token"])}
        try:
            while self._left_s() != 0.0:
                wait_s = self._hold_s()
                headers = {**token, "Prefer": f"wait={int(wait_s)}"} if wait_s >= 1 else token
                answer = yield Send("GET", path, headers=headers, timeout_s=wait_s + _GRACE_S)
                if answer.status == 200 and answer.body.get("state") == "held":
                    return (yield from self._goes_on(ticket))
                if answer.status == 404:
                    self._key = uuid.uuid4().hex
                    return False
                if answer.status != 200:
                    yield from self._come_back(answer)
                elif wait_s < 1:
                    yield Nap(min(0.1, self._left_s() or 0.1))
            raise WaitTimeoutError(_verdict(self._wish.pool, answer), self._wish.timeout_s or 0.0)
        except BaseException:
            # Whatever stops us, no place in line is left behind. The original error is what counts.
            yield Send("DELETE", path, headers=token)
            raise

    def _come_back(self, answer: ServiceResponse) -> Flow[None]:
        """Wait as the policy says, or raise."""
        if answer.status not in (409, 429, 502, 503, 504, LOST):
            _refuse(self._wish.pool, answer)
        self._attempt += 1
        wait_s = delay_s(self._policy, self._attempt, answer.retry_after_s, chance=random.random())
        left_s = self._left_s()
        if wait_s is None or self._refused_s + wait_s > self._policy.budget_s:
            _refuse(self._wish.pool, answer)
        if left_s is not None and wait_s > left_s:
            self._give_up(answer)
        self._refused_s += wait_s
        yield Nap(wait_s)

    def _give_up(self, answer: ServiceResponse) -> NoReturn:
        if answer.status == 429 and self._wish.timeout_s:
            raise WaitTimeoutError(_verdict(self._wish.pool, answer), self._wish.timeout_s)
        _refuse(self._wish.pool, answer)


def call(send: Send) -> Flow[ServiceResponse]:
    """One request; an error where the answer is no."""
    answer: ServiceResponse = yield send
    if not 200 <= answer.status < 300:
        _refuse("", answer)
    return answer


def _refuse(pool: str, answer: ServiceResponse) -> NoReturn:
    """The error for an answer: whose turn it is."""
    detail = str(answer.body.get("detail") or answer.detail or f"the server answered {answer.status}")
    if answer.status == 429:
        verdict = _verdict(pool, answer)
        raise PoolClosedError(verdict) if verdict.reason in CLOSED_REASONS else AtCapacityError(verdict)
    if answer.body.get("type") == "urn:flyball:never":
        raise TooLargeError(_verdict(pool, answer, Reason.TOO_LARGE))
    if answer.status in (LOST, 409) or answer.status >= 500:
        raise StoreError(detail)
    raise UsageError(detail)


def _verdict(pool: str, answer: ServiceResponse, reason: Reason | None = None) -> Verdict:
    """As much of a verdict as was told."""
    told = answer.body
    words = {known.value: known for known in Reason}
    return Verdict(
        kind=VerdictKind.REFUSED,
        reason=reason or words.get(str(told.get("reason")), Reason.QUEUE),
        pool=pool,
        in_use=int(told.get("active") or 0),
        cap=int(told.get("limit") or 0),
        position=int(told.get("position") or int(told.get("queued") or 0) + 1),
        estimate_s=told.get("estimate_s") or answer.retry_after_s,
    )
