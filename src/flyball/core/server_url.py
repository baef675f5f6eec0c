"""Addresses of servers as people write them, and what of them may be shown.

    scheme://user:password@host:port/path?option=value

A password is often a random text, and one with a ``/``, ``?`` or ``#`` in it ends the part that may hold a
password: what follows would be taken for a path and be shown. So an ``@`` behind any of these is refused
before anything is opened, and shown as nothing at all.
"""

from __future__ import annotations

from flyball.errors import UsageError

HIDDEN = "..."
SPACE = "space="
"""The one option of ours that names a place and no secret."""
_ENDS = "/?#"


def redacted(address: str) -> str:
    """An address that may be shown: no user, no password, no option that may hold one.

    >>> redacted("redis://me:s3cret@box:6379/0?ssl_ca_certs=x&space=team")
    'redis://box:6379/0?space=team'
    >>> redacted("redis://:s3/cret@box")
    'redis://...'
    >>> redacted("redis:me:s3cret@box")
    '...'
    """
    scheme, separator, rest = address.partition("://")
    # ``redis:/:s3cret@x://`` is not a scheme.
    if not separator or not scheme.replace("+", "").replace("-", "").isalnum():
        return HIDDEN if "@" in address else address
    if scheme == "sqlite":
        return address
    authority, tail = _split(rest)
    if "@" in tail:
        return f"{scheme}://{HIDDEN}"
    path, _, query = tail.partition("#")[0].partition("?")
    kept = "&".join(option for option in query.split("&") if option.startswith(SPACE))
    return f"{scheme}://{authority.rpartition('@')[2]}{path}{'?' if kept else ''}{kept}"


def check_server(address: str) -> str:
    """Refuse what cannot be told apart: where a password ends, where a host begins, and which port it is."""
    scheme, _, rest = address.partition("://")
    authority, tail = _split(rest)
    if "@" in tail:
        raise UsageError(
            f"cannot read FLYBALL_URL ({scheme}://{HIDDEN}): in a user or password write / as %2F, ? as %3F, "
            "# as %23 and @ as %40"
        )
    for host in authority.rpartition("@")[2].split(","):
        _check_host(host, redacted(address))
    return address


def _split(rest: str) -> tuple[str, str]:
    """The user and host, and what comes behind them."""
    end = min((at for at in map(rest.find, _ENDS) if at >= 0), default=len(rest))
    return rest[:end], rest[end:]


def _check_host(host: str, words: str) -> None:
    name, bracket, behind = host.rpartition("]")
    if name.startswith("[") is not bool(bracket) or (not bracket and host.count(":") > 1):
        raise UsageError(f"cannot read the host in FLYBALL_URL ({words}); write IPv6 as [::1]:6379")
    _, colon, port = behind.partition(":")
    if colon and not (port.isascii() and port.isdigit() and 0 < int(port) < 65536):
        raise UsageError(f"the port in FLYBALL_URL ({words}) must be a number up to 65535, not {port!r}")
