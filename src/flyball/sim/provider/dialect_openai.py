"""OpenAI's API: chat completions and responses, in one piece or as server-sent events."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

from flyball.core.signals import SignalKind
from flyball.sim.provider.dialect import (
    ANSWER,
    ProviderReply,
    answer_tokens,
    event,
    retry_after,
    typed_events,
)
from flyball.sim.provider.tool_calls import ToolCall, next_call

_LIMITS = ("max_completion_tokens", "max_output_tokens", "max_tokens")
_ERRORS = {
    SignalKind.OVERLOADED: (
        503,
        "server_error",
        "server_is_overloaded",
        "Our servers are currently overloaded. Please try again later.",
    ),
    SignalKind.SERVER_ERROR: (
        500,
        "server_error",
        None,
        "The server had an error while processing your request. Sorry about that!",
    ),
    SignalKind.AUTH: (401, "invalid_request_error", "invalid_api_key", "Incorrect API key provided."),
    SignalKind.CREDIT_GONE: (
        429,
        "insufficient_quota",
        "insufficient_quota",
        "You exceeded your current quota, please check your plan and billing details.",
    ),
    SignalKind.WINDOW_USED_UP: (429, "usage_limit_reached", None, "The usage limit has been reached"),
}


class _OpenAI:
    name = "openai"
    path = ""

    def handles(self, path: str) -> bool:
        return path.partition("?")[0] == self.path

    def request_body(self, path: str, body: Mapping[str, object]) -> Mapping[str, object]:  # noqa: ARG002 - the port
        return body

    def tokens(self, body: Mapping[str, object]) -> int:
        return answer_tokens(next((body[name] for name in _LIMITS if name in body), None))

    def throttle(self, *, number: int, retry_after_s: float | None) -> ProviderReply:
        words = "Rate limit reached for requests. Please try again later."
        reply = _error(429, "requests", "rate_limit_exceeded", words, number)
        return ProviderReply(reply.status, reply.body, {**reply.headers, **retry_after(retry_after_s)})

    def refusal(
        self, kind: SignalKind, *, number: int, retry_after_s: float | None, wall_s: float
    ) -> ProviderReply:
        if kind is SignalKind.THROTTLED:
            return self.throttle(number=number, retry_after_s=retry_after_s)
        headers: Mapping[str, str] = retry_after(retry_after_s) if kind is SignalKind.OVERLOADED else {}
        more: Mapping[str, object] = {}
        if kind is SignalKind.WINDOW_USED_UP and retry_after_s is not None:
            at = int(wall_s + retry_after_s)
            more = {"plan_type": "plus", "resets_at": at, "resets_in_seconds": int(retry_after_s)}
            window = {"used-percent": "100.0", "window-minutes": "300", "reset-at": str(at)}
            headers = {f"x-codex-primary-{name}": value for name, value in window.items()}
        reply = _error(*_ERRORS[kind], number, more)
        return ProviderReply(reply.status, reply.body, {**reply.headers, **headers})

    def invalid(self, words: str, *, number: int) -> ProviderReply:
        return _error(400, "invalid_request_error", None, words, number)


class ChatCompletions(_OpenAI):
    """``POST /v1/chat/completions``."""

    path = "/v1/chat/completions"

    def answer(self, body: Mapping[str, object], *, number: int) -> ProviderReply:
        tokens = self.tokens(body)
        usage = {"prompt_tokens": 200, "completion_tokens": tokens, "total_tokens": 200 + tokens}
        head = {
            "id": f"chatcmpl-fake{number:06d}",
            "created": 0,
            "model": str(body.get("model", "fake-model")),
        }
        call = next_call(body)
        said = {"content": ANSWER} if call is None else {"tool_calls": [_tool_call(call, number)]}
        reason = "stop" if call is None else "tool_calls"
        if body.get("stream") is True:
            deltas: tuple[Mapping[str, object], ...] = ({"role": "assistant", "content": ""}, said, {})
            chunks = [
                {
                    **head,
                    "object": "chat.completion.chunk",
                    "choices": [{"index": 0, "delta": delta, "finish_reason": None if delta else reason}],
                }
                for delta in deltas
            ]
            return ProviderReply(200, {}, _headers(number), (*map(event, chunks), event("[DONE]")))
        message = {"role": "assistant", "content": None, **said}
        choices = [{"index": 0, "message": message, "finish_reason": reason}]
        done = {**head, "object": "chat.completion", "choices": choices, "usage": usage}
        return ProviderReply(200, done, _headers(number))


class Responses(_OpenAI):
    """``POST /v1/responses``."""

    path = "/v1/responses"

    def answer(self, body: Mapping[str, object], *, number: int) -> ProviderReply:
        tokens, call = self.tokens(body), next_call(body)
        item = _message(number, ANSWER) if call is None else _tool_item(call, number)
        done: dict[str, object] = {
            "id": f"resp_fake{number:06d}",
            "object": "response",
            "created_at": 0,
            "status": "completed",
            "model": str(body.get("model", "fake-model")),
            "output": [item],
            "parallel_tool_calls": True,
            "tool_choice": "auto",
            "tools": [],
            "usage": {
                "input_tokens": 200,
                "input_tokens_details": {"cached_tokens": 0},
                "output_tokens": tokens,
                "output_tokens_details": {"reasoning_tokens": 0},
                "total_tokens": 200 + tokens,
            },
        }
        events = self._events(done, item, number) if body.get("stream") is True else ()
        return ProviderReply(200, done, _headers(number), events)

    def _events(
        self, done: Mapping[str, object], item: Mapping[str, object], number: int
    ) -> tuple[bytes, ...]:
        begun = {**done, "status": "in_progress", "output": [], "usage": None}
        is_message = item["type"] == "message"
        events: list[Mapping[str, object]] = [
            {"type": "response.created", "response": begun},
            {"type": "response.output_item.added", "output_index": 0, "item": _message(number, None)},
            *(_text_events(item) if is_message else ()),
            # codex takes the answer from here, and from nowhere else.
            {"type": "response.output_item.done", "output_index": 0, "item": item},
            {"type": "response.completed", "response": done},
        ]
        if not is_message:
            events[1] = {**events[1], "item": {**item, "status": "in_progress"}}
        return typed_events(*({**each, "sequence_number": at} for at, each in enumerate(events)))


def _text_events(item: Mapping[str, object]) -> Sequence[Mapping[str, object]]:
    place = {"item_id": item["id"], "output_index": 0, "content_index": 0}
    return (
        {"type": "response.content_part.added", **place, "part": _text("")},
        {"type": "response.output_text.delta", **place, "delta": ANSWER},
        {"type": "response.output_text.done", **place, "text": ANSWER},
        {"type": "response.content_part.done", **place, "part": _text(ANSWER)},
    )


def _message(number: int, text: str | None) -> Mapping[str, object]:
    """The message of an answer; None: it has only begun."""
    status = "in_progress" if text is None else "completed"
    content = [] if text is None else [_text(text)]
    item_id = f"msg_fake{number:06d}"
    return {"id": item_id, "type": "message", "role": "assistant", "status": status, "content": content}


def _tool_item(call: ToolCall, number: int) -> Mapping[str, object]:
    """A tool call as an item: free text for a custom tool, JSON for a function."""
    item = {"id": f"item_fake{number:06d}", "call_id": f"call_fake{number:06d}", "name": call.tool}
    if isinstance(call.given, str):
        return {**item, "type": "custom_tool_call", "status": "completed", "input": call.given}
    if call.namespace:
        item["namespace"] = call.namespace
    return {**item, "type": "function_call", "status": "completed", "arguments": json.dumps(call.given)}


def _tool_call(call: ToolCall, number: int) -> Mapping[str, object]:
    function = {"name": call.tool, "arguments": json.dumps(call.given)}
    return {"index": 0, "id": f"call_fake{number:06d}", "type": "function", "function": function}


def _text(text: str) -> Mapping[str, object]:
    return {"type": "output_text", "text": text, "annotations": []}


def _error(
    status: int,
    kind: str,
    code: str | None,
    words: str,
    number: int,
    more: Mapping[str, object] | None = None,
) -> ProviderReply:
    error = {"message": words, "type": kind, "param": None, "code": code, **(more or {})}
    return ProviderReply(status, {"error": error}, _headers(number))


def _headers(number: int) -> Mapping[str, str]:
    return {"x-request-id": f"req_fake{number:06d}"}
