"""Where the state is: an address, ``FLYBALL_URL``, or a file under ``FLYBALL_HOME``."""

from __future__ import annotations

import os
import random
from pathlib import Path
from typing import TYPE_CHECKING

from flyball.errors import StoreError
from flyball.host import resources
from flyball.host.clock import boot_seconds
from flyball.host.process import me, stands_still
from flyball.host.state_folder import POSTGRES, SERVERS
from flyball.host.state_folder import home as home
from flyball.host.state_folder import resolve as resolve
from flyball.stores.pool_session import Environment
from flyball.wake.mailbox import open_mailbox, runtime_folder

if TYPE_CHECKING:
    from collections.abc import Callable

    from flyball.stores.port import Store
    from flyball.wake.mailbox import Box


def on_server(address: str) -> bool:
    """Is the state on a server that many machines may share?"""
    return address.partition("://")[0] in SERVERS


def _on_postgres(address: str) -> bool:
    return address.partition("://")[0] in POSTGRES


def same_place(one: str, other: str) -> bool:
    """Do two addresses lead to the same state? Memory is its governor's own."""
    if one == other:
        return one != "memory:"
    file, another = path_of(one), path_of(other)
    return file is not None and another is not None and os.path.realpath(file) == os.path.realpath(another)


def path_of(address: str) -> Path | None:
    """The file behind an address; None for memory and for a server."""
    return Path(address.removeprefix("sqlite://")) if address.startswith("sqlite://") else None


def open_store(address: str) -> Store:
    if _on_postgres(address):
        from flyball.stores.postgres.opening import open_postgres

        return open_postgres(address, chance=random.random, here=me, stands_still=stands_still)
    if on_server(address):
        from flyball.stores.redis.store import open_redis

        return open_redis(address, chance=random.random, here=me, stands_still=stands_still)
    path = path_of(address)
    if path is None:
        from flyball.stores.memory import MemoryStore

        return MemoryStore(_world(boot_seconds))
    return _open_file(path, read_only=False)


def _world(clock: Callable[[], float]) -> Environment:
    """What a store beside us may know of this machine."""
    return Environment(
        clock,
        random.random,
        resources.free_bytes,
        me,
        stands_still=stands_still,
        cpu_pressure=resources.cpu_pressure,
    )


def open_reader(address: str) -> Store:
    """A store that is only read. Where there is no state yet, it makes none."""
    if on_server(address):
        return open_store(address)
    path = path_of(address)
    if path is None or not _exists(path):
        return open_store("memory:")
    from flyball.stores.sqlite.schema import StoreEmptyError

    try:
        return _open_file(path, read_only=True)
    except StoreEmptyError:
        return open_store("memory:")


def _exists(path: Path) -> bool:
    try:
        return path.exists()
    except OSError as error:
        words = f"cannot read {path} ({error.strerror}); set FLYBALL_HOME to a folder you own"
        raise StoreError(words) from error


def _open_file(path: Path, *, read_only: bool) -> Store:
    from flyball.stores.sqlite.clock import StoreClock
    from flyball.stores.sqlite.store import SqliteStore

    clock = StoreClock()
    world = _world(clock)
    return SqliteStore(path, world, clock, read_only=read_only)


def open_box(address: str, store: Store) -> Box | None:
    """A mailbox that every process that works on this state can reach; None where none can be had."""
    if not on_server(address):
        return open_mailbox(mail_home(address))
    from flyball.wake.pubsub import open_subscriptions

    if _on_postgres(address):
        from flyball.stores.postgres import store as postgres
        from flyball.stores.postgres import transaction

        return open_subscriptions(address, postgres.listener_factory(store), transaction.CHANNEL).open_box()
    from flyball.stores.redis.store import channel_prefix, listener_factory

    return open_subscriptions(address, listener_factory(store), channel_prefix(store)).open_box()


def mail_home(address: str) -> Path:
    """The folder beside which mailboxes and run folders live: always of this machine."""
    path = path_of(address)
    if path is not None:
        return path.parent
    return home() if on_server(address) else runtime_folder()
