"""Which requests are model calls, and of which model.

Only calls that a model answers take a slot. Lists of models, token counts and the like pass freely.
"""

from __future__ import annotations

import re
from urllib.parse import unquote

import msgspec

_MODEL_CALL = re.compile(
    r"(?!.*/threads/[^/]+/messages/?$)"  # a message that is kept, which no model answers
    r"(?:.*/)?(?:messages|complete|completions|responses(?:/compact)?|interactions|embeddings"
    r"|images/(?:generations|edits|variations)|audio/(?:speech|transcriptions|translations))/?"
    r"|.*:(?:generateContent|streamGenerateContent|embedContent|batchEmbedContents|predict)"
    r"|.*/model/[^/]+/(?:converse(?:-stream)?|invoke(?:-with-response-stream)?)"
)
"""The path of a call that a model answers: its end, since compatible servers put much before it."""
_MODEL_IN_PATH = re.compile(r"/models/([^/:]+):|/model/([^/]+)/(?:converse|invoke)")
"""Google's, and that of Amazon Bedrock."""


class _CallBody(msgspec.Struct):
    model: str = ""


_read_call = msgspec.json.Decoder(_CallBody)


def called_model(path: str, body: bytes) -> str:
    """The model that a call names; empty where it names none.

    >>> called_model("/v1/messages", b'{"model": "claude-opus-4-5", "messages": []}')
    'claude-opus-4-5'
    >>> called_model("/v1beta/models/gemini-2.5-pro:generateContent", b"{}")
    'gemini-2.5-pro'
    >>> called_model("/model/anthropic.claude-opus-4-5-v1%3A0/converse-stream", b"{}")
    'anthropic.claude-opus-4-5-v1:0'
    """
    in_path = _MODEL_IN_PATH.search(path)
    if in_path is not None:
        return unquote(in_path[1] or in_path[2])
    try:
        return _read_call.decode(body).model
    except (msgspec.DecodeError, RecursionError):
        return ""


def is_model_call(method: str, path: str) -> bool:
    """True for a request that a model answers, by any of the APIs that are known here.

    >>> is_model_call("POST", "/v1/messages?beta=true"), is_model_call("POST", "/v1/messages/count_tokens")
    (True, False)
    >>> is_model_call("POST", "/v1beta/models/gemini-2.5-pro:streamGenerateContent?alt=sse")
    True
    """
    return method == "POST" and bool(_MODEL_CALL.fullmatch(path.partition("?")[0]))
