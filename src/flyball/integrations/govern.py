"""One verb for every client: ``flyball.govern(client)`` puts the calls of one that exists through a gate.

The client is changed in place and returned, whatever it is. What is changed is the part of it that sends:

    httpx, httpx2            the client's transports, the one for proxies included, because a client that is
                             told its transport forgets the proxies of the environment
    anthropic, openai, ...   the HTTP client inside, which becomes a view of its own over the same
                             connections: frameworks share one between many clients
    google-genai             the same, and the aiohttp sessions that it makes
    boto3                    ``botocore_client.py``
    requests, aiohttp        ``requests_session.py``, ``aiohttp_session.py``
    LiteLLM                  the module itself: ``litellm_module.py``
    LangChain, pydantic-ai   the SDK's client inside the model

The retries of an SDK are switched off along with it, because flyball tries again itself with the slot free;
``retry=None`` leaves them as they are, where the SDK says which calls are its retries.
"""

from __future__ import annotations

from copy import copy
from importlib import import_module
from inspect import isclass
from types import ModuleType
from typing import TYPE_CHECKING, Any, TypeVar

from flyball.errors import UsageError
from flyball.integrations.exchange import RuleOptions, Rules

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Unpack

    from flyball.integrations.gate import Gate

C = TypeVar("C")
_INSIDE = ("root_client", "root_async_client", "_client", "_async_client", "client", "async_client")
"""Where a framework's model keeps the SDK's clients."""


def govern(client: C, gate: Gate | str | None = None, **rules: Unpack[RuleOptions]) -> C:
    """Put every call of this client through a gate: a pool's name, a ``Limiter`` or a ``Pool``.

    The client is changed and returned. It is one of anthropic, openai, google-genai or boto3, an httpx
    client, a ``requests.Session``, an ``aiohttp.ClientSession``, a model of LangChain or pydantic-ai, or the
    module ``litellm``. Without a gate, the host of each call decides the pool.

    The retries of an SDK are switched off: flyball tries again, with the slot free while it waits.
    ``retry=None`` leaves them on, and every answer is handed over as it comes.
    """
    change = _change_for(client)
    if change is None:
        raise UsageError(_unknown(client))
    change(client, Rules(gate=gate, **rules))
    return client


def _unknown(client: object) -> str:
    what = f"the class {client.__name__}" if isclass(client) else type(client).__name__
    return (
        f"{what} is not a client that govern knows: one of anthropic, openai, google-genai or boto3, of "
        "httpx, httpx2, a requests.Session, an aiohttp.ClientSession, a model of LangChain or pydantic-ai, "
        "or the module litellm. An SDK that takes an HTTP client is given a governed one when its client is "
        "made: http_client=flyball.httpx_client(...), or httpx_async_client where it is async"
    )


def _change_for(client: object) -> Callable[[Any, Rules], None] | None:
    if isinstance(client, ModuleType):
        return _elsewhere("litellm_module") if client.__name__ == "litellm" else None
    for cls in type(client).__mro__:
        package, name = cls.__module__.partition(".")[0], cls.__name__
        if package in ("httpx", "httpx2") and name in ("Client", "AsyncClient"):
            return govern_httpx
        if name == "BaseClient" and cls.__module__.endswith("._base_client"):
            return _govern_sdk
        change = _CHANGES.get((package, name))
        if change is not None and (package != "google" or cls.__module__.startswith("google.genai")):
            return change
    return None


def _elsewhere(module: str) -> Callable[[Any, Rules], None]:
    """``govern`` of a module that is imported when there is something to govern."""

    def change(client: Any, rules: Rules) -> None:
        import_module(f"flyball.integrations.{module}").change(client, rules)

    return change


def govern_httpx(client: Any, rules: Rules) -> None:
    """Put the transports of an httpx client under ours."""
    if type(client._transport).__module__.startswith("flyball.integrations."):
        raise UsageError("this client is governed already; a call would take two slots")
    wrap = _wrapper(client)
    client._transport = wrap(client._transport, rules)
    client._mounts = {
        pattern: None if mounted is None else wrap(mounted, rules)
        for pattern, mounted in client._mounts.items()
    }


def _wrapper(client: Any) -> Callable[[Any, Rules], Any]:
    for cls in type(client).__mro__:
        library, kind = cls.__module__.partition(".")[0], cls.__name__
        if library in ("httpx", "httpx2") and kind in ("Client", "AsyncClient"):
            over: Any = import_module(f"flyball.integrations.{library}_transport")
            wrap: Callable[[Any, Rules], Any] = getattr(
                over, f"{kind.removesuffix('Client')}GovernedTransport"
            ).under
            return wrap
    raise UsageError(f"{type(client).__name__} is not a client of httpx or httpx2")


def governed_view(client: Any, rules: Rules) -> Any:
    """An httpx client of its own over the same connections. The other may be shared, and stays as it is."""
    view = copy(client)
    # It closes its connections when it is collected, and they are in use.
    view.__dict__["_viewed"] = client
    govern_httpx(view, rules)
    return view


def _govern_sdk(client: Any, rules: Rules) -> None:
    client._client = governed_view(client._client, rules)
    if rules.retry is not None:
        client.max_retries = 0


def _govern_google(client: Any, rules: Rules) -> None:
    api = client._api_client
    api._httpx_client = governed_view(api._httpx_client, rules)
    if api._async_httpx_client is not None:
        api._async_httpx_client = governed_view(api._async_httpx_client, rules)
    if not api._use_aiohttp():
        return
    change, make = import_module("flyball.integrations.aiohttp_session").ensure, api._get_aiohttp_session

    async def governed_session(*given: Any, **more: Any) -> Any:
        session = await make(*given, **more)
        change(session, rules)
        return session

    api._get_aiohttp_session = governed_session


def _govern_model(model: Any, rules: Rules) -> None:
    found = [getattr(model, name, None) for name in _INSIDE]
    inside = list({id(client): client for client in found if _change_for(client) is not None}.values())
    if not inside:
        raise UsageError(
            f"{type(model).__name__} shows no client that govern knows; give it one when it is made: "
            "http_client=flyball.httpx_client(...), or the client of an SDK, governed"
        )
    for client in inside:
        change = _change_for(client)
        if change is not None:
            change(client, rules)


_CHANGES: dict[tuple[str, str], Callable[[Any, Rules], None]] = {
    ("google", "Client"): _govern_google,
    ("google", "AsyncClient"): _govern_google,
    ("botocore", "BaseClient"): _elsewhere("botocore_client"),
    ("requests", "Session"): _elsewhere("requests_session"),
    ("aiohttp", "ClientSession"): _elsewhere("aiohttp_session"),
    ("langchain_core", "BaseChatModel"): _govern_model,
    ("langchain_core", "BaseLLM"): _govern_model,
    ("pydantic_ai", "Model"): _govern_model,
}
