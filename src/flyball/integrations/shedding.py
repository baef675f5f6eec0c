"""What a server says when it is full, and what it tells the limiter about its own answers.

The refusal goes to strangers, so it names no project, no process and no holder: only when to come back.
An answer of 500 and above, or an error of the application, is told as a server's error. It is never a
throttle, not even a 503: what is limited here is the application itself, and a limiter that listened to its
own refusals would close for good.
"""

from __future__ import annotations

import json
import math

from flyball.core.signals import Certainty, Signal, SignalKind
from flyball.errors import RefusedError

LEAST_WAIT_S, MOST_WAIT_S = 1, 3600


def refusal(error: RefusedError) -> tuple[list[tuple[str, str]], bytes]:
    """Headers and body (RFC 9457) of a 503."""
    wait_s = min(MOST_WAIT_S, max(LEAST_WAIT_S, math.ceil(error.retry_after_s or 0)))
    problem = {
        "type": "about:blank",
        "title": "Service Unavailable",
        "status": 503,
        "detail": f"Too many requests are being served; try again in {wait_s} s.",
        "reason": error.reason,
    }
    body = json.dumps(problem).encode()
    headers = [
        ("content-type", "application/problem+json"),
        ("content-length", str(len(body))),
        ("retry-after", str(wait_s)),
        ("cache-control", "no-store"),
    ]
    return headers, body


def status_signal(status: int | None) -> Signal:
    """What an application's own answer means; None: it raised, or began none."""
    if status is None:
        return Signal(SignalKind.SERVER_ERROR, detail="no answer", certainty=Certainty.GUESSED)
    if status >= 500:
        return Signal(SignalKind.SERVER_ERROR, detail=f"HTTP {status}")
    return Signal(SignalKind.OK, detail=f"HTTP {status}")
