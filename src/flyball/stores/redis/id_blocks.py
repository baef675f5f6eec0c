"""Which pools there are, and whose a claim is.

Pools take ids by the block, and a block belongs to one pool as long as the server forgets nothing. The
registry is one key of its own, never touched together with a pool's.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from flyball.errors import StoreUnreadableError
from flyball.stores.redis.connection import RedisConnections
from flyball.stores.redis.scripts import LAYOUT, Script

SPACE = "flyball"
"""What every key begins with, unless the address names another ``space``."""
LOOK_EVERY_S = 1.0
"""So often a process that uses the server looks whether a newer flyball has."""
_OURS = ("next", "layout")
"""Fields of the registry that are not blocks."""


class IdBlocks:
    def __init__(
        self, server: RedisConnections, register: Callable[[], Script], *, id_block: int, space: str
    ) -> None:
        self._server, self._register, self._id_block = server, register, id_block
        self._space, self._key = space, f"{space}:registry"
        self._looked_at = 0.0
        self._owners: dict[int, str] = {}
        self._keys: dict[str, str] = {}

    def pool_key(self, pool: str) -> str:
        """What all keys of a pool begin with. The braces keep them together in a cluster."""
        key = self._keys.get(pool)
        if key is None:
            key = self._keys[pool] = f"{self._space}:{{{pool.translate(_BRACES)}}}:"
        return key

    @property
    def channels(self) -> str:
        """What all channels of this space begin with (``session.publish`` in lua/lib/pool_session.lua)."""
        return f"{self._space}:wake:"

    def check(self) -> None:
        """Refuse a user who may not publish: a script that fails at it has written half of what it should.

        And what a newer flyball has written: it may mean other things by it.
        """
        self._server.ask("PUBLISH", self.channels, "")
        self.check_layout()

    def look_for_a_newer_layout(self) -> None:
        """Now and then: another flyball may have come to a server that is in use."""
        if time.monotonic() - self._looked_at >= LOOK_EVERY_S:
            self.check_layout()

    def check_layout(self) -> None:
        layout = self._server.ask("HGET", self._key, "layout")
        if layout is None or int(layout) <= LAYOUT:
            self._looked_at = time.monotonic()
        else:
            raise StoreUnreadableError(
                f"the state on {self._server.words} is of a newer flyball (layout {layout}, this one knows "
                f"{LAYOUT}); upgrade flyball here"
            )

    def take_block(self, pool: str) -> int:
        """The first of a block of ids that no other pool will use."""
        number = int(self._server.run(self._register(), self._key, pool))
        self._owners[number] = pool
        return number * self._id_block + 1

    def note_owner(self, claim_id: int, pool: str) -> None:
        """A claim of this pool was given this id: after a loss its block may have been another pool's."""
        self._owners[claim_id // self._id_block] = pool

    def find_pool(self, claim_id: int) -> str | None:
        """The pool whose block the id is from; None if there is none."""
        number = claim_id // self._id_block
        pool = self._owners.get(number)
        if pool is None:
            pool = self._server.ask("HGET", self._key, str(number))
            if pool is not None:
                self._owners[number] = pool
        return pool

    def find_blocks(self, pool: str) -> list[str]:
        found = _as_dict(self._server.ask("HGETALL", self._key))
        return [number for number, owner in found.items() if number not in _OURS and owner == pool]

    def forget(self, blocks: list[str]) -> None:
        """The pool of these blocks is gone. One of its name that was made meanwhile has others."""
        if blocks:
            self._server.ask("HDEL", self._key, *blocks)

    def note(self, name: str, fresh: str) -> str:
        """A small text that is kept for all: what is there, or ``fresh`` from now on."""
        key = f"{self._space}:notes"
        self._server.ask("HSETNX", key, name, fresh)
        return str(self._server.ask("HGET", key, name))

    def set_note(self, name: str, text: str) -> None:
        self._server.ask("HSET", f"{self._space}:notes", name, text)

    def notes(self, prefix: str) -> dict[str, str]:
        found = _as_dict(self._server.ask("HGETALL", f"{self._space}:notes"))
        return {name: text for name, text in found.items() if name.startswith(prefix)}

    def pools(self) -> list[str]:
        found: dict[str, str] = _as_dict(self._server.ask("HGETALL", self._key))
        self._owners.update((int(number), pool) for number, pool in found.items() if number not in _OURS)
        return sorted({pool for number, pool in found.items() if number not in _OURS})


def _as_dict(answer: dict[str, str] | list[str]) -> dict[str, str]:
    return answer if isinstance(answer, dict) else dict(zip(answer[::2], answer[1::2], strict=True))


_BRACES = str.maketrans({"%": "%25", "{": "%7B", "}": "%7D"})
