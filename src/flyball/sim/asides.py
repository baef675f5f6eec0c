"""What clients ask a provider besides a model: token counts, lists of models. Free, and never refused."""

from __future__ import annotations

import re

from flyball.sim.dialect import Reply

_COUNTED = 1234
_MODEL = re.compile(r"/v1(?:beta)?/models/([^/:]+)")


def aside(method: str, path: str) -> Reply | None:
    """The answer to a request that is not for a model; None if it may be for one.

    >>> aside("POST", "/v1/messages/count_tokens?beta=true").body
    {'input_tokens': 1234}
    """
    bare = path.partition("?")[0]
    if method == "POST" and bare.endswith("/messages/count_tokens"):
        return Reply(200, {"input_tokens": _COUNTED})
    if method == "POST" and bare.endswith(":countTokens"):
        return Reply(200, {"totalTokens": _COUNTED})
    if method != "GET":
        return None
    if bare in ("/v1/models", "/v1beta/models"):
        # Each vendor's client looks for its own field and is content with none in it.
        return Reply(200, {"object": "list", "data": [], "has_more": False, "models": []})
    model = _MODEL.fullmatch(bare)
    if model is None:
        return None
    name = model[1]
    return Reply(200, {"id": name, "type": "model", "object": "model", "name": f"models/{name}"})
