"""Amazon Bedrock's API: ``converse``, in one piece or as a stream of Amazon's binary events.

The path names the model and asks for a stream; ``request_body`` puts both into the body. Signatures are not
checked. An error says its kind in a header.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from struct import pack
from urllib.parse import unquote
from zlib import crc32

from flyball.core.signals import SignalKind
from flyball.sim.provider.dialect import ANSWER, ProviderReply, answer_tokens, retry_after

_PATH = re.compile(r"/model/([^/]+)/(converse|converse-stream)")
_STRING = 7
_PAYMENT = (
    "Model access is denied due to INVALID_PAYMENT_INSTRUMENT: A valid payment instrument must be provided."
)
_ERRORS = {
    SignalKind.THROTTLED: (429, "ThrottlingException", "Too many requests, please wait before trying again."),
    SignalKind.WINDOW_USED_UP: (
        429,
        "ThrottlingException",
        "Too many tokens per day, please wait before trying again.",
    ),
    SignalKind.OVERLOADED: (503, "ServiceUnavailableException", "The service is unavailable."),
    SignalKind.SERVER_ERROR: (500, "InternalServerException", "The service failed."),
    SignalKind.AUTH: (403, "UnrecognizedClientException", "The security token is invalid."),
    SignalKind.CREDIT_GONE: (403, "AccessDeniedException", _PAYMENT),
}


class BedrockDialect:
    """The Converse API."""

    name = "bedrock"

    def handles(self, path: str) -> bool:
        return _PATH.fullmatch(path.partition("?")[0]) is not None

    def request_body(self, path: str, body: Mapping[str, object]) -> Mapping[str, object]:
        found = _PATH.fullmatch(path.partition("?")[0])
        if found is None:
            return body
        return {**body, "model": unquote(found[1]), "stream": found[2] == "converse-stream"}

    def tokens(self, body: Mapping[str, object]) -> int:
        said = body.get("inferenceConfig")
        return answer_tokens(said.get("maxTokens") if isinstance(said, Mapping) else None)

    def answer(self, body: Mapping[str, object], *, number: int) -> ProviderReply:
        tokens = self.tokens(body)
        usage = {"inputTokens": 200, "outputTokens": tokens, "totalTokens": 200 + tokens}
        metrics = {"latencyMs": 1}
        whole: Mapping[str, object] = {
            "output": {"message": {"role": "assistant", "content": [{"text": ANSWER}]}},
            "stopReason": "end_turn",
            "usage": usage,
            "metrics": metrics,
        }
        headers = {"x-amzn-requestid": f"req-fake-{number:06d}"}
        if body.get("stream") is not True:
            return ProviderReply(200, whole, headers)
        events = (
            dump_event("messageStart", {"role": "assistant"}),
            dump_event("contentBlockDelta", {"contentBlockIndex": 0, "delta": {"text": ANSWER}}),
            dump_event("contentBlockStop", {"contentBlockIndex": 0}),
            dump_event("messageStop", {"stopReason": "end_turn"}),
            dump_event("metadata", {"usage": usage, "metrics": metrics}),
        )
        kind = {"content-type": "application/vnd.amazon.eventstream"}
        return ProviderReply(200, whole, {**headers, **kind}, events)

    def throttle(self, *, number: int, retry_after_s: float | None) -> ProviderReply:
        return self._error(SignalKind.THROTTLED, number, retry_after(retry_after_s))

    def refusal(
        self,
        kind: SignalKind,
        *,
        number: int,
        retry_after_s: float | None,
        wall_s: float,  # noqa: ARG002 - the port
    ) -> ProviderReply:
        return self._error(kind, number, retry_after(retry_after_s))

    def invalid(self, words: str, *, number: int) -> ProviderReply:
        return _refusal(400, "ValidationException", words, number, {})

    def _error(self, kind: SignalKind, number: int, headers: Mapping[str, str]) -> ProviderReply:
        return _refusal(*_ERRORS[kind], number, headers)


def _refusal(status: int, kind: str, words: str, number: int, headers: Mapping[str, str]) -> ProviderReply:
    said = {"x-amzn-errortype": kind, "x-amzn-requestid": f"req-fake-{number:06d}"}
    return ProviderReply(status, {"message": words}, {**said, **headers})


def dump_event(kind: str, body: Mapping[str, object], *, is_exception: bool = False) -> bytes:
    """One event in the frame of ``application/vnd.amazon.eventstream``: lengths, headers, body and two sums.

    >>> len(dump_event("messageStop", {"stopReason": "end_turn"}))
    123
    """
    said = {
        ":exception-type" if is_exception else ":event-type": kind,
        ":content-type": "application/json",
        ":message-type": "exception" if is_exception else "event",
    }
    headers = b"".join(
        pack("!B", len(name)) + name.encode() + pack("!BH", _STRING, len(value)) + value.encode()
        for name, value in said.items()
    )
    payload = json.dumps(body).encode()
    lengths = pack("!II", 16 + len(headers) + len(payload), len(headers))
    head = lengths + pack("!I", crc32(lengths)) + headers + payload
    return head + pack("!I", crc32(head))
