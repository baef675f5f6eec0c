"""How a client tries again. A setting, not code: it is rolled back without a release.

    none       a 429 is handed over at once
    fixed      come back after ``base_s``, every time
    jittered   come back when the server said, or after a doubling wait; never together with others

The first that says something decides: the caller's own ``policy=``, then ``FLYBALL_CLIENT_POLICY`` (a word,
or JSON such as ``{"retry": "fixed", "base_s": 1}``), then what the server answers to ``GET /v1/policy``.

``budget_s`` bounds all the waiting of one ask that was refused; ``wait_s`` is how long one request is held
open. The server holds none open for longer than a minute: a longer wait is several requests for one ticket.
"""

from __future__ import annotations

import os
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from flyball.errors import UsageError

VARIABLE = "FLYBALL_CLIENT_POLICY"
_KINDS = ("none", "fixed", "jittered")
Seconds = Annotated[float, Meta(ge=0, le=86400)]


class Policy(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """How to try again."""

    retry: Literal["none", "fixed", "jittered"] = "jittered"
    base_s: Seconds = 0.5
    cap_s: Seconds = 30.0
    budget_s: Seconds = 120.0
    """How long one ask may come back after refusals and outages, in all."""
    wait_s: Annotated[float, Meta(ge=0, le=60)] = 30.0
    """How long one request stands in line before it is sent again."""


def delay_s(policy: Policy, attempt: int, told_s: float | None, *, chance: float) -> float | None:
    """How long to wait after a refusal; None: hand it over.

    >>> delay_s(Policy(retry="fixed", base_s=1.0), 7, 20.0, chance=0.5)
    1.0
    >>> [delay_s(Policy(), attempt, None, chance=0.5) for attempt in (1, 2, 3)]
    [0.25, 0.5, 1.0]
    >>> delay_s(Policy(), 1, 4.0, chance=0.5)
    4.25
    """
    if policy.retry == "none":
        return None
    if policy.retry == "fixed":
        return policy.base_s
    backoff_s = min(policy.cap_s, policy.base_s * 2.0 ** min(attempt - 1, 60))
    return (told_s or 0.0) + chance * backoff_s


def named_policy() -> Policy | None:
    """What the environment says; None where it says nothing."""
    text = os.environ.get(VARIABLE, "").strip()
    if not text:
        return None
    return parse_policy(f'{{"retry": "{text}"}}'.encode() if text in _KINDS else text.encode(), VARIABLE)


def parse_policy(text: bytes, where: str) -> Policy:
    try:
        return msgspec.json.decode(text, type=Policy)
    except msgspec.MsgspecError as error:
        raise UsageError(
            f"{where} is not a retry policy ({error}); write none, fixed, jittered, or JSON such as "
            '{"retry": "fixed", "base_s": 1}'
        ) from error
