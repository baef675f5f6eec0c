"""Settings and learned state as text. The only place that knows their stored shape."""

from __future__ import annotations

from functools import lru_cache

import msgspec

from flyball.core.plan import Memory
from flyball.core.settings import MachineSettings, PoolChanges, PoolSettings, resolve_pool
from flyball.errors import StoreUnreadableError

_changes = msgspec.json.Decoder(PoolChanges)
_memory = msgspec.json.Decoder(Memory)
_machine = msgspec.json.Decoder(MachineSettings)


def dump(value: PoolChanges | Memory | MachineSettings) -> str:
    return msgspec.json.encode(value).decode()


def load_changes(text: str) -> PoolChanges:
    try:
        return _changes.decode(text)
    except msgspec.DecodeError as error:
        raise StoreUnreadableError(f"stored pool settings are not readable: {error}") from error


@lru_cache(maxsize=64)
def load_settings(text: str) -> PoolSettings:
    """The resolved settings for stored changes; cached because every plan asks."""
    return resolve_pool(load_changes(text))


def load_memory(text: str) -> Memory:
    try:
        return _memory.decode(text)
    except msgspec.DecodeError as error:
        raise StoreUnreadableError(f"the pool's learned state is not readable: {error}") from error


@lru_cache(maxsize=8)
def load_machine(text: str) -> MachineSettings:
    try:
        return _machine.decode(text)
    except msgspec.DecodeError as error:
        raise StoreUnreadableError(f"stored machine settings are not readable: {error}") from error
