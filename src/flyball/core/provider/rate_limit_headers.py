"""The headers of one answer that say something about load: when to come back, and what is left.

    anthropic-ratelimit-{requests,tokens,input-tokens,output-tokens}-{limit,remaining,reset}
    anthropic-ratelimit-unified-{status,reset,representative-claim}       the windows of a subscription
    anthropic-ratelimit-unified-{5h,7d,...}-{status,utilization,reset}
    x-ratelimit-{limit,remaining,reset}-{requests,tokens}                 OpenAI and those who speak like it
    ratelimit, ratelimit-policy                                           the IETF's draft, see below
    ratelimit-{limit,remaining,reset}                                     the same, as it was before
    x-codex-{primary,secondary}-{used-percent,window-minutes,             the windows of a ChatGPT plan
                                 reset-after-seconds,reset-at}
    retry-after, retry-after-ms, x-quota-remaining, x-should-retry

Only shapes are judged here; ``http_response.py`` says what they mean. A header given twice and a header that
a proxy joined with commas are the same thing. Nothing raises, and an answer without any of these costs a few
microseconds, because that is what most answers are.

Moments are counted from the answer's own ``Date``: the resets were written by the same clock.

``RateLimit`` and ``RateLimit-Policy`` are the fields of the IETF draft, in the two forms they have had:

    "day";r=50;t=30, ...     with "day";q=100;w=60;qu="requests", ...     draft 8 and later
    limit=100, remaining=50, reset=30     with 100;w=60                   draft 7

Before, there were three plain headers (``ratelimit-remaining`` and its like). A policy counts requests unless
it says otherwise; one in a unit that no call is counted in (bytes, calls at once) is left out. Of several in
the same unit the one with least left is told: it is the one that will refuse.

Liberal in shape: names may be quoted or not, order and unknown parameters mean nothing. Nothing raises.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from flyball.core.durations import LONGEST_WAIT_S, longest_s, moment_s, number, until_s
from flyball.core.signals import Bucket, WindowReading

COUNTED = ("requests", "tokens", "input-tokens", "output-tokens")
"""The units that a call has a cost in."""

_TEXT = r'"(?:[^"\\]|\\.)*"'
_VALUE = rf"(?:{_TEXT}|:[^:]*:|[^\s\",;]+)"
_PARAMETER = rf"\s*;\s*([a-z*][a-z0-9_.*-]*)(?:=({_VALUE}))?"
_MEMBER = re.compile(rf"\s*({_TEXT}|[^\s\",;=]+)(?:=({_VALUE}))?((?:{_PARAMETER})*)\s*(?:,|$)", re.IGNORECASE)
_PARAMETERS = re.compile(_PARAMETER, re.IGNORECASE)


class HeaderMember(NamedTuple):
    """One member of a list (``"name";r=5``) or of a dictionary (``remaining=5``)."""

    name: str
    value: str
    parameters: Mapping[str, str]


def members(field: str) -> Iterator[HeaderMember]:
    """What can be read of a structured field; what cannot is left out, up to the next comma."""
    at = 0
    while at < len(field):
        found = _MEMBER.match(field, at)
        if found is None:
            at = field.find(",", at) + 1 or len(field)
            continue
        at = max(found.end(), at + 1)
        told = {key.lower(): _bare(value) for key, value in _PARAMETERS.findall(found[3])}
        yield HeaderMember(_bare(found[1]), _bare(found[2] or ""), told)


def _bare(text: str) -> str:
    return re.sub(r"\\(.)", r"\1", text[1:-1]) if text[:1] == '"' else text


def parse_ratelimit(field: str, policy: str) -> dict[str, Bucket]:
    """The quotas of a ``RateLimit`` field, by what they count.

    >>> parse_ratelimit('"default";r=50;t=30', '"default";q=100;w=60')["requests"]
    Bucket(name='requests', limit=100.0, remaining=50.0, reset_s=30.0, window_s=60.0)
    """
    rules = {rule.name: rule.parameters for rule in members(policy)}
    said = list(members(field))
    whole = {member.name.lower(): member.value for member in said if member.value}
    found: dict[str, Bucket] = {}
    if "remaining" in whole:
        width = rules.get(whole.get("limit", ""), {})
        said = [
            HeaderMember(
                "",
                "",
                {
                    "r": whole["remaining"],
                    "q": whole.get("limit", ""),
                    "t": whole.get("reset", ""),
                    "w": width.get("w", ""),
                },
            )
        ]
    for member in said:
        bucket = _bucket(member.name, {**rules.get(member.name, {}), **member.parameters})
        if bucket is not None:
            before = found.get(bucket.name, bucket)
            found[bucket.name] = min(bucket, before, key=lambda each: each.remaining)
    return found


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


HeaderText = str | bytes
HeaderLines = Mapping[str, str] | Iterable[tuple[HeaderText, HeaderText]]

_UNIFIED = "anthropic-ratelimit-unified-"
_PREFIXES = (
    "anthropic-ratelimit-",
    "x-ratelimit-",
    "ratelimit",
    "retry-after",
    "x-quota-remaining",
    "x-codex-",
    "x-should-retry",
    "date",
)
_LOOK_CHARS = 4
_STARTS = frozenset(prefix[:_LOOK_CHARS] for prefix in _PREFIXES)
_FIELDS = ("limit", "remaining", "reset")
# The provider's own headers come first: a gateway may add the OpenAI ones for quotas of its own.
_ROWS = (
    *(
        (name, tuple(form.format(field=field, name=name) for field in _FIELDS))
        for form in ("anthropic-ratelimit-{name}-{field}", "x-ratelimit-{field}-{name}")
        for name in COUNTED
    ),
    ("requests", tuple(f"ratelimit-{field}" for field in _FIELDS)),
)
_VALUE_CHARS = 400
_SCOPE_CHARS = 40
_WINDOW = re.compile(r"[0-9]{1,3}[hd](_[a-z0-9]{1,20})?")
_WINDOW_PREFIXES = (("five_hour", "5h"), ("seven_day", "7d"))


@dataclass(frozen=True, slots=True)
class Subscription:
    """What a subscription says about the one of its windows that decided."""

    status: str
    """``allowed``, ``allowed_warning`` or ``rejected``."""
    scope: str
    """``5h``, ``7d``, ``7d_opus``; empty if not told."""
    reset_s: float | None


class Headers:
    """Read once, case-blind, keeping only what matters here."""

    __slots__ = ("_now_s", "_wall_s", "values")

    def __init__(self, lines: HeaderLines | None, *, wall_s: float | None = None) -> None:
        self.values: dict[str, str] = {}
        self._wall_s = wall_s
        self._now_s: float | None = None
        for name, value in _relevant(lines):
            before = self.values.get(name)
            self.values[name] = (value if before is None else f"{before}, {value}")[:_VALUE_CHARS]

    @property
    def silent(self) -> bool:
        """True if there is nothing to read but perhaps the date."""
        return not self.values or (len(self.values) == 1 and "date" in self.values)

    @property
    def now_s(self) -> float | None:
        """When the provider wrote this answer, in seconds since 1970; by our clock if it does not say."""
        if self._now_s is None:
            dates = [then_s for part in self.parts("date") if (then_s := moment_s(part)) is not None]
            self._now_s = min(dates, default=self._wall_s)
        return self._now_s

    def retry_after_s(self) -> float | None:
        """The wait asked for. Milliseconds win: beside them, ``retry-after`` is the same wait rounded up."""
        millis = longest_s(
            None if (value := number(part)) is None else value / 1000 for part in self.parts("retry-after-ms")
        )
        if millis is not None:
            return millis
        return longest_s(until_s(part, self.now_s) for part in self.parts("retry-after"))

    def parts(self, name: str) -> list[str]:
        """The values of a header, however it was repeated.

        An HTTP date falls in two, a weekday that says nothing and a date that is complete without it.
        """
        value = self.values.get(name)
        return [] if value is None else value.split(",")

    def words(self, name: str) -> list[str]:
        return sorted(part.strip().lower() for part in self.parts(name))

    def buckets(self) -> tuple[Bucket, ...]:
        """The quotas that the answer speaks of, in a fixed order."""
        if self.silent:
            return ()
        found: dict[str, Bucket] = {}
        for name, fields in _ROWS:
            bucket = self._bucket(name, *fields) if fields[1] in self.values else None
            if bucket is not None:
                found.setdefault(name, bucket)
        if "ratelimit" in self.values:
            told = parse_ratelimit(self.values["ratelimit"], self.values.get("ratelimit-policy", ""))
            found = {**told, **found}
        quota = self._bucket("quota", "", "x-quota-remaining", "")
        return (*found.values(), quota) if quota is not None else tuple(found.values())

    def _bucket(self, name: str, limit_at: str, remaining_at: str, reset_at: str) -> Bucket | None:
        # Of two values the tighter one: it is the one that refuses.
        remaining = _least(self.parts(remaining_at), at_least=None)
        if remaining is None:
            return None
        limit = _least(self.parts(limit_at), at_least=1)
        remaining = max(0.0, remaining if limit is None else min(remaining, limit))
        # Until it is full. Past means full now, which is an answer; too far away means nothing.
        spans = [span for part in self.parts(reset_at) if (span := until_s(part, self.now_s)) is not None]
        reset_s = max((max(0.0, span) for span in spans if span <= LONGEST_WAIT_S), default=None)
        return Bucket(name, limit, remaining, reset_s)

    def subscription(self) -> Subscription | None:
        """How the windows of an Anthropic subscription stand, if this is one."""
        words = self.words(f"{_UNIFIED}status")
        status = next((word for word in ("rejected", "allowed_warning", *words) if word in words), "")
        if not status:
            return None
        scope = self._representative_claim() or self._scope_with(status)
        # The reset without a window's name belongs to the claim that represents the others.
        names = (f"{_UNIFIED}reset", f"{_UNIFIED}{scope}-reset")
        waits = (longest_s(until_s(part, self.now_s) for part in self.parts(name)) for name in names)
        return Subscription(status, scope, next((wait for wait in waits if wait is not None), None))

    def _representative_claim(self) -> str:
        for claim in self.words(f"{_UNIFIED}representative-claim"):
            for long, short in _WINDOW_PREFIXES:
                if claim.startswith(long):
                    return (short + claim.removeprefix(long))[:_SCOPE_CHARS]
        return ""

    def _scope_with(self, status: str) -> str:
        """The longest window with that status: it is the last one to open again."""
        for short in ("7d", "5h"):
            if status in self.words(f"{_UNIFIED}{short}-status"):
                return short
        return ""

    def full_window(self) -> str:
        """Which window of a ChatGPT plan is full, as ``5h`` or ``7d``; empty if none is or none is named."""
        for which in ("secondary", "primary"):
            used = number(self.values.get(f"x-codex-{which}-used-percent"))
            minutes = number(self.values.get(f"x-codex-{which}-window-minutes"))
            if minutes is not None and minutes >= 30 and used is not None and used >= 100:
                return window_name(minutes * 60)
        return ""

    def windows(self) -> tuple[WindowReading, ...]:
        """How full each window of a subscription is, as far as it is said."""
        return () if self.silent else (*self._unified_windows(), *self._codex_windows())

    def _unified_windows(self) -> Iterator[WindowReading]:
        for name in self.values:
            if not (name.startswith(_UNIFIED) and name.endswith("-utilization")):
                continue
            window = name.removeprefix(_UNIFIED).removesuffix("-utilization")
            used = _least(self.parts(name), at_least=0)
            if used is not None and used <= 10 and _WINDOW.fullmatch(window):
                said = [until_s(part, self.now_s) for part in self.parts(f"{_UNIFIED}{window}-reset")]
                resets = longest_s(said)
                if resets is None and any(wait is not None and wait < 0 for wait in said):
                    resets = 0.0  # it is over, which is known
                yield WindowReading(window.replace("_", " "), used, resets)

    def _codex_windows(self) -> Iterator[WindowReading]:
        for which in ("primary", "secondary"):
            used = number(self.values.get(f"x-codex-{which}-used-percent"))
            minutes = number(self.values.get(f"x-codex-{which}-window-minutes"))
            if used is None or not 0 <= used <= 1000 or minutes is None or not 60 <= minutes <= 60 * 24 * 31:
                continue
            left_s = number(self.values.get(f"x-codex-{which}-reset-after-seconds"))
            at_s, now_s = number(self.values.get(f"x-codex-{which}-reset-at")), self.now_s
            if left_s is None and at_s is not None and now_s is not None:
                left_s = max(0.0, at_s - now_s)
            known = left_s is not None and 0 <= left_s <= 60 * minutes
            yield WindowReading(window_name(minutes * 60), used / 100, left_s if known else None)

    @property
    def forbids_retry(self) -> bool:
        return "false" in self.words("x-should-retry")


def window_name(length_s: float) -> str:
    """
    >>> window_name(18_000), window_name(604_800)
    ('5h', '7d')
    """
    hours = round(length_s / 3600)
    return f"{hours // 24}d" if hours >= 24 else f"{hours}h"


def _relevant(lines: HeaderLines | None) -> Iterator[tuple[str, str]]:
    """What matters, names in lower case."""
    for name, value in _pairs(lines):
        text = name if isinstance(name, str) else _text(name)
        # Most headers are dropped here, so the first look is a short one.
        if text[:_LOOK_CHARS].lower() in _STARTS:
            lowered = text.lower()
            if lowered.startswith(_PREFIXES) and isinstance(value, str | bytes):
                yield lowered, _text(value)


def _pairs(lines: HeaderLines | None) -> Iterable[tuple[object, object]]:
    if lines is None:
        return ()
    if isinstance(lines, Mapping) or hasattr(lines, "items"):
        return lines.items()
    given: Iterable[object] = lines
    return [(pair[0], pair[1]) for pair in given if isinstance(pair, tuple | list) and len(pair) == 2]


def _text(raw: object) -> str:
    """Empty for what is neither text nor bytes, and so is not a header."""
    if isinstance(raw, str):
        return raw
    return raw.decode("latin-1") if isinstance(raw, bytes) else ""


def _least(parts: list[str], *, at_least: float | None) -> float | None:
    values = (number(part) for part in parts)
    sane = (value for value in values if value is not None and (at_least is None or value >= at_least))
    return min(sane, default=None)
