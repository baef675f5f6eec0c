"""LiteLLM: its module-wide clients and every client that it makes from now on.

Its callbacks see calls, but can neither hold one back nor tell where a stream ends; its HTTP clients do both.
The openai routes take one client for the module, the others make clients and keep them: all are governed.
It reads a stream up to its last event and drops it, so that is where a stream's slot ends.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from flyball.errors import UsageError
from flyball.integrations.exchange import Rules
from flyball.integrations.govern import govern_httpx

_MARK = "_flyball_rules"


def change(litellm: Any, rules: Rules) -> None:
    """Govern the module."""
    from importlib import import_module

    handlers: Any = import_module("litellm.llms.custom_httpx.http_handler")
    if hasattr(litellm, _MARK):
        raise UsageError("litellm is governed already; a call would take two slots")
    rules = replace(rules, stops_at_last_event=True)
    setattr(litellm, _MARK, rules)
    if litellm.client_session is None:
        litellm.client_session = _own(handlers.httpx.Client, handlers)
    if litellm.aclient_session is None:
        litellm.aclient_session = _own(handlers.httpx.AsyncClient, handlers)
    govern_httpx(litellm.client_session, rules)
    govern_httpx(litellm.aclient_session, rules)
    for handler in (handlers.HTTPHandler, handlers.AsyncHTTPHandler):
        handler.create_client = _governing(handler.create_client, rules)
    litellm.in_memory_llm_clients_cache.flush_cache()
    for name in ("module_level_client", "module_level_aclient"):
        made = vars(litellm).get(name)
        if made is not None:
            govern_httpx(made.client, rules)


def _own(kind: Any, handlers: Any) -> Any:
    timeout = handlers.httpx.Timeout(600.0, connect=5.0)
    limits = handlers.httpx.Limits(max_connections=None, max_keepalive_connections=100)
    return kind(timeout=timeout, limits=limits, follow_redirects=True)


def _governing(create: Any, rules: Rules) -> Any:
    def create_client(*given: Any, **more: Any) -> Any:
        client = create(*given, **more)
        govern_httpx(client, rules)
        return client

    return create_client
