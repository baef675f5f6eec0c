"""What holds for every ask over HTTP: keys, waits, and how a no is said. Pure: chance is an argument.

    Idempotency-Key   asked again under the same key, the answer is the first one's (``Idempotent-Replayed``).
                      A key belongs to the tenant and the path; its fingerprint is what was asked for.
    Prefer: wait=N    hold the request open for so long, at most ``LONGEST_WAIT_S``
    429               problem+json with limit, active, queued, retry_after_ms; Retry-After; RateLimit

Retry-After follows from the pace of what is in the way, is never under a second nor over half a minute, and
is jittered within these bounds, so that clients refused together do not come back together.
"""

from __future__ import annotations

import hashlib
import math
import random
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

import msgspec

from flyball.core.pool.settings import KEY_LIMIT
from flyball.core.pool.verdict import Reason, Verdict
from flyball.service.problems import Problem, ProblemError

LONGEST_WAIT_S = 60.0
LEAST_RETRY_S, MOST_RETRY_S = 1.0, 30.0
UNKNOWN_PACE_S = 2.0
"""The estimate for a pool of which no lease has ended yet."""
JITTER = 0.2
IN_FLIGHT_RETRY_S = 1
REPLAYED = {"Idempotent-Replayed": "true"}
_WAIT = re.compile(r"(?:^|[,;\s])wait\s*=\s*\"?(\d{1,9})", re.IGNORECASE)
T = TypeVar("T")


class LimitProblem(Problem, frozen=True, kw_only=True):
    """No slot now: what is used, and when to come back."""

    reason: str
    """One word: cap, maximum, queue, spacing, breaker, ..."""
    limit: int
    active: int
    queued: int
    """How many asks would have been served before it."""
    retry_after_ms: int


class LimitError(ProblemError):
    """429, with everything that a client needs to come back at a good time."""

    def __init__(self, verdict: Verdict, *, limit: int, active: int, chance: float) -> None:
        wait_s, queued = retry_after_s(verdict, chance=chance), max(0, verdict.position - 1)
        members = {"pool": verdict.pool, "reason": verdict.reason.value, "queued": queued}
        super().__init__(429, "limit", verdict.words(), headers=limit_headers(limit, 0, wait_s=wait_s))
        self.headers["Retry-After"] = str(math.ceil(wait_s))
        told = msgspec.structs.asdict(self.problem) | members
        self.problem = LimitProblem(
            **told | {"limit": limit, "active": active, "retry_after_ms": round(wait_s * 1000)}
        )


def refusal_error(verdict: Verdict) -> ProblemError:
    """A refused ask as a problem, with the numbers of what is in its way: the pool, or its own maximum."""
    if verdict.reason is Reason.KEY_USED:
        words = "this Idempotency-Key was used for another request; send a new key with a new request"
        return ProblemError(422, "key-used", words, pool=verdict.pool)
    if verdict.reason is Reason.TOO_LARGE:
        return ProblemError(400, "never", verdict.words(), pool=verdict.pool)
    if verdict.reason is Reason.MAXIMUM and verdict.project_maximum is not None:
        limit, active = verdict.project_maximum, verdict.project_in_use
        return LimitError(verdict, limit=limit, active=active, chance=random.random())
    return LimitError(verdict, limit=verdict.cap, active=verdict.in_use, chance=random.random())


def retry_after_s(verdict: Verdict, *, chance: float) -> float:
    """When to come back: the estimate, jittered by ``chance`` (0 to 1), within bounds.

    >>> from flyball.core.pool.verdict import VerdictKind
    >>> full = Verdict(kind=VerdictKind.REFUSED, reason=Reason.CAP, pool="p", estimate_s=10.0)
    >>> [retry_after_s(full, chance=chance) for chance in (0.0, 0.25, 0.5)]
    [8.0, 9.0, 10.0]
    >>> soon = Verdict(kind=VerdictKind.REFUSED, reason=Reason.CAP, pool="p", estimate_s=0.1)
    >>> [retry_after_s(soon, chance=chance) for chance in (0.0, 0.25, 0.5)]
    [1.0, 1.125, 1.25]
    """
    known = verdict.retry_after_s
    estimate_s = known if known is not None else UNKNOWN_PACE_S * max(1, verdict.position)
    # Bounded first: a bound that is applied after the jitter would take it away.
    bounded = min(MOST_RETRY_S / (1 + JITTER), max(LEAST_RETRY_S / (1 - JITTER), estimate_s))
    return min(MOST_RETRY_S, max(LEAST_RETRY_S, bounded * (1 - JITTER + 2 * JITTER * chance)))


def limit_headers(limit: int, left: int, *, wait_s: float | None = None) -> dict[str, str]:
    """The fields of the IETF draft.

    >>> limit_headers(8, 3)
    {'RateLimit-Policy': '"slots";q=8;qu="concurrent-requests"', 'RateLimit': '"slots";r=3'}
    """
    reset = f";t={math.ceil(wait_s)}" if wait_s is not None else ""
    return {
        "RateLimit-Policy": f'"slots";q={limit};qu="concurrent-requests"',
        "RateLimit": f'"slots";r={max(0, left)}{reset}',
    }


def room_headers(verdict: Verdict) -> dict[str, str]:
    """How much is left of the pool after this verdict."""
    return limit_headers(verdict.cap, verdict.cap - verdict.in_use) if verdict.cap else {}


# -- what clients send --------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Key:
    """A client's key, ready for a store. Both are empty where none was sent."""

    key: str = ""
    fingerprint: str = ""


def parse_wait(headers: Mapping[str, str]) -> float:
    """How long to hold the request open, from ``Prefer``; 0 where it says nothing.

    >>> [parse_wait({"prefer": text}) for text in ("wait=5", "respond-async, wait=900", "handling=strict")]
    [5.0, 60.0, 0.0]
    """
    found = _WAIT.search(headers.get("prefer", ""))
    return min(LONGEST_WAIT_S, float(found[1])) if found else 0.0


def parse_key(headers: Mapping[str, str], body: bytes, *, tenant: str, route: str) -> Key:
    """The request's key, as the store knows it: keys of two tenants or two routes never meet."""
    given = headers.get("idempotency-key")
    if given is None:
        return Key()
    text = given.strip()
    if len(text) >= 2 and text[0] == text[-1] == '"':
        text = text[1:-1]
    if not 0 < len(text) <= KEY_LIMIT or not (text.isascii() and text.isprintable()):
        words = f"Idempotency-Key must be 1 to {KEY_LIMIT} printable ASCII characters"
        raise ProblemError(400, "bad-key", words)
    return Key(_sha256(msgspec.json.encode([tenant, route, text])), fingerprint(body))


def fingerprint(body: bytes) -> str:
    """The same for every way to write the same JSON.

    >>> fingerprint(b'{"a": 1, "b": 2}') == fingerprint(b'{ "b":2,"a":1 }') != fingerprint(b'{"a": 2}')
    True
    """
    return _sha256(msgspec.json.encode(_decode(body), order="sorted"))


def _sha256(text: bytes) -> str:
    return hashlib.sha256(text).hexdigest()


def read_body(body: bytes, kind: type[T]) -> T:
    """What a body says, strictly; an empty one says nothing."""
    try:
        return msgspec.convert(_decode(body), kind)
    except msgspec.ValidationError as error:
        words = str(error)
        raise ProblemError(400, "malformed", words[:1].lower() + words[1:]) from error


def _decode(body: bytes) -> Any:
    try:
        given = msgspec.json.decode(body) if body.strip() else {}
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ProblemError(400, "malformed", f"the body is not JSON: {error}") from error
    if not isinstance(given, dict):
        raise ProblemError(400, "malformed", 'the body must be an object, such as {"slots": 1}')
    return given
