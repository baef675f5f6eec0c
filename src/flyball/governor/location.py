"""Where the state is: an address, ``FLYBALL_URL``, or a file under ``FLYBALL_HOME``."""

from __future__ import annotations

import os
import random
from pathlib import Path
from typing import TYPE_CHECKING

from flyball.errors import StoreError, UsageError
from flyball.host import memory as machine_memory
from flyball.host.clock import boot_seconds
from flyball.host.process import me
from flyball.stores.desk import World
from flyball.wake.mailbox import runtime_folder

if TYPE_CHECKING:
    from flyball.stores.port import Store

FILE_NAME = "governor.db"


def home() -> Path:
    """``FLYBALL_HOME``, default ``~/.flyball``."""
    named = os.environ.get("FLYBALL_HOME")
    if named is not None and not named.strip():
        raise UsageError("FLYBALL_HOME is set but empty; unset it or name a folder")
    return Path(named).expanduser().absolute() if named else Path.home() / ".flyball"


def resolve(url: str | None = None) -> str:
    """The full address of the state: ``memory:`` or ``sqlite:///path``."""
    address = url if url is not None else os.environ.get("FLYBALL_URL") or f"sqlite://{home() / FILE_NAME}"
    if address == "memory:":
        return address
    scheme, _, rest = address.partition("://")
    if scheme == "sqlite" and rest.startswith("/") and not rest.endswith("/"):
        return address
    raise UsageError(
        f"cannot use {_without_password(address)!r} as the place for state; "
        "this version knows memory: and sqlite:///absolute/path.db"
    )


def path_of(address: str) -> Path | None:
    """The file behind an address; None for memory."""
    return None if address == "memory:" else Path(address.removeprefix("sqlite://"))


def open_store(address: str) -> Store:
    path = path_of(address)
    if path is None:
        from flyball.stores.memory import MemoryStore

        return MemoryStore(World(boot_seconds, random.random, machine_memory.free_bytes, me))
    return _open_file(path, read_only=False)


def open_reader(address: str) -> Store:
    """A store that is only read. Where there is no state yet, it makes none."""
    path = path_of(address)
    if path is None or not _exists(path):
        return open_store("memory:")
    from flyball.stores.sqlite.store import StoreEmptyError

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
    world = World(clock, random.random, machine_memory.free_bytes, me)
    return SqliteStore(path, world, clock, read_only=read_only)


def mail_home(address: str) -> Path:
    """The folder beside which mailboxes live."""
    path = path_of(address)
    return path.parent if path is not None else runtime_folder()


def _without_password(address: str) -> str:
    scheme, separator, rest = address.partition("://")
    user, at, host = rest.rpartition("@")
    return f"{scheme}{separator}...@{host}" if at and user else address
