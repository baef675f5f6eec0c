"""Which requests the loopback gateway governs (``gateway/address.py``): they are counted there, once.

    http://127.0.0.1:8791/TOKEN/POOL/PROJECT/NAME/https/api.anthropic.com/v1/messages

A program under ``flyball env`` or ``flyball exec`` may use a governed client besides. Its slot would be the
call's second.
"""

from __future__ import annotations

import re

_LOOPBACK = ("127.0.0.1", "localhost", "::1")
_LED = re.compile(r"[a-z]+://[^/]+/[^/]+/[^/]+/[^/]*/[^/]*/https?/[^/]+")


def passes_gateway(host: str, url: object) -> bool:
    """
    >>> passes_gateway("127.0.0.1", "http://127.0.0.1:8791/k/+/blog/t-1/https/api.openai.com/v1/responses")
    True
    >>> passes_gateway("127.0.0.1", "http://127.0.0.1:8080/v1/messages")
    False
    """
    return host in _LOOPBACK and _LED.match(str(url)) is not None
