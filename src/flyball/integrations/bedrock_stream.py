"""What the streams of Amazon Bedrock tell: errors in the middle of an answer, and what the call used.

They are events in a binary frame of Amazon's own, which botocore reads. An error is an event of its own kind:

    exception   throttlingException, serviceUnavailableException, internalServerException, ...
    metadata    {"usage": {"inputTokens", "outputTokens"}}, of ``converse``
    chunk       {"bytes": BASE64}, of ``invoke``: an event as the model's maker writes it
"""

from __future__ import annotations

import json
from base64 import b64decode
from collections.abc import Mapping
from typing import Any

from botocore.eventstream import EventStreamBuffer

from flyball.core.provider.stream_events import TokenCounter
from flyball.core.signals import Signal, SignalKind
from flyball.integrations.response_stream import ResponseListener, listener_for
from flyball.integrations.urllib3_body import plain_headers

_KINDS = {
    "throttlingException": SignalKind.THROTTLED,
    "serviceUnavailableException": SignalKind.OVERLOADED,
    "internalServerException": SignalKind.SERVER_ERROR,
    "modelStreamErrorException": SignalKind.SERVER_ERROR,
    "modelTimeoutException": SignalKind.TIMEOUT,
}


def listener_for_answer(headers: Mapping[str, str]) -> ResponseListener:
    """What listens to the body of a good answer of any service of AWS."""
    if headers.get("content-type", "").startswith("application/vnd.amazon.eventstream"):
        return _EventFrames()
    return listener_for(plain_headers(headers))


class _EventFrames:
    """Reads the binary frames in which AWS sends events."""

    finished = False

    def __init__(self) -> None:
        self._buffer: Any = EventStreamBuffer()  # type: ignore[no-untyped-call, unused-ignore]
        self._meter = TokenCounter()

    def hear(self, part: bytes) -> Signal | None:
        if self._buffer is None:
            return None
        found = None
        try:
            self._buffer.add_data(part)
            for event in self._buffer:
                found = found or self._read(event.headers, event.payload)
        except Exception:  # not in this frame, or broken: the caller will find out
            self._buffer = None
        return found

    def _read(self, headers: Mapping[str, Any], payload: bytes) -> Signal | None:
        name = str(headers.get(":exception-type", ""))
        if name:
            kind = _KINDS.get(name)
            return None if kind is None else Signal(kind, detail=f"mid-stream {name}")
        said = json.loads(payload) if payload else None
        if isinstance(said, Mapping) and isinstance(said.get("bytes"), str):
            said = json.loads(b64decode(said["bytes"]))
        self._meter.note(said)
        return None

    def end(self) -> Signal | None:
        return None

    @property
    def used(self) -> Mapping[str, float]:
        return self._meter.used
