"""What the body of a failed answer says: names from fields made for them, and one message.

    Anthropic   {"type": "error", "error": {"type", "message", "details": {"error_code"}}}
    OpenAI      {"error": {"type", "code", "message", "resets_at", "resets_in_seconds"}}; Azure's code: "429"
    Gemini      {"error": {"code", "status", "message", "details": [QuotaFailure, RetryInfo, ErrorInfo]}},
                also alone in a list, as its streams send it; older services say {"errors": [{"reason"}]}

Liberal in shape: any of these fields may be missing, of another type, or one level up. Strict in meaning:
only JSON counts. A page of HTML, half a body or plain text says nothing. Nothing raises, and no more than
``BODY_CHARS`` is looked at. What the names mean is ``http_response.py``'s to say.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import cast

from flyball.core.durations import duration_s, longest_s, moment_s, number

Body = bytes | str | Mapping[str, object] | None

BODY_CHARS = 64 * 1024
"""Error bodies are a few hundred bytes; what is longer is a page, and parsing it would only cost."""
MESSAGE_CHARS = 2000
ITEMS = 16
"""How many entries of a list are looked at."""

_NAME_FIELDS = ("code", "type", "status", "reason", "error_code", "__type")


@dataclass(frozen=True, slots=True)
class ErrorBody:
    """An error as its provider describes it."""

    names: frozenset[str]
    """Error types, codes and reasons, in lower case."""
    label: str
    """The most telling of the names, as the provider spells it."""
    message: str
    resets_at_s: float | None = None
    """Seconds since 1970 at which a window opens again."""
    resets_in_s: float | None = None
    delay_s: float | None = None
    """Gemini's ``RetryInfo``."""
    code: int | None = None
    """An HTTP status that the error itself names as a number."""
    quota_ids: tuple[str, ...] = ()
    quota_metrics: tuple[str, ...] = ()


def read_error(body: Body) -> ErrorBody | None:
    """The error in a body, or None where there is none to be understood."""
    whole = _decode(body)
    if whole is None:
        return None
    inner = _mapping(whole.get("error"))
    error = whole if inner is None else inner
    details = list(_details(error))
    named = [name for part in (error, *details) for name in _names(part)]
    resets_at, code = error.get("resets_at"), number(error.get("code"))
    violations = [each for part in details for each in _mappings(part.get("violations"))]
    return ErrorBody(
        names=frozenset(name.lower() for name in named),
        label=next((name for name in named if not name.isdigit()), ""),
        message=_message(error, whole),
        resets_at_s=moment_s(resets_at) if isinstance(resets_at, str) else number(resets_at),
        resets_in_s=number(error.get("resets_in_seconds")),
        delay_s=longest_s(duration_s(text) for part in details for text in _texts(part, "retryDelay")),
        code=int(code) if code is not None and 400 <= code < 600 else None,
        quota_ids=tuple(text for each in violations for text in _texts(each, "quotaId")),
        quota_metrics=tuple(text for each in violations for text in _texts(each, "quotaMetric")),
    )


def _decode(body: object) -> Mapping[str, object] | None:
    if isinstance(body, bytes):
        body = body[:BODY_CHARS].decode("utf-8", "replace")
    if isinstance(body, str):
        try:
            # Deep nesting is a RecursionError; a number of thousands of digits is a ValueError.
            body = json.loads(body[:BODY_CHARS].lstrip("\ufeff"))
        except (ValueError, RecursionError):
            return None
    if isinstance(body, list):
        body = body[0] if body else None
    return _mapping(body)


def _details(error: Mapping[str, object]) -> Iterator[Mapping[str, object]]:
    """``details`` is a list at Google and one object at Anthropic; ``errors`` is Google's older list."""
    one = _mapping(error.get("details"))
    if one is not None:
        yield one
    yield from _mappings(error.get("details"))
    yield from _mappings(error.get("errors"))


def _names(part: Mapping[str, object]) -> Iterator[str]:
    for field in _NAME_FIELDS:
        for text in _texts(part, field):
            yield text.rpartition("#")[2][:80]  # Amazon puts a namespace before a "#"


def _message(error: Mapping[str, object], whole: Mapping[str, object]) -> str:
    for part, field in ((error, "message"), (whole, "error"), (whole, "detail"), (whole, "message")):
        for text in _texts(part, field):
            return text[:MESSAGE_CHARS]
    return ""


def _texts(part: Mapping[str, object], field: str) -> Iterator[str]:
    """The field's text, if it is text."""
    value = part.get(field)
    if isinstance(value, str) and value:
        yield value


def _mappings(value: object) -> Iterator[Mapping[str, object]]:
    for item in value[:ITEMS] if isinstance(value, list | tuple) else ():
        found = _mapping(item)
        if found is not None:
            yield found


def _mapping(value: object) -> Mapping[str, object] | None:
    return cast("Mapping[str, object]", value) if isinstance(value, Mapping) else None
