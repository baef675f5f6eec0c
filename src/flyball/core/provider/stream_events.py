"""Errors in the middle of an answer that began well: what a stream of server-sent events says of them.

A stream has its 200 long before the work is done. What goes wrong after that comes as one more event:

    Anthropic   {"type": "error", "error": {"type": "overloaded_error", "message"}}
    OpenAI      {"error": {"type", "code", "message"}}; of responses {"type": "error", "code", "message"} and
                {"type": "response.failed", "response": {"error": {"code", "message"}}}
    Gemini      {"error": {"code": 503, "status": "UNAVAILABLE", "message"}}

``SseErrorScanner`` is fed the bytes as they come and cut as they come. It keeps the event that is not over
yet, and of one that is longer than ``EVENT_BYTES`` nothing: errors are short. Whether an event is an error is
decided by its fields; the same word in a text is escaped there and is not even parsed.

``TokenCounter`` notes what a call really used, as the provider's own answer says: a whole body, or the events
of a stream.

    Anthropic   "usage": {"input_tokens", "cache_creation_input_tokens", "output_tokens"}; in a stream first
                inside "message", then with the output so far
    OpenAI      "usage": {"prompt_tokens", "completion_tokens"}; of responses {"input_tokens",
                "output_tokens"}, in a stream inside "response"
    Gemini      "usageMetadata": {"promptTokenCount", "candidatesTokenCount", "thoughtsTokenCount"}
    Bedrock     "usage": {"inputTokens", "cacheWriteInputTokens", "outputTokens"}

What was read from a cache counts for nothing here: it does not count against the input limits either.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping

from flyball.core.pool.settings import AMOUNT_LIMIT
from flyball.core.provider.http_response import from_event
from flyball.core.signals import Signal

MARK = b'"usage'
"""Whatever tells of it has this. Inside a JSON string its quote would be escaped."""
_INSIDE = ("message", "response")
_INPUT = (
    *("input_tokens", "cache_creation_input_tokens", "prompt_tokens", "promptTokenCount"),
    *("inputTokens", "cacheWriteInputTokens"),
)
_OUTPUT = (
    *("output_tokens", "completion_tokens", "candidatesTokenCount", "thoughtsTokenCount"),
    "outputTokens",
)


class TokenCounter:
    """Adds up what one answer says. Later events of a stream say more, never less.

    >>> meter = TokenCounter()
    >>> meter.note({"type": "message_start", "message": {"usage": {"input_tokens": 25, "output_tokens": 1}}})
    >>> meter.note({"type": "message_delta", "usage": {"output_tokens": 15}})
    >>> meter.used
    {'input-tokens': 25.0, 'output-tokens': 15.0, 'tokens': 40.0}
    """

    __slots__ = ("_input", "_output", "_told")

    def __init__(self) -> None:
        self._input = self._output = 0.0
        self._told = False

    def note(self, said: object) -> None:
        """Anything a provider may have said; what tells of nothing changes nothing."""
        if not isinstance(said, Mapping):
            return
        for record in (said, *(said.get(name) for name in _INSIDE)):
            if isinstance(record, Mapping):
                self._add(record.get("usage"))
                self._add(record.get("usageMetadata"))

    def _add(self, usage: object) -> None:
        if isinstance(usage, Mapping):
            self._told = True
            self._input = max(self._input, sum(_count(usage.get(name)) for name in _INPUT))
            self._output = max(self._output, sum(_count(usage.get(name)) for name in _OUTPUT))

    @property
    def used(self) -> dict[str, float]:
        """By the names of windows; empty where nothing was said."""
        if not self._told:
            return {}
        both = self._input + self._output
        return {"input-tokens": self._input, "output-tokens": self._output, "tokens": both}


def _count(value: object) -> float:
    # However many of them are added up, the sum is an amount (see core/pool/settings.py).
    return float(value) if type(value) is int and 0 <= value < AMOUNT_LIMIT / 100 else 0.0


EVENT_BYTES = 64 * 1024
_MARK = b'"error"'
"""Every error has it, as a field or as its type. Inside a JSON string its quotes would be escaped."""
# Atomic, so that one "\r\n" is never taken for two ends of lines.
_BLANK_LINE = re.compile(rb"(?>\r\n|\r|\n){2}")
_ENDS = (b"\n\n", b"\n\r\n", b"\r\r")
_LINE_END = re.compile(rb"\r\n|\r|\n")
_REACH = 3
"""So many bytes of a blank line can have come before the rest of it."""


class SseErrorScanner:
    """Reads one stream. Feed it everything, in order; it never raises.

    >>> spotter = SseErrorScanner()
    >>> spotter.feed(b'event: error\\ndata: {"type": "error", "error": {"type": "overlo')
    >>> spotter.feed(b'aded_error", "message": "Overloaded"}}\\n\\n').kind.value
    'overloaded'
    """

    __slots__ = ("_event", "_overlong", "meter")

    def __init__(self) -> None:
        self._event = bytearray()
        self._overlong = False
        self.meter = TokenCounter()

    def feed(self, part: bytes) -> Signal | None:
        """The first error among the events that end in this part."""
        event = self._event
        event += part
        found, over = self._look() if _MARK in event or MARK in event else (None, _last_end(event))
        if over:
            self._overlong = False
            del event[:over]
        if len(event) > EVENT_BYTES:
            self._overlong = True
            del event[:-_REACH]
        return found

    def _look(self) -> tuple[Signal | None, int]:
        """The first error of the events that are over, and where the last of them ends."""
        found, start, event = None, 0, self._event
        for end in _BLANK_LINE.finditer(event):
            if not (self._overlong and start == 0):
                found = self._read_event(bytes(event[start : end.start()])) if found is None else found
            start = end.end()
        return found, start

    def end(self) -> Signal | None:
        """The stream is over: its last event may lack the blank line."""
        event, self._event = bytes(self._event), bytearray()
        return None if self._overlong else self._read_event(event)

    def _read_event(self, event: bytes) -> Signal | None:
        if _MARK not in event and MARK not in event:
            return None
        lines = (line.removeprefix(b"data:") for line in _LINE_END.split(event) if line.startswith(b"data:"))
        try:
            said = json.loads(b"\n".join(lines))
        except (ValueError, RecursionError):
            return None
        self.meter.note(said)
        return from_event(said) if isinstance(said, Mapping) and _MARK in event else None


def _last_end(stream: bytearray) -> int:
    """Where the last event ends that is over; 0 if none is. Most parts of a stream need no more than this."""
    return max(stream.rfind(end) + len(end) if end in stream else 0 for end in _ENDS)
