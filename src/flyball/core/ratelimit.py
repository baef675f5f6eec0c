"""``RateLimit`` and ``RateLimit-Policy``, the fields of the IETF draft, in the two forms they have had.

    "day";r=50;t=30, ...     with "day";q=100;w=60;qu="requests", ...     draft 8 and later
    limit=100, remaining=50, reset=30     with 100;w=60                   draft 7

Before, there were three plain headers (``ratelimit-remaining`` and its like); ``headers.py`` reads them as it
reads everybody's. A policy counts requests unless it says otherwise; one in a unit that no call is counted in
(bytes, calls at once) is left out. Of several in the same unit the one with least left is told: it is the one
that will refuse.

Liberal in shape: names may be quoted or not, order and unknown parameters mean nothing. Nothing raises.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from flyball.core.signals import Bucket
from flyball.core.spans import LONGEST_WAIT_S, number

COUNTED = ("requests", "tokens", "input-tokens", "output-tokens")
"""The units that a call has a cost in."""

_TEXT = r'"(?:[^"\\]|\\.)*"'
_VALUE = rf"(?:{_TEXT}|:[^:]*:|[^\s\",;]+)"
_PARAMETER = rf"\s*;\s*([a-z*][a-z0-9_.*-]*)(?:=({_VALUE}))?"
_MEMBER = re.compile(rf"\s*({_TEXT}|[^\s\",;=]+)(?:=({_VALUE}))?((?:{_PARAMETER})*)\s*(?:,|$)", re.IGNORECASE)
_PARAMETERS = re.compile(_PARAMETER, re.IGNORECASE)


class Member(NamedTuple):
    """One member of a list (``"name";r=5``) or of a dictionary (``remaining=5``)."""

    name: str
    value: str
    parameters: Mapping[str, str]


def members(field: str) -> Iterator[Member]:
    """What can be read of a structured field; what cannot is left out, up to the next comma."""
    at = 0
    while at < len(field):
        found = _MEMBER.match(field, at)
        if found is None:
            at = field.find(",", at) + 1 or len(field)
            continue
        at = max(found.end(), at + 1)
        told = {key.lower(): _bare(value) for key, value in _PARAMETERS.findall(found[3])}
        yield Member(_bare(found[1]), _bare(found[2] or ""), told)


def _bare(text: str) -> str:
    return re.sub(r"\\(.)", r"\1", text[1:-1]) if text[:1] == '"' else text


def told_buckets(field: str, policy: str) -> dict[str, Bucket]:
    """The quotas of a ``RateLimit`` field, by what they count.

    >>> told_buckets('"default";r=50;t=30', '"default";q=100;w=60')["requests"]
    Bucket(name='requests', limit=100.0, remaining=50.0, reset_s=30.0, window_s=60.0)
    """
    rules = {rule.name: rule.parameters for rule in members(policy)}
    said = list(members(field))
    whole = {member.name.lower(): member.value for member in said if member.value}
    found: dict[str, Bucket] = {}
    if "remaining" in whole:
        width = rules.get(whole.get("limit", ""), {})
        said = [
            Member("", "", {"r": whole["remaining"], "q": whole.get("limit", ""), **_times(whole, width)})
        ]
    for member in said:
        bucket = _bucket(member.name, {**rules.get(member.name, {}), **member.parameters})
        if bucket is not None:
            before = found.get(bucket.name, bucket)
            found[bucket.name] = min(bucket, before, key=lambda each: each.remaining)
    return found


def _times(whole: Mapping[str, str], width: Mapping[str, str]) -> dict[str, str]:
    return {"t": whole.get("reset", ""), "w": width.get("w", "")}


def _bucket(name: str, said: Mapping[str, str]) -> Bucket | None:
    unit = name.lower() if name.lower() in COUNTED else said.get("qu", "requests").lower()
    remaining = number(said.get("r"))
    if remaining is None or unit not in COUNTED:
        return None
    limit = number(said.get("q", said.get("l")))
    limit = limit if limit is not None and limit >= 1 else None
    remaining = max(0.0, remaining if limit is None else min(remaining, limit))
    return Bucket(
        unit, limit, remaining, _span_s(said.get("t"), least=0.0), _span_s(said.get("w"), least=0.001)
    )


def _span_s(text: str | None, *, least: float) -> float | None:
    span_s = number(text)
    return span_s if span_s is not None and least <= span_s <= LONGEST_WAIT_S else None
