"""A real Redis server for the benches of the fleet, and what it and its driver have done so far."""

from __future__ import annotations

import random
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, cast

import redis

from flyball.core.pool.model import Ask
from flyball.host.process import me, stands_still
from flyball.stores.port import Release
from flyball.stores.redis.plain_client import PlainConnection
from flyball.stores.redis.script_connections import ScriptConnections, script_sender
from flyball.stores.redis.store import RedisStore, open_redis
from tests.redis_server import RedisServer

POOL = "bench"


@contextmanager
def served() -> Iterator[RedisServer]:
    server = RedisServer()
    try:
        yield server
    finally:
        server.close()


class Client:
    """One store, and the no-op through its own connection."""

    def __init__(self, url: str) -> None:
        self.store: RedisStore = open_redis(url, chance=random.random, here=me, stands_still=stands_still)
        self.store.set_pool(POOL, {"cap": 1_000_000, "adaptive": False})
        self.link: Any = redis.Redis.from_url(url.removeprefix("redis+"), decode_responses=True)
        self._tell: Callable[..., Any] = script_sender(self.store._server._ready())
        noop = self.link.script_load("return ''")
        self._command = ("EVALSHA", noop, 1, "flyball:{bench}:", "now", "what")
        self.ask = ask("project-1")

    def noop(self) -> None:
        self.link.execute_command(*self._command)

    def noop_alike(self) -> None:
        """Sent the way the store sends its scripts."""
        self._tell(*self._command)

    def admit(self) -> None:
        self.store.admit(self.ask, park=False)

    def clear(self) -> None:
        """Give everything back."""
        for claim in self.store.pool_census(POOL).claims:
            self.store.release(Release(claim.id))

    def server_us(self) -> float:
        """The server's processor time so far."""
        cpu = self.link.info("cpu")
        return float(cpu["used_cpu_sys"] + cpu["used_cpu_user"]) * 1e6


def ask(project: str) -> Ask:
    return Ask(pool=POOL, project=project, name="bench", holder=me())


@contextmanager
def counted_commands() -> Iterator[list[int]]:
    """How many commands were sent, whatever the driver says by itself when it opens a connection."""
    driver, lines = cast("Any", redis.Redis), cast("Any", ScriptConnections)
    plain, plain_call = driver.execute_command, lines.__call__
    given = [0]

    def counting(way: Callable[..., Any]) -> Callable[..., Any]:
        def counted(self: Any, *arguments: Any, **named: Any) -> Any:
            given[0] += 1
            return way(self, *arguments, **named)

        return counted

    driver.execute_command, lines.__call__ = counting(plain), counting(plain_call)
    try:
        yield given
    finally:
        driver.execute_command, lines.__call__ = plain, plain_call


@contextmanager
def counted_sends() -> Iterator[Counter[int]]:
    """By thread: how often the store sends something. Each send is followed by waiting for its answer."""
    connection: Any = PlainConnection
    sends: Counter[int] = Counter()
    plain: Callable[..., Any] = connection.send_packed_command

    def counting(self: Any, *arguments: Any, **named: Any) -> Any:
        sends[threading.get_ident()] += 1
        return plain(self, *arguments, **named)

    connection.send_packed_command = counting
    try:
        yield sends
    finally:
        connection.send_packed_command = plain
