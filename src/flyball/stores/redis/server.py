"""A connection to a server: what it must be like, what time it is there, and its errors in our words.

A server that is too old, evicts keys, or only follows another one is refused when it is first used. Nothing
is ever sent twice by itself: a grant whose answer was lost must not be made again (``Unheard`` in steps.py).
So every script carries the time until which its sender waits, on the server's clock; one that arrives later,
out of the buffer of a server that was stopped, changes nothing.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar
from urllib.parse import parse_qsl, urlencode, urlsplit

from flyball.errors import (
    FlyballError,
    StoreBusyError,
    StoreError,
    StoreFullError,
    StoreReadOnlyError,
    UsageError,
)

if TYPE_CHECKING:
    from flyball.stores.redis.scripts import Script

R = TypeVar("R")
ANSWER_S = 5.0
"""How long an answer may take before the server counts as gone."""
OLDEST = (6, 2)
SCHEMES = {
    "redis": "redis",
    "rediss": "rediss",
    "valkey": "redis",
    "valkeys": "rediss",
    "redis+cluster": "redis",
    "rediss+cluster": "rediss",
    "redis+unix": "unix",
}


def without_password(url: str) -> str:
    """An address that may be shown to anybody: no user, no password, no options."""
    parts = urlsplit(url)
    host = parts.netloc.rpartition("@")[2]
    return f"{parts.scheme}://{host}{parts.path}"


def split_space(url: str) -> tuple[str, str]:
    """An address without the option that is ours, and that option."""
    address, _, query = url.partition("?")
    options = dict(parse_qsl(query))
    space = options.pop("space", "")
    return (f"{address}?{urlencode(options)}" if options else address), space


class Server:
    """One server, or a cluster of them. Safe to use from many threads, and after a fork."""

    def __init__(self, url: str) -> None:
        self.words = without_password(url)
        self.answer_s = _answer_s(url)
        self._lock = threading.Lock()
        self._client: Any = None
        self._offset_s = 0.0
        self._connect: Callable[[], Any] = _connector(url, self.answer_s)
        self.on_open: Callable[[], None] = lambda: None
        """Called once with the first connection, before anything else is asked."""

    # -- time ---------------------------------------------------------------------------------------

    def now(self) -> float:
        """The server's own time, asked for."""
        return self.seen_at(self.ask("TIME"))

    def seen_at(self, answer: Sequence[Any]) -> float:
        """Note what the server just said about the time."""
        now = float(answer[0]) + float(answer[1]) / 1e6
        self.note_time(now)
        return now

    def note_time(self, now: float) -> None:
        self._offset_s = now - time.monotonic()

    def deadline(self) -> float:
        """Until when, on the server's clock, we wait for what is sent now."""
        return time.monotonic() + self._offset_s + self.answer_s

    # -- talking ------------------------------------------------------------------------------------

    def run(self, script: Script, key: str, *arguments: str) -> Any:
        """Run a script in one round trip; where the server does not know it, in two."""
        client = self._client or self._ready()
        try:
            return client.execute_command("EVALSHA", script.sha, 1, key, *arguments)
        except Exception as error:
            if type(error).__name__ != "NoScriptError":
                self._fail(error)
        return self.ask("EVAL", script.text, 1, key, *arguments)

    def ask(self, *command: Any) -> Any:
        client = self._client or self._ready()
        try:
            return client.execute_command(*command)
        except Exception as error:
            self._fail(error)

    def listener(self) -> Any:
        """A connection of its own that hears channels."""
        client = self._client or self._ready()
        return client.pubsub()

    def close(self) -> None:
        with self._lock:
            if self._client is not None:
                self._client.close()
            self._client = None

    def after_fork_in_child(self) -> None:
        """The sockets are the parent's."""
        self._lock = threading.Lock()
        self._client = None

    def _ready(self) -> Any:
        with self._lock:
            if self._client is None:
                try:
                    client = self._connect()
                    self._examine(client)
                except FlyballError:
                    raise
                except (TypeError, ValueError) as error:
                    # An option that the driver does not know, or a port that is no number.
                    raise UsageError(f"cannot use FLYBALL_URL for {self.words}: {error}") from None
                except Exception as error:
                    self._fail(error)
                self._client = client
            else:
                return self._client
        try:
            self.on_open()
        except BaseException:
            self._client = None
            raise
        return client

    def _examine(self, client: Any) -> None:
        """Refuse a server on which leases would not be safe."""
        self.seen_at(client.time() if not hasattr(client, "get_primaries") else _any_time(client))
        for info in _infos(client):
            self._check_version(str(info.get("redis_version", "0")))
            self._check_eviction(str(info.get("maxmemory_policy", "noeviction")))
            if info.get("role") == "slave":
                raise translated(Exception("READONLY"), self.words, self.answer_s)

    def _check_version(self, version: str) -> None:
        parts = tuple(int(part) for part in version.split(".")[:2] if part.isdigit())
        if parts < OLDEST:
            raise StoreError(f"{self.words} is Redis {version}; flyball needs 6.2 or newer, or Valkey")

    def _check_eviction(self, policy: str) -> None:
        # The volatile policies only drop keys that expire, and none of ours does.
        if policy.startswith("allkeys"):
            raise StoreError(
                f"{self.words} drops keys when its memory is full (maxmemory-policy {policy}), and leases "
                "with them; set maxmemory-policy noeviction, or name another server in FLYBALL_URL"
            )

    def ask_all(self, commands: Sequence[Sequence[Any]]) -> list[Any]:
        """Several commands in one round trip; they do not belong together."""
        client = self._client or self._ready()
        try:
            with client.pipeline(transaction=False) as pipe:
                for command in commands:
                    pipe.execute_command(*command)
                answers: list[Any] = pipe.execute()
                return answers
        except Exception as error:
            self._fail(error)

    def _fail(self, error: Exception) -> NoReturn:
        ours = translated(error, self.words, self.answer_s)
        if isinstance(ours, StoreReadOnlyError):
            # Another server may be the primary by now: the next call finds out which.
            self.close()
        raise ours from error


def maybe_done(error: BaseException) -> bool:
    """Was it perhaps done although it failed? Not where no connection came about, or it was refused."""
    cause = error.__cause__
    lost = type(cause).__name__ in ("TimeoutError", "ConnectionError") if cause is not None else True
    return lost and "connecting to" not in str(cause)


def translated(error: Exception, server: str, answer_s: float) -> StoreError:
    """A driver's error as ours, with the way out. Neither carries a password."""
    kind, words = type(error).__name__, str(error)
    if kind in ("TimeoutError", "ReadTimeout"):
        secure = server.startswith(("rediss", "valkeys"))
        maybe = "does it speak no TLS (then redis://), or is it paused" if secure else "is it paused"
        return StoreBusyError(f"{server} did not answer within {answer_s:g} s; {maybe}, or the network down?")
    for ailment in _AILMENTS:
        if kind in ailment.kinds or any(sign in words for sign in ailment.signs):
            return ailment.error(f"{server} {ailment.words.format(reason=_reason(words))}")
    return StoreError(f"{server}: {words or kind}")


def _reason(words: str) -> str:
    """What went wrong, without the address that the driver puts in front of it."""
    return words.rpartition("connecting to ")[2].strip() or words


@dataclass(frozen=True, slots=True)
class _Ailment:
    """How a driver says it, by class or in words (a script's error has only words), and how we do."""

    kinds: tuple[str, ...]
    signs: tuple[str, ...]
    words: str
    error: type[StoreError] = StoreError


_AILMENTS = (
    _Ailment(
        ("AuthenticationError", "AuthenticationWrongNumberOfArgsError"),
        ("WRONGPASS", "NOAUTH", "invalid username-password", "Authentication required"),
        "refuses the user or password; set them in FLYBALL_URL (redis://user:password@host)",
    ),
    _Ailment(
        ("NoPermissionError",),
        ("NOPERM", "no permissions"),
        "forbids a command ({reason}); flyball's user needs +@all on keys and channels flyball:*",
    ),
    _Ailment(
        (),
        ("SSL", "CERTIFICATE"),
        "gives no secure connection ({reason}); rediss:// needs a server that speaks TLS, ?ssl_ca_certs= "
        "names its certificate authority",
    ),
    _Ailment(("OutOfMemoryError",), ("OOM",), "has no memory left; raise its maxmemory", StoreFullError),
    _Ailment((), ("MISCONF",), "cannot save to its disk and takes no writes; free its disk", StoreFullError),
    _Ailment(
        ("ReadOnlyError",),
        ("READONLY", "read only replica"),
        "only follows another server; name the primary in FLYBALL_URL",
        StoreReadOnlyError,
    ),
    _Ailment(
        ("BusyLoadingError",),
        ("LOADING",),
        "is still loading its data; try again in a moment",
        StoreBusyError,
    ),
    _Ailment(("MovedError",), ("MOVED",), "is part of a cluster; write redis+cluster:// in FLYBALL_URL"),
    _Ailment(
        ("ClusterDownError",), ("CLUSTERDOWN",), "is a cluster that is not whole ({reason}); mend it first"
    ),
    _Ailment(
        ("ConnectionError", "RedisClusterException", "MaxConnectionsError"),
        (),
        "cannot be reached ({reason}); is it running? FLYBALL_URL names it",
    ),
)


def _infos(client: Any) -> list[dict[str, Any]]:
    if hasattr(client, "get_primaries"):
        found = client.info(target_nodes=client.PRIMARIES)
        nodes = list(found.values()) if all(isinstance(value, dict) for value in found.values()) else [found]
        return [node for node in nodes if isinstance(node, dict)]
    return [client.info()]


def _any_time(client: Any) -> Sequence[Any]:
    found = client.time(target_nodes=client.RANDOM)
    answer = next(iter(found.values())) if isinstance(found, dict) else found
    return tuple(answer)


def _answer_s(url: str) -> float:
    """``?socket_timeout=`` as the driver knows it, or ours."""
    named = dict(parse_qsl(urlsplit(url).query)).get("socket_timeout", "")
    try:
        seconds = float(named or ANSWER_S)
    except ValueError:
        seconds = 0.0
    if not 0 < seconds < 1e6:
        raise UsageError(f"socket_timeout in FLYBALL_URL must be seconds above 0, not {named!r}")
    return seconds


def _connector(url: str, answer_s: float) -> Callable[[], Any]:
    """What makes a client for this address. The driver is imported when it is first needed."""
    parts = urlsplit(url)
    options = dict(parse_qsl(parts.query))
    clustered = parts.scheme.endswith("+cluster") or options.pop("cluster", "") in ("1", "true", "yes")
    scheme = SCHEMES[parts.scheme]
    query = f"?{urlencode(options)}" if options else ""
    plain = f"{scheme}://{parts.netloc}{parts.path}{query}"

    def connect() -> Any:
        redis = _driver()
        common: dict[str, Any] = {
            "decode_responses": True,
            "encoding_errors": "surrogateescape",
            "socket_timeout": answer_s,
            "socket_connect_timeout": answer_s,
            "protocol": 2,
        }
        if scheme != "unix":
            common["socket_keepalive"] = True
        once = redis.retry.Retry(redis.backoff.NoBackoff(), 0)
        if clustered and int(redis.__version__.partition(".")[0]) < 6:
            # Before version 6 a cluster's client sends again by itself, whatever it is told about retries.
            common["cluster_error_retry_attempts"] = 0
        if clustered:
            return redis.cluster.RedisCluster.from_url(plain, retry=once, **common)
        return redis.Redis.from_url(plain, retry=once, max_connections=4096, **common)

    return connect


def _driver() -> Any:
    try:
        import redis
        import redis.backoff
        import redis.cluster
        import redis.retry
    except ImportError as error:
        raise UsageError(
            "FLYBALL_URL names a Redis server, and its driver is not installed: pip install 'flyball[redis]'"
        ) from error
    return redis
