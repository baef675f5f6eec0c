"""Google's API: ``generateContent``, in one piece or as server-sent events.

The path names the model and asks for a stream; ``request_body`` puts both into the body. Answers carry no
rate-limit headers: which quota is used up, and when to come back, is in the details of an error.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence

from flyball.core.signals import SignalKind
from flyball.sim.provider.dialect import ANSWER, ProviderReply, answer_tokens, event
from flyball.sim.provider.tool_calls import next_call

_PATH = re.compile(r"/v1(?:beta|alpha)?/models/([^/:]+):(generateContent|streamGenerateContent)")
_RPC = "type.googleapis.com/google.rpc."
_METRIC = "generativelanguage.googleapis.com/generate_content_free_tier_requests"
_QUOTA = "You exceeded your current quota, please check your plan and billing details."
_ERRORS = {
    SignalKind.OVERLOADED: (503, "UNAVAILABLE", "The model is overloaded. Please try again later."),
    SignalKind.SERVER_ERROR: (500, "INTERNAL", "An internal error has occurred."),
    SignalKind.AUTH: (401, "UNAUTHENTICATED", "API key not valid. Please pass a valid API key."),
    SignalKind.CREDIT_GONE: (
        429,
        "RESOURCE_EXHAUSTED",
        "Your prepayment credits are depleted. Please go to AI Studio to manage your project and billing.",
    ),
    SignalKind.WINDOW_USED_UP: (429, "RESOURCE_EXHAUSTED", _QUOTA),
}
Part = Mapping[str, object]


class GeminiDialect:
    """The Gemini API."""

    name = "gemini"

    def handles(self, path: str) -> bool:
        return _PATH.fullmatch(path.partition("?")[0]) is not None

    def request_body(self, path: str, body: Mapping[str, object]) -> Mapping[str, object]:
        found = _PATH.fullmatch(path.partition("?")[0])
        if found is None:
            return body
        return {**body, "model": found[1], "stream": found[2] == "streamGenerateContent"}

    def tokens(self, body: Mapping[str, object]) -> int:
        return answer_tokens(_mapping(body.get("generationConfig")).get("maxOutputTokens"))

    def answer(self, body: Mapping[str, object], *, number: int) -> ProviderReply:
        call = next_call(body)
        if call is not None:
            parts: list[Part] = [{"functionCall": {"name": call.tool, "args": call.given}}]
        elif body.get("stream") is True:
            # At most three pieces, and none is empty: clients take an empty one for a broken stream.
            text = _answer_text(body)
            step = max(1, (len(text) + 2) // 3)
            parts = [{"text": text[at : at + step]} for at in range(0, len(text), step)]
        else:
            parts = [{"text": _answer_text(body)}]
        *before, last = parts
        pieces = [self._piece(body, part, number, last=False) for part in before]
        pieces.append(self._piece(body, last, number, last=True))
        if body.get("stream") is not True:
            return ProviderReply(200, pieces[-1])
        return ProviderReply(200, {}, {}, tuple(map(event, pieces)))

    def _piece(
        self, body: Mapping[str, object], part: Part, number: int, *, last: bool
    ) -> Mapping[str, object]:
        candidate: dict[str, object] = {"content": {"role": "model", "parts": [part]}, "index": 0}
        if last:
            candidate["finishReason"] = "STOP"
        tokens = self.tokens(body)
        return {
            "candidates": [candidate],
            "usageMetadata": {
                "promptTokenCount": 200,
                "candidatesTokenCount": tokens,
                "totalTokenCount": 200 + tokens,
            },
            "modelVersion": str(body.get("model", "fake-model")),
            "responseId": f"fake{number:06d}",
        }

    def throttle(self, *, number: int, retry_after_s: float | None) -> ProviderReply:  # noqa: ARG002 - the port
        words = _QUOTA if retry_after_s is None else f"{_QUOTA}\nPlease retry in {retry_after_s:.10g}s."
        return _error(429, "RESOURCE_EXHAUSTED", words, _quota("Minute", retry_after_s))

    def refusal(
        self,
        kind: SignalKind,
        *,
        number: int,
        retry_after_s: float | None,
        wall_s: float,  # noqa: ARG002
    ) -> ProviderReply:
        if kind is SignalKind.THROTTLED:
            return self.throttle(number=number, retry_after_s=retry_after_s)
        details: Sequence[Mapping[str, object]] = ()
        if kind is SignalKind.WINDOW_USED_UP:
            details = _quota("Day", retry_after_s)
        elif kind is SignalKind.AUTH:
            details = [{"@type": f"{_RPC}ErrorInfo", "reason": "API_KEY_INVALID", "domain": "googleapis.com"}]
        return _error(*_ERRORS[kind], details)

    def invalid(self, words: str, *, number: int) -> ProviderReply:  # noqa: ARG002 - the port
        return _error(400, "INVALID_ARGUMENT", words)


def _error(status: int, name: str, words: str, details: Sequence[Mapping[str, object]] = ()) -> ProviderReply:
    error: dict[str, object] = {"code": status, "message": words, "status": name}
    return ProviderReply(status, {"error": {**error, "details": details} if details else error})


def _quota(per: str, delay_s: float | None) -> Sequence[Mapping[str, object]]:
    violation = {
        "quotaMetric": _METRIC,
        "quotaId": f"GenerateRequestsPer{per}PerProjectPerModel-FreeTier",
        "quotaValue": "10",
    }
    failure: Mapping[str, object] = {"@type": f"{_RPC}QuotaFailure", "violations": [violation]}
    if delay_s is None:
        return [failure]
    return [failure, {"@type": f"{_RPC}RetryInfo", "retryDelay": f"{delay_s:.10g}s"}]


def _answer_text(body: Mapping[str, object]) -> str:
    """The answer; side calls that ask for JSON (which model, who speaks next) get JSON of their schema."""
    config = _mapping(body.get("generationConfig"))
    schema = _mapping(config.get("responseJsonSchema") or config.get("responseSchema"))
    if not schema:
        return ANSWER
    return json.dumps(
        {name: _example(_mapping(kind)) for name, kind in _mapping(schema.get("properties")).items()}
    )


def _example(kind: Mapping[str, object]) -> object:
    choices = kind.get("enum")
    if isinstance(choices, list) and choices:
        return choices[0]
    fitting = {"number": 1, "integer": 1, "boolean": False, "array": [], "object": {}}
    return fitting.get(str(kind.get("type")).lower(), "fake")


def _mapping(value: object) -> Mapping[str, object]:
    return value if isinstance(value, dict) else {}
