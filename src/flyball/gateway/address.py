"""The addresses of the gateway: who calls, and where the call is going, in the path of a base address.

    http://127.0.0.1:8791/TOKEN/POOL/PROJECT/NAME/https/api.anthropic.com/v1/messages
                          ^     ^    ^       ^    ^     ^                 ^
                          the   +:   for the      the provider's own      what the client adds
                          user  by   queue        base address
                                host; POOL!1 with a priority

A client is told nothing but a base address, so all that the gateway must know is in it: no header is added
and no table has to be kept. The token keeps others out: it is in a private file and in the environment of
this user's processes.

Requests to the gateway itself (``/-/status/...``) have no token. Both sides prove that they know the secret
of the private file, so that what another user has put in the gateway's place learns nothing and is not
believed.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from urllib.parse import quote, unquote, urlsplit

from flyball.errors import UsageError
from flyball.integrations.gate import pool_of_host

_CONTROL = "-"
"""The segment in place of a token for requests to the gateway itself."""
_HOST = re.compile(r"(?:[\w-]{1,63}\.)*[\w-]{1,63}\.?|[0-9a-f]*:[0-9a-f:.]+(?:%\w+)?", re.ASCII)
_BY_HOST = "+"
"""The segment in place of a pool where the provider's host decides."""
_PRIORITY = "!"
"""Between a pool and a priority. In a pool's name it is quoted."""


@dataclass(frozen=True, slots=True)
class Upstream:
    """A provider's server."""

    scheme: str
    host: str
    port: int

    @property
    def authority(self) -> str:
        """Host and port, as the ``Host`` header names them."""
        usual = {"http": 80, "https": 443}[self.scheme]
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == usual else f"{host}:{self.port}"


@dataclass(frozen=True, slots=True)
class Route:
    """One request's way: for whom, under which pool, to which server, and the path there."""

    pool: str
    """The one that the address names, or else that of the host; its families are not looked at here."""
    project: str
    name: str
    upstream: Upstream
    path: str
    priority: int = 0

    def to(self, path: str) -> Route:
        """The same way to another path."""
        return Route(self.pool, self.project, self.name, self.upstream, path, self.priority)


@dataclass(frozen=True, slots=True)
class ControlRequest:
    """A request to the gateway itself."""

    what: str
    nonce: str
    proof: str
    """Shows that the asker knows the secret."""


def parse_upstream(scheme: str, authority: str) -> Upstream:
    """Raises UsageError for what is not the start of an http address.

    >>> parse_upstream("https", "api.anthropic.com").authority
    'api.anthropic.com'
    """
    if scheme not in ("http", "https"):
        raise UsageError(f"a base address begins with http:// or https://, not {scheme}://")
    try:
        parts = urlsplit(f"{scheme}://{authority}")
        host, port = parts.hostname or "", parts.port
        host = host if host.isascii() else host.encode("idna").decode()
    except ValueError as error:
        raise UsageError(f"{authority!r} is not a host and port: {error}") from None
    if not _HOST.fullmatch(host) or parts.username is not None or parts.path or parts.query:
        raise UsageError(f"{authority!r} is not a host and port")
    return Upstream(scheme, host, port or {"http": 80, "https": 443}[scheme])


def parse_target(target: str, token: str) -> Route | ControlRequest:
    """The way of a request for this path.

    >>> route = parse_target("/secret/+/blog/t-1/https/api.openai.com/v1/responses?x=1", "secret")
    >>> route.pool, route.project, route.upstream.host, route.path
    ('openai', 'blog', 'api.openai.com', '/v1/responses?x=1')

    Raises PermissionError for another token, and UsageError for a path that leads nowhere.
    """
    from hmac import compare_digest  # each `exec` of an agent imports this module, and needs no hashes

    if target.startswith("http://"):  # as to a proxy; every server has to take that, too
        target = target.partition("://")[2].partition("/")[2]
    given, _, rest = target.removeprefix("/").partition("/")
    if given == _CONTROL:
        what, _, rest = rest.partition("/")
        nonce, _, proof = rest.partition("/")
        return ControlRequest(what, nonce, proof)
    if not compare_digest(given.encode(), token.encode()):
        raise PermissionError("this address has not the gateway's token")
    *way, rest = (*rest.split("/", 4), "", "", "", "")[:5]
    end = min((rest.find(mark) for mark in "/?" if mark in rest), default=len(rest))
    path = rest[end:] if rest[end : end + 1] == "/" else f"/{rest[end:]}"
    return _parse_way(*way, rest[:end]).to(path)


@lru_cache(maxsize=1024)
def _parse_way(pool: str, project: str, name: str, scheme: str, authority: str) -> Route:
    """All but the path, which is the same for all calls of an agent."""
    upstream = parse_upstream(scheme, unquote(authority))
    pool, _, said = pool.partition(_PRIORITY)
    named = pool_of_host(upstream.host) if pool == _BY_HOST else unquote(pool)
    return Route(named, unquote(project), unquote(name), upstream, "/", _parse_priority(said))


def _parse_priority(said: str) -> int:
    try:
        return int(said or "0")
    except ValueError:
        raise UsageError(f"a priority is a number, not {said[:20]!r}") from None


def base_address(
    gateway: str, base: str, *, project: str, name: str, pool: str | None = None, priority: int = 0
) -> str:
    """The base address that leads to ``base`` through the gateway at ``gateway`` (its address with token).

    >>> base_address("http://127.0.0.1:1/k", "https://api.openai.com/v1", project="blog", name="t-1")
    'http://127.0.0.1:1/k/+/blog/t-1/https/api.openai.com/v1'

    ``pool``: None leaves that to the provider's host. One that leads through it already gets the new names.
    """
    if base.startswith(f"{gateway}/"):
        _, _, _, scheme, rest = base.removeprefix(f"{gateway}/").split("/", 4)
    else:
        scheme, found, rest = base.partition("://")
        authority, _, _ = rest.partition("/")
        if not found:
            raise UsageError(f"{base!r} is not a base address; it begins with http:// or https://")
        parse_upstream(scheme, authority)
    under = _BY_HOST if pool is None else quote(pool, safe="")
    under += f"{_PRIORITY}{priority}" if priority else ""
    return f"{gateway}/{under}/{quote(project, safe='')}/{quote(name, safe='')}/{scheme}/{rest}"
