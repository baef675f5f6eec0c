"""The two-line door: an httpx client whose every call goes through a pool.

    client = anthropic.Anthropic(http_client=flyball.httpx_client("anthropic"), max_retries=0)

Two libraries go by that name: ``httpx2``, which the official SDKs are built on since anthropic 1.0 and openai
3.0, and ``httpx`` before. httpx2 is taken where it is installed; ``library="httpx"`` asks for the other.
"""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Literal, overload

from flyball.errors import UsageError
from flyball.host.install_hints import extra_command
from flyball.integrations.exchange import RuleOptions
from flyball.integrations.gate import gate_for
from flyball.integrations.govern import govern

if TYPE_CHECKING:
    import httpx
    import httpx2

    from flyball.integrations.gate import Gate


Library = Literal["httpx2", "httpx"]
_ANSWER_S, _CONNECT_S = 600.0, 5.0
"""The same as in the official SDKs: a long answer may take minutes, a connection may not."""
_RULES = tuple(RuleOptions.__annotations__)


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
    return _make_client("Client", gate, library, options)


@overload
def httpx_async_client(
    gate: Gate | str | None = None, *, library: Literal["httpx"], **options: Any
) -> httpx.AsyncClient: ...
@overload
def httpx_async_client(
    gate: Gate | str | None = None, *, library: Literal["httpx2"] | None = None, **options: Any
) -> httpx2.AsyncClient: ...
def httpx_async_client(
    gate: Gate | str | None = None, *, library: Library | None = None, **options: Any
) -> Any:
    """``httpx_client`` for an event loop."""
    return _make_client("AsyncClient", gate, library, options)


def _make_client(kind: str, gate: Gate | str | None, library: Library | None, options: dict[str, Any]) -> Any:
    if library not in (None, "httpx", "httpx2"):
        raise UsageError(f"library must be httpx2 or httpx, not {library!r}")
    if gate is not None and not isinstance(gate, str):
        gate_for(gate)
    lib: Any = import_module(library or _installed_library())
    rules: Any = {name: options.pop(name) for name in _RULES if name in options}
    options.setdefault("timeout", lib.Timeout(_ANSWER_S, connect=_CONNECT_S))
    options.setdefault("follow_redirects", True)
    # The slots are the limit. A smaller one in here would make calls wait with a slot in hand.
    options.setdefault("limits", lib.Limits(max_connections=None, max_keepalive_connections=100))
    return govern(getattr(lib, kind)(**options), gate, **rules)


def _installed_library() -> Library:
    if find_spec("httpx2") is not None:
        return "httpx2"
    if find_spec("httpx") is not None:
        return "httpx"
    raise UsageError(f"neither httpx2 nor httpx is installed; install one with: {extra_command('http')}")
