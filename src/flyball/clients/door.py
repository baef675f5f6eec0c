"""The two-line door: an httpx client whose every call goes through a pool.

    client = anthropic.Anthropic(http_client=flyball.httpx_client("anthropic"), max_retries=0)

``govern`` does the same to a client that exists. It replaces the client's transports in place, the one for
proxies included, because a client that is told its transport forgets the proxies of the environment.

Two libraries go by that name: ``httpx2``, which the official SDKs are built on since anthropic 1.0 and openai
3.0, and ``httpx`` before. httpx2 is taken where it is installed; ``library="httpx"`` asks for the other.
"""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Literal, TypeVar, overload

from flyball.clients.transport import RuleOptions, Rules
from flyball.errors import UsageError
from flyball.host.installing import extra_command

if TYPE_CHECKING:
    from typing import Unpack

    import httpx
    import httpx2

    from flyball.clients.port import Gate

Library = Literal["httpx2", "httpx"]
C = TypeVar("C", bound="httpx.Client | httpx.AsyncClient | httpx2.Client | httpx2.AsyncClient")
_ANSWER_S, _CONNECT_S = 600.0, 5.0
"""As the official SDKs: a long answer may take minutes, a connection may not."""
_RULES = tuple(RuleOptions.__annotations__)


def govern(client: C, gate: Gate | str | None = None, **rules: Unpack[RuleOptions]) -> C:
    """Put every call of this client through a gate: a pool's name, a ``Limiter`` or a ``Pool``.

    Without a gate, the host decides the pool. The client is changed and returned.
    """
    for cls in type(client).__mro__:
        library, kind = cls.__module__.partition(".")[0], cls.__name__
        if library in ("httpx", "httpx2") and kind in ("Client", "AsyncClient"):
            over: Any = import_module(f"flyball.clients.over_{library}")
            _wrap(client, getattr(over, f"{kind.removesuffix('Client')}GovernedTransport"), gate, rules)
            return client
    kind = type(client).__name__
    raise UsageError(
        f"{kind} is not a client of httpx or httpx2; an SDK is given a governed one when its client is made: "
        f"{kind}(http_client=flyball.httpx_client(...), max_retries=0), async_httpx_client where it is async"
    )


def _wrap(client: Any, transport: Any, gate: Gate | str | None, options: RuleOptions) -> None:
    if isinstance(client._transport, transport):
        raise UsageError("this client is governed already; a call would take two slots")
    rules = Rules(gate=gate, **options)
    client._transport = transport.under(client._transport, rules)
    client._mounts = {
        pattern: None if mounted is None else transport.under(mounted, rules)
        for pattern, mounted in client._mounts.items()
    }


@overload
def httpx_client(
    gate: Gate | str | None = None, *, library: Literal["httpx"], **options: Any
) -> httpx.Client: ...
@overload
def httpx_client(
    gate: Gate | str | None = None, *, library: Literal["httpx2"] | None = None, **options: Any
) -> httpx2.Client: ...
def httpx_client(gate: Gate | str | None = None, *, library: Library | None = None, **options: Any) -> Any:
    """A client for ``http_client=`` of an SDK, or for your own calls.

    Options are those of ``govern`` (``retry``, ``only``, ``slot_timeout_s``) and of the library's client.
    """
    return _made("Client", gate, library, options)


@overload
def async_httpx_client(
    gate: Gate | str | None = None, *, library: Literal["httpx"], **options: Any
) -> httpx.AsyncClient: ...
@overload
def async_httpx_client(
    gate: Gate | str | None = None, *, library: Literal["httpx2"] | None = None, **options: Any
) -> httpx2.AsyncClient: ...
def async_httpx_client(
    gate: Gate | str | None = None, *, library: Library | None = None, **options: Any
) -> Any:
    """``httpx_client`` for an event loop."""
    return _made("AsyncClient", gate, library, options)


def _made(kind: str, gate: Gate | str | None, library: Library | None, options: dict[str, Any]) -> Any:
    if library not in (None, "httpx", "httpx2"):
        raise UsageError(f"library must be httpx2 or httpx, not {library!r}")
    if gate is not None and not isinstance(gate, str) and not hasattr(gate, "slot"):
        raise UsageError(f"expected a pool's name, a Limiter or a Pool, not {gate!r}")
    lib: Any = import_module(library or _installed())
    rules: Any = {name: options.pop(name) for name in _RULES if name in options}
    options.setdefault("timeout", lib.Timeout(_ANSWER_S, connect=_CONNECT_S))
    options.setdefault("follow_redirects", True)
    # The slots are the limit. A smaller one in here would make calls wait with a slot in hand.
    options.setdefault("limits", lib.Limits(max_connections=None, max_keepalive_connections=100))
    return govern(getattr(lib, kind)(**options), gate, **rules)


def _installed() -> Library:
    if find_spec("httpx2") is not None:
        return "httpx2"
    if find_spec("httpx") is not None:
        return "httpx"
    raise UsageError(f"neither httpx2 nor httpx is installed; install one with: {extra_command('http')}")
