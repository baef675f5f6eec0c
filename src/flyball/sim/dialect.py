"""What a provider's requests and answers look like on the wire. No server, no clock: values in, values out.

A dialect says which paths are its own, how long an answer a request wants, and how yes and no are
spelled. The provider asks these questions only, so another vendor's API is another class beside these.

An answer comes in one piece or, where the request says ``"stream": true``, as server-sent events.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

DEFAULT_TOKENS = 50


@dataclass(frozen=True, slots=True)
class Reply:
    """One HTTP answer."""

    status: int
    body: Mapping[str, object]
    headers: Mapping[str, str] = field(default_factory=dict)
    events: Sequence[bytes] = ()
    """Server-sent events instead of the body."""

    def parts(self) -> Sequence[bytes]:
        """What to write, piece by piece; never empty."""
        return self.events or (json.dumps(self.body).encode(),)


def event(data: Mapping[str, object] | str, name: str = "") -> bytes:
    """One server-sent event.

    >>> event({"type": "ping"}, "ping")
    b'event: ping\\ndata: {"type": "ping"}\\n\\n'
    """
    said = data if isinstance(data, str) else json.dumps(data)
    return (f"event: {name}\n" * bool(name) + f"data: {said}\n\n").encode()


def typed_events(*datas: Mapping[str, object]) -> tuple[bytes, ...]:
    """Events named after their own type."""
    return tuple(event(data, str(data["type"])) for data in datas)


class Dialect(Protocol):
    """One vendor's way of speaking. ``number`` makes ids that never repeat."""

    name: str

    def answers(self, path: str) -> bool: ...

    def tokens(self, body: Mapping[str, object]) -> int:
        """How many tokens of answer this request wants: they decide how long it takes."""

    def served(self, body: Mapping[str, object], *, number: int) -> Reply: ...

    def throttled(self, *, number: int, retry_after_s: float | None) -> Reply: ...

    def invalid(self, words: str, *, number: int) -> Reply: ...


class Anthropic:
    """The Messages API."""

    name = "anthropic"

    def answers(self, path: str) -> bool:
        return path.partition("?")[0] == "/v1/messages"

    def tokens(self, body: Mapping[str, object]) -> int:
        wanted = body.get("max_tokens")
        return wanted if isinstance(wanted, int) and wanted > 0 else DEFAULT_TOKENS

    def served(self, body: Mapping[str, object], *, number: int) -> Reply:
        message: dict[str, object] = {
            "id": f"msg_fake{number:06d}",
            "type": "message",
            "role": "assistant",
            "model": str(body.get("model", "fake-model")),
            "content": [{"type": "text", "text": "Done."}],
            "stop_reason": "end_turn",
            "stop_sequence": None,
            "usage": {"input_tokens": 200, "output_tokens": self.tokens(body)},
        }
        events = self._events(message) if body.get("stream") is True else ()
        return Reply(200, message, {"request-id": _request_id(number)}, events)

    def _events(self, message: Mapping[str, object]) -> tuple[bytes, ...]:
        text = {"type": "text_delta", "text": "Done."}
        return typed_events(
            {"type": "message_start", "message": {**message, "content": [], "stop_reason": None}},
            {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
            {"type": "content_block_delta", "index": 0, "delta": text},
            {"type": "content_block_stop", "index": 0},
            {
                "type": "message_delta",
                "delta": {"stop_reason": "end_turn", "stop_sequence": None},
                "usage": message["usage"],
            },
            {"type": "message_stop"},
        )

    def throttled(self, *, number: int, retry_after_s: float | None) -> Reply:
        words = "Number of concurrent connections has exceeded your rate limit. Please try again later."
        reply = self._error(429, "rate_limit_error", words, number)
        if retry_after_s is None:
            return reply
        return Reply(reply.status, reply.body, {**reply.headers, "retry-after": f"{retry_after_s:g}"})

    def invalid(self, words: str, *, number: int) -> Reply:
        return self._error(400, "invalid_request_error", words, number)

    def _error(self, status: int, kind: str, words: str, number: int) -> Reply:
        body = {
            "type": "error",
            "error": {"type": kind, "message": words},
            "request_id": _request_id(number),
        }
        return Reply(status, body, {"request-id": _request_id(number)})


def _request_id(number: int) -> str:
    return f"req_fake{number:06d}"
