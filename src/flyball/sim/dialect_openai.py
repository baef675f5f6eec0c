"""OpenAI's way of speaking: chat completions and responses, in one piece or as server-sent events."""

from __future__ import annotations

from collections.abc import Mapping

from flyball.sim.dialect import DEFAULT_TOKENS, Reply, event, typed_events

_LIMITS = ("max_completion_tokens", "max_output_tokens", "max_tokens")


class _OpenAI:
    name = "openai"
    path = ""

    def answers(self, path: str) -> bool:
        return path.partition("?")[0] == self.path

    def tokens(self, body: Mapping[str, object]) -> int:
        wanted = next((body[name] for name in _LIMITS if name in body), None)
        return wanted if isinstance(wanted, int) and wanted > 0 else DEFAULT_TOKENS

    def throttled(self, *, number: int, retry_after_s: float | None) -> Reply:
        words = "Rate limit reached for requests. Please try again later."
        reply = self._error(429, "requests", "rate_limit_exceeded", words, number)
        if retry_after_s is None:
            return reply
        return Reply(reply.status, reply.body, {**reply.headers, "retry-after": f"{retry_after_s:g}"})

    def invalid(self, words: str, *, number: int) -> Reply:
        return self._error(400, "invalid_request_error", None, words, number)

    def _error(self, status: int, kind: str, code: str | None, words: str, number: int) -> Reply:
        body = {"error": {"message": words, "type": kind, "param": None, "code": code}}
        return Reply(status, body, _headers(number))


class ChatCompletions(_OpenAI):
    """``POST /v1/chat/completions``."""

    path = "/v1/chat/completions"

    def served(self, body: Mapping[str, object], *, number: int) -> Reply:
        tokens = self.tokens(body)
        usage = {"prompt_tokens": 200, "completion_tokens": tokens, "total_tokens": 200 + tokens}
        head = {
            "id": f"chatcmpl-fake{number:06d}",
            "created": 0,
            "model": str(body.get("model", "fake-model")),
        }
        if body.get("stream") is True:
            deltas = ({"role": "assistant", "content": ""}, {"content": "Done."}, {})
            chunks = [
                {
                    **head,
                    "object": "chat.completion.chunk",
                    "choices": [{"index": 0, "delta": delta, "finish_reason": None if delta else "stop"}],
                }
                for delta in deltas
            ]
            return Reply(200, {}, _headers(number), (*map(event, chunks), event("[DONE]")))
        message = {"role": "assistant", "content": "Done."}
        choices = [{"index": 0, "message": message, "finish_reason": "stop"}]
        done = {**head, "object": "chat.completion", "choices": choices, "usage": usage}
        return Reply(200, done, _headers(number))


class Responses(_OpenAI):
    """``POST /v1/responses``."""

    path = "/v1/responses"

    def served(self, body: Mapping[str, object], *, number: int) -> Reply:
        tokens, item_id = self.tokens(body), f"msg_fake{number:06d}"
        text = {"type": "output_text", "text": "Done.", "annotations": []}
        item = {
            "id": item_id,
            "type": "message",
            "role": "assistant",
            "status": "completed",
            "content": [text],
        }
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
            "usage": {"input_tokens": 200, "output_tokens": tokens, "total_tokens": 200 + tokens},
        }
        events = self._events(done, item_id) if body.get("stream") is True else ()
        return Reply(200, done, _headers(number), events)

    def _events(self, done: Mapping[str, object], item_id: str) -> tuple[bytes, ...]:
        begun = {**done, "status": "in_progress", "output": [], "usage": None}
        place = {"item_id": item_id, "output_index": 0, "content_index": 0}
        return typed_events(
            {"type": "response.created", "sequence_number": 0, "response": begun},
            {"type": "response.output_text.delta", "sequence_number": 1, **place, "delta": "Done."},
            {"type": "response.completed", "sequence_number": 2, "response": done},
        )


def _headers(number: int) -> Mapping[str, str]:
    return {"x-request-id": f"req_fake{number:06d}"}
