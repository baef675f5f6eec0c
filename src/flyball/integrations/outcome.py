"""What a library's answer or error means, without importing that library.

The SDKs of this world wrap one of a few shapes: a response with ``status_code`` and ``headers``, an error
that carries such a response, or an error of the connection. Read by shape and by class name; what has none
of these shapes is not about the provider and gets no meaning.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass

from flyball.core.provider.error_body import Body
from flyball.core.provider.http_response import from_http
from flyball.core.provider.rate_limit_headers import HeaderLines, Headers
from flyball.core.signals import Certainty, Signal, SignalKind
from flyball.errors import FlyballError, Throttled

_SLOW_NAMES = frozenset({"TimeoutException", "APITimeoutError", "Timeout", "TimeoutError"})
_LOST_NAMES = frozenset({"ConnectError", "APIConnectionError", "ConnectionError"})


@dataclass(frozen=True, slots=True)
class JudgedResponse:
    """What was said, and whether trying again was forbidden along with it."""

    signal: Signal
    forbidden: bool = False


def judge_http(status: int, headers: HeaderLines | None, body: Body = None) -> JudgedResponse:
    """Judge one HTTP answer by our clock."""
    forbidden = status >= 400 and Headers(headers).forbids_retry
    return JudgedResponse(from_http(status, headers, body, wall_s=time.time()), forbidden)


def no_answer_signal(error: Exception) -> Signal:
    """No answer came, or not in time. Only our side knows, and it cannot tell whose fault it is."""
    return Signal(SignalKind.TIMEOUT, detail=_words(error), certainty=Certainty.GUESSED)


def broken_signal(error: Exception) -> Signal:
    """The connection broke while it was used: no sign of load."""
    return Signal(SignalKind.SERVER_ERROR, detail=_words(error), certainty=Certainty.GUESSED)


def judge(thing: object) -> JudgedResponse | None:
    """Judge a value that a call returned or an error that it raised; None: nothing about the provider.

    >>> judge(TimeoutError("slow")).signal.kind
    <SignalKind.TIMEOUT: 'timeout'>
    >>> judge(KeyError("mine")) is judge("any value") is None
    True
    """
    if isinstance(thing, Throttled):
        return JudgedResponse(Signal(SignalKind.THROTTLED, thing.retry_after_s, detail=_words(thing)))
    if isinstance(thing, FlyballError):
        return None  # our own refusals are named like timeouts, but no provider said them
    for source in (thing, getattr(thing, "response", None)):
        status, headers = getattr(source, "status_code", None), getattr(source, "headers", None)
        if isinstance(status, int) and (headers is None or isinstance(headers, Mapping)):
            return judge_http(status, headers, _body(thing, source) if status >= 400 else None)
    if not isinstance(thing, Exception):
        return None
    names = {cls.__name__ for cls in type(thing).__mro__}
    return JudgedResponse(no_answer_signal(thing)) if names & (_SLOW_NAMES | _LOST_NAMES) else None


def _body(thing: object, source: object) -> Body:
    for holder, name in ((thing, "body"), (source, "content")):
        # A stream that was not read yet raises here, and is not ours to read.
        with suppress(Exception):
            found = getattr(holder, name, None)
            if isinstance(found, bytes | str | Mapping):
                return found
    return None


def _words(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"[:120]
