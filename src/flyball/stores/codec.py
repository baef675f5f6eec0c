"""Settings and learned state as text. The only place that knows their stored shape.

msgspec is imported when something really has to be read or written: an admission under a fresh plan needs
none of it, and every start of an agent would pay for it.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TypeVar

from flyball.core.plan import Memory
from flyball.core.settings import MachineSettings, PoolChanges, PoolSettings, resolve_pool
from flyball.core.window import Window
from flyball.errors import StoreUnreadableError

T = TypeVar("T")
NOTHING_NAMED = "{}"


def dump(value: PoolChanges | Memory | MachineSettings) -> str:
    import msgspec

    return msgspec.json.encode(value).decode()


def load_changes(text: str) -> PoolChanges:
    return _decoded(text, PoolChanges, "stored pool settings") if text != NOTHING_NAMED else PoolChanges()


@lru_cache(maxsize=64)
def load_settings(text: str) -> PoolSettings:
    """The resolved settings for stored changes; cached because every plan asks."""
    return resolve_pool(load_changes(text))


def load_memory(text: str) -> Memory:
    return _decoded(text, Memory, "the pool's learned state")


def dump_windows(windows: tuple[Window, ...]) -> str:
    if not windows:
        return ""
    import msgspec

    return msgspec.json.encode(windows).decode()


def load_windows(text: str) -> tuple[Window, ...]:
    return _decoded(text, tuple[Window, ...], "the pool's windows") if text else ()


@lru_cache(maxsize=8)
def load_machine(text: str) -> MachineSettings:
    if text == NOTHING_NAMED:
        return MachineSettings()
    return _decoded(text, MachineSettings, "stored machine settings")


def _decoded(text: str, shape: type[T], what: str) -> T:
    import msgspec

    try:
        return msgspec.json.decode(text, type=shape)
    except msgspec.DecodeError as error:
        raise StoreUnreadableError(f"{what} cannot be read: {error}") from error
