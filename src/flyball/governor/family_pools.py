"""The pools of a state whose models have pools of their own (``core/pool/families.py``).

The settings are read when asked to, and answers come from what was read last: a call must not wait for them.
A family's pool begins with the settings that a person named for the whole pool.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, cast

from flyball.core.pool.families import family_pool
from flyball.governor.internals import internals

if TYPE_CHECKING:
    from flyball.core.pool.settings import PoolChanges
    from flyball.governor.governor import Governor

REFRESH_S = 5.0
_NOT_INHERITED = ("families",)


class FamilyPools:
    def __init__(self, governor: Governor) -> None:
        self._governor = governor
        self._named: Mapping[str, PoolChanges] = {}

    def refresh(self) -> None:
        """Read the settings again. Raises StoreError."""
        self._named = internals(self._governor).store.named_settings()
        for pool, named in tuple(self._named.items()):
            for family in named.get("families", {}):
                if f"{pool}:{family}" not in self._named:
                    self._begin(f"{pool}:{family}", named)

    def _begin(self, pool: str, named: PoolChanges) -> None:
        inherited = {key: value for key, value in named.items() if key not in _NOT_INHERITED}
        self._governor.set_pool(pool, **cast("PoolChanges", inherited))
        self._named = {**self._named, pool: cast("PoolChanges", inherited)}

    def has_families(self, pool: str) -> bool:
        return bool(self._named.get(pool, {}).get("families"))

    def weights(self, pool: str) -> Mapping[str, float]:
        """Of the projects of a pool, where a person named some."""
        return self._named.get(pool, {}).get("weights", {})

    def pool(self, pool: str, model: str) -> str:
        """The pool for a call of this model, where this one is meant for its provider and account."""
        return family_pool(pool, self._named.get(pool, {}).get("families", {}), model)
