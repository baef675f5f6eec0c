"""Who may do what.

On a loopback bind no token is needed to look: only users of this machine can reach it. To change something
without one, the sender must be a process of the server's own user (``sender.py``). A web page that such a
user looks at can reach it too, so two more things are checked that a browser cannot be made to lie about: the
``Host`` it was asked for is this machine's own (a foreign name that was pointed here is not), and what
changes something does not come from another site's page (``Origin``). CORS is off: no other page can read an
answer.

Everywhere else a bearer token decides. One that is brought is judged in any case: a wrong one is never better
than none.
"""

from __future__ import annotations

import asyncio
import ipaddress
import sys
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any
from urllib.parse import urlsplit

from litestar.connection import ASGIConnection
from litestar.handlers import BaseRouteHandler

from flyball.service.problems import ProblemError
from flyball.service.sender import sender_scope
from flyball.service.tokens import Scope, TokenStore

OPEN = "open"
"""In a route's ``opt["scope"]``: no token is needed, since the state is not shown."""
_SAFE = ("GET", "HEAD", "OPTIONS")
_REALM = 'Bearer realm="flyball"'


@dataclass(frozen=True, slots=True)
class Caller:
    """The sender of a request that was let in."""

    name: str
    """Of its token; empty where it brought none."""
    scope: Scope


ANYBODY = Caller("", Scope.READ)
SenderScope = Callable[[], Awaitable[Scope]]
"""What the sender of a request may do without a token."""


class Access:
    """``token_needed`` is False on a loopback bind only."""

    def __init__(self, keyring: TokenStore, *, token_needed: bool, host: str = "127.0.0.1") -> None:
        self.token_needed = token_needed
        self._keyring = keyring
        self._hosts = {host.lower()}

    async def judge(
        self, method: str, headers: Mapping[str, str], needed: Scope, sender: SenderScope
    ) -> Caller:
        """Who it is, if they may; a problem that says why not otherwise."""
        given = headers.get("authorization")
        if given is not None:
            caller = self._find_caller(given)
        elif self.token_needed:
            raise _unauthorized_error("no-token", "a token is needed: Authorization: Bearer ...", "")
        else:
            self._check_site(method, headers)
            caller = Caller("", await sender()) if needed is not Scope.READ else ANYBODY
        if not caller.scope.allows(needed):
            if given is None:
                raise _own_user_error(caller.scope, needed)
            detail = f"the token {caller.name!r} may {caller.scope.value}; this needs {needed.value}"
            challenge = f'{_REALM}, error="insufficient_scope", scope="{needed.value}"'
            headers = {"WWW-Authenticate": challenge}
            raise ProblemError(403, "scope", detail, headers=headers, scope=needed.value)
        return caller

    def _find_caller(self, given: str) -> Caller:
        kind, _, token = given.strip().partition(" ")
        if kind.lower() != "bearer" or not token.strip():
            words = "this is not a bearer token; send Authorization: Bearer ..."
            raise _unauthorized_error("wrong-token", words, "invalid_request")
        found = self._keyring.find(token.strip())
        if found is None:
            words = "this token is not known; flyball token list shows the names of those that are"
            raise _unauthorized_error("wrong-token", words, "invalid_token")
        return Caller(found.name, found.scope)

    def _check_site(self, method: str, headers: Mapping[str, str]) -> None:
        host = headers.get("host", "")
        try:
            name = (urlsplit(f"//{host}").hostname or "").lower()
        except ValueError:
            name = ""
        if host and name not in self._hosts and not is_loopback_name(name):
            raise ProblemError(
                403,
                "other-host",
                f"asked for as {host!r}; without a token this server answers as localhost only",
            )
        origin = headers.get("origin")
        if method not in _SAFE and origin is not None and not _same_place(origin, host):
            raise ProblemError(
                403, "other-site", f"a page of {origin!r} may not change anything here without a token"
            )


def is_loopback_name(name: str) -> bool:
    """
    >>> [is_loopback_name(name) for name in ("localhost", "127.8.9.1", "::1", "example.com", "10.0.0.1")]
    [True, True, True, False, False]
    """
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return name == "localhost" or name.endswith(".localhost")


def _same_place(origin: str, host: str) -> bool:
    """
    >>> _same_place("http://localhost:8790", "localhost:8790"), _same_place("null", "")
    (True, False)
    """
    return bool(host) and origin.lower().rpartition("://")[2] == host.lower()


def _own_user_error(scope: Scope, needed: Scope) -> ProblemError:
    known = sys.platform == "linux"
    if scope is Scope.LEASE:
        why = "a command that flyball governs, such as an agent, changes no limits"
    elif known:
        why = "this server belongs to another user, or your process cannot be seen from it"
    else:
        why = "this system does not say whose a connection is"
    words = f"{why}; without a token you may {scope.value}, and this needs {needed.value}"
    way_out = f"send Authorization: Bearer with a token of flyball token add NAME --scope {needed.value}"
    headers = {"WWW-Authenticate": f'{_REALM}, scope="{needed.value}"'}
    return ProblemError(403, "own-user", f"{words}; {way_out}", headers=headers, scope=needed.value)


def _unauthorized_error(kind: str, detail: str, error: str) -> ProblemError:
    challenge = f'{_REALM}, error="{error}"' if error else _REALM
    return ProblemError(401, kind, detail, headers={"WWW-Authenticate": challenge})


async def check_access(connection: ASGIConnection[Any, Any, Any, Any], handler: BaseRouteHandler) -> None:
    """The guard of every route: what it needs is its ``opt["scope"]``, reading if it says nothing."""
    needed = handler.opt.get("scope", Scope.READ)
    if needed == OPEN:
        return
    access: Access = connection.app.state.access
    method = str(connection.scope.get("method", "GET"))
    sender = partial(scope_without_token, connection, needed)
    caller = await access.judge(method, connection.headers, needed, sender)
    connection.scope["state"]["caller"] = caller


async def scope_without_token(connection: ASGIConnection[Any, Any, Any, Any], needed: Scope) -> Scope:
    """What the process that sent a request may do, as far as ``needed``."""
    ours, theirs = connection.scope.get("server"), connection.scope.get("client")
    if needed is not Scope.ADMIN:
        return sender_scope(ours, theirs, needed)
    # To find the process takes milliseconds, and is needed for few requests.
    return await asyncio.to_thread(sender_scope, ours, theirs, needed)
