"""The headers of one answer that say something about load: when to come back, and what is left.

    anthropic-ratelimit-{requests,tokens,input-tokens,output-tokens}-{limit,remaining,reset}
    anthropic-ratelimit-unified-{status,reset,representative-claim}       the windows of a subscription
    x-ratelimit-{limit,remaining,reset}-{requests,tokens}                 OpenAI and those who speak like it
    ratelimit, ratelimit-policy                                           the IETF's draft (``ratelimit.py``)
    ratelimit-{limit,remaining,reset}                                     the same, as it was before
    x-codex-{primary,secondary}-{used-percent,window-minutes}             the windows of a ChatGPT plan
    retry-after, retry-after-ms, x-quota-remaining, x-should-retry

Only shapes are judged here; ``answer.py`` says what they mean. A header given twice and a header that a proxy
joined with commas are the same thing. Nothing raises, and an answer without any of these costs a few
microseconds, because that is what most answers are.

Moments are counted from the answer's own ``Date``: the resets were written by the same clock.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from flyball.core.ratelimit import COUNTED, told_buckets
from flyball.core.signals import Bucket
from flyball.core.spans import (
    LONGEST_WAIT_S,
    longest_s,
    moment_s,
    number,
    until_s,
)

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
        millis = longest_s(_thousandth(number(part)) for part in self.parts("retry-after-ms"))
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
            told = told_buckets(self.values["ratelimit"], self.values.get("ratelimit-policy", ""))
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
        return Bucket(name, limit, remaining, self._reset_s(reset_at))

    def _reset_s(self, name: str) -> float | None:
        """Until the bucket is full. Past means full now, which is an answer; too far away means nothing."""
        spans = [span for part in self.parts(name) if (span := until_s(part, self.now_s)) is not None]
        return max((max(0.0, span) for span in spans if span <= LONGEST_WAIT_S), default=None)

    def subscription(self) -> Subscription | None:
        """How the windows of an Anthropic subscription stand, if this is one."""
        words = self.words(f"{_UNIFIED}status")
        status = next((word for word in ("rejected", "allowed_warning", *words) if word in words), "")
        if not status:
            return None
        scope = self._claimed() or self._scope_with(status)
        # The reset without a window's name belongs to the claim that represents the others.
        names = (f"{_UNIFIED}reset", f"{_UNIFIED}{scope}-reset")
        waits = (longest_s(until_s(part, self.now_s) for part in self.parts(name)) for name in names)
        return Subscription(status, scope, next((wait for wait in waits if wait is not None), None))

    def _claimed(self) -> str:
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
            hours = round((minutes or 0.0) / 60)
            if hours > 0 and used is not None and used >= 100:
                return f"{hours // 24}d" if hours >= 24 else f"{hours}h"
        return ""

    @property
    def forbids_retry(self) -> bool:
        return "false" in self.words("x-should-retry")


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
    """Empty for what is neither text nor bytes, and so is no header."""
    if isinstance(raw, str):
        return raw
    return raw.decode("latin-1") if isinstance(raw, bytes) else ""


def _thousandth(millis: float | None) -> float | None:
    return None if millis is None else millis / 1000


def _least(parts: list[str], *, at_least: float | None) -> float | None:
    values = (number(part) for part in parts)
    sane = (value for value in values if value is not None and (at_least is None or value >= at_least))
    return min(sane, default=None)
