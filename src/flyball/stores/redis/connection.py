"""A connection to a server: what it must be like, what time it is there, and its errors in our words.

A server that is too old, evicts keys, or only follows another one is refused when it is first used, and so is
a user without the rights that are needed. Nothing is ever sent twice by itself: a grant whose answer was lost
must not be made again (``LostAsk`` in script_runner.py). So every script carries the time until which its
sender waits, on the server's clock; one that arrives later, out of the buffer of a server that was stopped,
changes nothing.

Whatever was opened is closed by ``close``, and without that call when the server is no longer used or
the process ends. A thread that was in the middle of something then cannot open anything again.

Scripts go over connections of their own (script_connections.py). Where the address asks for nothing that only
the driver can do, a small client of ours (plain_client.py) takes its place, and the driver is not loaded.
"""

from __future__ import annotations

import contextlib
import threading
import time
import weakref
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NoReturn, cast
from urllib.parse import parse_qsl, urlencode, urlsplit

from flyball.errors import FlyballError, StoreClosedError, StoreError, StoreReadOnlyError, UsageError
from flyball.host.install_hints import extra_command
from flyball.stores.redis.errors import NotSentError, as_store_error, maybe_done
from flyball.stores.redis.script_connections import script_sender

if TYPE_CHECKING:
    from flyball.stores.redis.scripts import Script


ANSWER_S = 5.0
"""How long an answer may take before the server counts as gone."""
OLDEST = (6, 2)
_PLAIN_OPTIONS = frozenset({"db", "socket_timeout"})
"""What else an address asks for, the driver knows alone."""
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
    """An address that may be shown to any user: no user, no password, no options."""
    parts = urlsplit(url)
    host = parts.netloc.rpartition("@")[2]
    return f"{parts.scheme}://{host}{parts.path}"


def split_space(url: str) -> tuple[str, str]:
    """An address without the option that is ours, and that option."""
    address, _, query = url.partition("?")
    options = dict(parse_qsl(query))
    space = options.pop("space", "")
    return (f"{address}?{urlencode(options)}" if options else address), space


class _Link:
    """The driver's client, kept apart so that it can be closed when its server is gone."""

    def __init__(self) -> None:
        self.client: Any = None

    def drop(self) -> None:
        for client in _clients(self.client):
            with contextlib.suppress(Exception):
                type(client).close(client)
            # It closes itself once more when it is freed, and waits for a lock then. At the end of a process
            # that lock may be a thread's that will never run again.
            client.close = lambda: None


def _clients(client: Any) -> list[Any]:
    """A client, and those of a cluster's nodes."""
    if client is None:
        return []
    nodes = client.get_nodes() if hasattr(client, "get_nodes") else []
    return [client, *(node.redis_connection for node in nodes if node.redis_connection is not None)]


class RedisConnections:
    """One server, or a cluster of them. Safe to use from many threads, and after a fork."""

    def __init__(self, url: str) -> None:
        self.words = without_password(url)
        self.answer_s = _answer_s(url)
        self.space = ""
        """What keys and channels begin with, for words about rights."""
        self.closed = False
        self._lock = threading.Lock()
        self._client: Any = None
        self._send: Callable[..., Any] | None = None
        """How scripts are sent, while there is a client."""
        self._link = _Link()
        # Left to the garbage collector, a socket may go before the client that would have closed it.
        weakref.finalize(self, self._link.drop)
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
        send = self._send or self._open_sender()
        try:
            return send("EVALSHA", script.sha, 1, key, *arguments)
        except Exception as error:
            if type(error).__name__ != "NoScriptError":
                self._fail(error)
        return self.ask("EVAL", script.text, 1, key, *arguments)

    def _open_sender(self) -> Callable[..., Any]:
        client = self._ready()
        # Another thread may have closed it again; its own method says so.
        return self._send or cast("Callable[..., Any]", client.execute_command)

    def ask(self, *command: Any) -> Any:
        client = self._client or self._ready()
        try:
            return client.execute_command(*command)
        except Exception as error:
            self._fail(error)

    def listener(self) -> RedisListener:
        """A connection of its own that listens to channels."""
        client = self._client or self._ready()
        return RedisListener(self, client.pubsub())

    def close(self) -> None:
        """Close permanently; it cannot be opened again."""
        self.closed = True
        self._drop()

    def _drop(self) -> None:
        """Close all connections; the next call opens another."""
        with self._lock:
            self._link.drop()
            self._client = self._send = None

    def after_fork_in_child(self) -> None:
        """The sockets are the parent's."""
        self._lock = threading.Lock()
        self._client = self._send = self._link.client = None

    def _ready(self) -> Any:
        with self._lock:
            if self._client is not None:
                return self._client
            client = self._open_client()
            self._client, self._send = client, script_sender(client)
        try:
            self.on_open()
        except BaseException:
            self._drop()
            raise
        return client

    def _open_client(self) -> Any:
        self._check_open()
        try:
            self._link.client = self._connect()
            self._examine(self._link.client)
            self._check_open()
        except FlyballError:
            self._link.drop()
            raise
        except (TypeError, ValueError) as error:
            # An option that the driver does not know, or a port that is not a number.
            self._link.drop()
            raise UsageError(f"cannot use FLYBALL_URL for {self.words}: {error}") from None
        except Exception as error:
            self._link.drop()
            self._fail(error if isinstance(error, NotSentError) else NotSentError(error))
        return self._link.client

    def _check_open(self) -> None:
        if self.closed:
            raise StoreClosedError(f"the connection to {self.words} was closed")

    def _examine(self, client: Any) -> None:
        """Refuse a server on which leases would not be safe."""
        self.seen_at(client.time() if not hasattr(client, "get_primaries") else _any_time(client))
        for info in _infos(client):
            self._check_version(str(info.get("redis_version", "0")))
            self._check_eviction(str(info.get("maxmemory_policy", "noeviction")))
            if info.get("role") == "slave":
                raise as_store_error(Exception("READONLY"), self.words, self.answer_s, self.space)

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
            if hasattr(client, "execute_all"):
                return cast("list[Any]", client.execute_all(commands))
            with client.pipeline(transaction=False) as pipe:
                for command in commands:
                    pipe.execute_command(*command)
                answers: list[Any] = pipe.execute()
                return answers
        except Exception as error:
            self._fail(error)

    def _fail(self, error: Exception) -> NoReturn:
        driver_error = error.error if isinstance(error, NotSentError) else error
        ours = as_store_error(driver_error, self.words, self.answer_s, self.space)
        ours.maybe_done = maybe_done(error)
        if isinstance(ours, StoreReadOnlyError) and self._client is not None:
            # Another server may be the primary by now: the next call finds out which.
            self._drop()
        if self.closed:
            ours = StoreClosedError(f"the connection to {self.words} was closed")
        try:
            raise ours from error
        finally:
            # An error that knows its own frame is only freed by the garbage collector, with all it knows.
            del ours, driver_error, error


class RedisListener:
    """Implements ``Listener`` (wake/pubsub.py), until its server is closed."""

    def __init__(self, server: RedisConnections, pubsub: Any) -> None:
        self._server, self._pubsub = weakref.ref(server), pubsub

    def subscribe(self, *channels: str) -> None:
        self._check_open()
        self._pubsub.subscribe(*channels)
        self._check_open()

    def get_message(self, *, timeout: float) -> Any:
        self._check_open()
        return self._pubsub.get_message(timeout=timeout)

    def ping(self) -> None:
        self._pubsub.ping()

    def close(self) -> None:
        self._pubsub.close()

    def _check_open(self) -> None:
        server = self._server()
        if server is None or server.closed:
            raise StoreClosedError("the listener was closed with its store")


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
    needs_driver = clustered or scheme == "rediss" or not options.keys() <= _PLAIN_OPTIONS

    def connect() -> Any:
        make = None if needs_driver else _plain_client()
        if make is not None:
            return make(plain, answer_s)
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


def _plain_client() -> Callable[[str, float], Any] | None:
    """What makes a client without the driver; None where the parser is not installed."""
    try:
        from flyball.stores.redis.plain_client import open_plain
    except ImportError:
        return None
    return open_plain


def _driver() -> Any:
    try:
        import redis
        import redis.backoff
        import redis.cluster
        import redis.retry
    except ImportError as error:
        raise UsageError(
            f"FLYBALL_URL names a Redis server, and its driver is not installed: {extra_command('redis')}"
        ) from error
    return redis
