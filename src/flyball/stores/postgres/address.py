"""What an address says: where the server is, and the few options that are ours.

    postgresql://user:password@host:5432/database?space=flyball&socket_timeout=5&connections=8&sslmode=require

Everything but ``space``, ``socket_timeout`` and ``connections`` goes to the driver as it is.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from urllib.parse import parse_qsl, unquote, urlsplit

from flyball.core.server_url import check_server, redacted
from flyball.errors import UsageError

SPACE = "flyball"
"""The schema that everything is in, unless the address names another ``space``."""
ANSWER_S = 5.0
"""How long an answer may take before the server counts as gone."""
CONNECTIONS = 8
"""Of one process, at most. More threads than that wait for each other; on one pool they would anyway."""
_OURS = ("space", "socket_timeout", "connections")
_SPACE_BYTES = 63


@dataclass(frozen=True, slots=True)
class Address:
    conninfo: str = field(repr=False)
    """For the driver, with whatever is secret."""
    words: str
    """What any user may be shown: no user, no password, no options."""
    space: str
    answer_s: float
    connections: int
    secrets: tuple[str, ...] = field(repr=False)
    """What must never be shown, in every form in which it may turn up."""

    @property
    def patience_s(self) -> float:
        """How long the server itself waits, for a lock or for us: it gives up before we give it up."""
        return 0.8 * self.answer_s


def parse(url: str) -> Address:
    parts = urlsplit(check_server(url))
    options = dict(parse_qsl(parts.query))
    theirs = "&".join(
        option for option in parts.query.split("&") if option and option.partition("=")[0] not in _OURS
    )
    place = f"{parts.netloc}{parts.path}{'?' if theirs else ''}{theirs}"
    host = options.get("host", "")
    return Address(
        conninfo=f"postgresql://{place}",
        words=f"{redacted(url).partition('?')[0]} (at {host})" if host else redacted(url).partition("?")[0],
        space=_space(options.get("space") or SPACE),
        answer_s=_seconds(options.get("socket_timeout", "")),
        connections=_number(options.get("connections", "")),
        secrets=_secrets(parts.netloc, parts.query),
    )


def _secrets(netloc: str, query: str) -> tuple[str, ...]:
    user, _, _ = netloc.rpartition("@")
    _, _, password = user.partition(":")
    options = (option.partition("=") for option in query.split("&"))
    named = [text for name, _, text in options if "password" in name]
    found = [secret for secret in (password, *named) if secret]
    return tuple(dict.fromkeys([*found, *map(unquote, found)]))


def _space(name: str) -> str:
    if len(name.encode()) > _SPACE_BYTES or not name.isprintable() or name.startswith("pg_"):
        raise UsageError(
            f"space in FLYBALL_URL names a schema: up to {_SPACE_BYTES} printable bytes that do not begin "
            f"with pg_, not {name!r}"
        )
    return name


def _seconds(text: str) -> float:
    try:
        seconds = float(text or ANSWER_S)
    except ValueError:
        seconds = 0.0
    if not 0 < seconds < 1e6:
        raise UsageError(f"socket_timeout in FLYBALL_URL must be seconds above 0, not {text!r}")
    return seconds


def _number(text: str) -> int:
    number = int(text) if text.isascii() and text.isdigit() else CONNECTIONS if not text else 0
    if not 1 <= number <= 1000:
        raise UsageError(f"connections in FLYBALL_URL must be a number from 1 to 1000, not {text!r}")
    return number
