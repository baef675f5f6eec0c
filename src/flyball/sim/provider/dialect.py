"""What a provider's requests and answers look like on the wire. No server, no clock: values in, values out.

A dialect says which paths are its own, how long an answer a request wants, and what answers and refusals
look like. The provider needs nothing else, so another vendor's API is another class beside these.

An answer comes in one piece or, where the request says ``"stream": true``, as server-sent events. It is a few
words, or a tool call where the prompt asks for one (``tool_calls.py``). The errors are modelled on the
vendors' public documentation and on what their clients accept.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from flyball.core.signals import SignalKind
from flyball.sim.provider.tool_calls import next_calls

ANSWER = "Done."
DEFAULT_TOKENS = 50
MOST_TOKENS = 4096
"""A request for more means a ceiling, as agents' requests do, and gets an answer of the usual length."""


@dataclass(frozen=True, slots=True)
class ProviderReply:
    """One HTTP answer."""

    status: int
    body: Mapping[str, object]
    headers: Mapping[str, str] = field(default_factory=dict)
    events: Sequence[bytes] = ()
    """Server-sent events instead of the body."""
    cut: bool = False
    """It breaks off in the middle."""

    def parts(self) -> Sequence[bytes]:
        """What to write, piece by piece; never empty."""
        whole = self._whole()
        if not self.cut:
            return whole
        return whole[: (len(whole) + 1) // 2] if len(whole) > 1 else (whole[0][: len(whole[0]) // 2],)

    @property
    def length(self) -> int | None:
        """How many bytes are promised; None: up to the end of the connection. A cut one promises it all."""
        return sum(map(len, self._whole())) if self.cut or not self.events else None

    def _whole(self) -> Sequence[bytes]:
        return self.events or (json.dumps(self.body).encode(),)


def answer_tokens(wanted: object) -> int:
    """How long an answer is to be, by the limit that the request names."""
    return wanted if isinstance(wanted, int) and 0 < wanted <= MOST_TOKENS else DEFAULT_TOKENS


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
    """One vendor's API. ``number`` makes ids that never repeat."""

    name: str

    def handles(self, path: str) -> bool: ...

    def request_body(self, path: str, body: Mapping[str, object]) -> Mapping[str, object]:
        """The body of the request, with what only its path says."""

    def tokens(self, body: Mapping[str, object]) -> int:
        """How many tokens of answer this request wants: they decide how long it takes."""

    def answer(self, body: Mapping[str, object], *, number: int) -> ProviderReply: ...

    def throttle(self, *, number: int, retry_after_s: float | None) -> ProviderReply: ...

    def refusal(
        self, kind: SignalKind, *, number: int, retry_after_s: float | None, wall_s: float
    ) -> ProviderReply:
        """Any refusal; ``wall_s`` is for APIs that write a reset as a moment."""

    def invalid(self, words: str, *, number: int) -> ProviderReply: ...


_ANTHROPIC = {
    SignalKind.OVERLOADED: (529, "overloaded_error", "Overloaded"),
    SignalKind.SERVER_ERROR: (500, "api_error", "Internal server error"),
    SignalKind.AUTH: (401, "authentication_error", "invalid x-api-key"),
    SignalKind.CREDIT_GONE: (
        400,
        "invalid_request_error",
        "Your credit balance is too low to access the Anthropic API. "
        "Please go to Plans & Billing to upgrade or purchase credits.",
    ),
    SignalKind.WINDOW_USED_UP: (
        429,
        "rate_limit_error",
        "This request would exceed your account's rate limit. Please try again later.",
    ),
}


class Anthropic:
    """The Messages API."""

    name = "anthropic"

    def handles(self, path: str) -> bool:
        return path.partition("?")[0] == "/v1/messages"

    def request_body(self, path: str, body: Mapping[str, object]) -> Mapping[str, object]:  # noqa: ARG002 - the port
        return body

    def tokens(self, body: Mapping[str, object]) -> int:
        return answer_tokens(body.get("max_tokens"))

    def answer(self, body: Mapping[str, object], *, number: int) -> ProviderReply:
        blocks: list[Mapping[str, object]] = [
            {
                "type": "tool_use",
                "id": f"toolu_fake{number:06d}{f'_{at}' if at else ''}",
                "name": call.tool,
                "input": call.given,
            }
            for at, call in enumerate(next_calls(body))
        ]
        reason = "tool_use" if blocks else "end_turn"
        blocks = blocks or [{"type": "text", "text": ANSWER}]
        message: dict[str, object] = {
            "id": f"msg_fake{number:06d}",
            "type": "message",
            "role": "assistant",
            "model": str(body.get("model", "fake-model")),
            "content": blocks,
            "stop_reason": reason,
            "stop_sequence": None,
            "usage": {"input_tokens": 200, "output_tokens": self.tokens(body)},
        }
        events = self._events(message, blocks) if body.get("stream") is True else ()
        return ProviderReply(200, message, {"request-id": _request_id(number)}, events)

    def _events(
        self, message: Mapping[str, object], blocks: Sequence[Mapping[str, object]]
    ) -> tuple[bytes, ...]:
        content: list[Mapping[str, object]] = []
        for index, block in enumerate(blocks):
            begun: Mapping[str, object] = {**block, "text": ""}
            delta: Mapping[str, object] = {"type": "text_delta", "text": ANSWER}
            if block["type"] == "tool_use":
                begun = {**block, "input": {}}
                delta = {"type": "input_json_delta", "partial_json": json.dumps(block["input"])}
            content += [
                {"type": "content_block_start", "index": index, "content_block": begun},
                {"type": "content_block_delta", "index": index, "delta": delta},
                {"type": "content_block_stop", "index": index},
            ]
        return typed_events(
            {"type": "message_start", "message": {**message, "content": [], "stop_reason": None}},
            *content,
            {
                "type": "message_delta",
                "delta": {"stop_reason": message["stop_reason"], "stop_sequence": None},
                "usage": message["usage"],
            },
            {"type": "message_stop"},
        )

    def throttle(self, *, number: int, retry_after_s: float | None) -> ProviderReply:
        words = "Number of concurrent connections has exceeded your rate limit. Please try again later."
        return self._error(429, "rate_limit_error", words, number, retry_after(retry_after_s))

    def refusal(
        self, kind: SignalKind, *, number: int, retry_after_s: float | None, wall_s: float
    ) -> ProviderReply:
        if kind is SignalKind.THROTTLED:
            return self.throttle(number=number, retry_after_s=retry_after_s)
        headers = retry_after(retry_after_s) if kind is SignalKind.OVERLOADED else {}
        if kind is SignalKind.WINDOW_USED_UP:
            headers = _window(retry_after_s, wall_s)
        return self._error(*_ANTHROPIC[kind], number, headers)

    def invalid(self, words: str, *, number: int) -> ProviderReply:
        return self._error(400, "invalid_request_error", words, number, {})

    def _error(
        self, status: int, kind: str, words: str, number: int, headers: Mapping[str, str]
    ) -> ProviderReply:
        body = {
            "type": "error",
            "error": {"type": kind, "message": words},
            "request_id": _request_id(number),
        }
        return ProviderReply(status, body, {"request-id": _request_id(number), **headers})


def retry_after(seconds: float | None) -> Mapping[str, str]:
    return {} if seconds is None else {"retry-after": f"{seconds:.10g}"}


def _window(reset_s: float | None, wall_s: float) -> Mapping[str, str]:
    """A subscription whose five hours are used up; the week's are not."""
    unified = {
        "status": "rejected",
        "representative-claim": "five_hour",
        "5h-status": "rejected",
        "5h-utilization": "1.0",
        "7d-status": "allowed",
        "7d-utilization": "0.4",
        "overage-status": "rejected",
        "overage-disabled-reason": "org_level_disabled",
    }
    if reset_s is not None:
        at = str(int(wall_s + reset_s))
        unified |= {"reset": at, "5h-reset": at, "7d-reset": str(int(wall_s) + 3 * 86400)}
    named = {f"anthropic-ratelimit-unified-{name}": value for name, value in unified.items()}
    return {**named, **retry_after(reset_s), "x-should-retry": "false"}


def _request_id(number: int) -> str:
    return f"req_fake{number:06d}"
