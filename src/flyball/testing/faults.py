"""A store that fails when told to, so that callers can be tested against a world that breaks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from flyball.errors import StoreError, UsageError
from flyball.stores.port import Store

if TYPE_CHECKING:
    pass

VERBS = frozenset(name for name in vars(Store) if not name.startswith("_"))


class FaultyStore:
    """Passes every verb on to a real store, except the ones that are broken at the moment.

    ``remember`` cannot be broken: it is where a caller turns when something else is.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._broken: dict[str, StoreError] = {}
        self.calls: list[str] = []
        """Every verb that was called, broken or not, oldest first."""

    def break_on(self, *verbs: str, error: StoreError | None = None) -> None:
        """From now on these verbs raise instead of doing anything."""
        for verb in verbs:
            if verb not in VERBS or verb == "remember":
                raise UsageError(f"{verb!r} is not a method of a store that can fail")
            self._broken[verb] = error or StoreError(f"the store is broken on purpose: {verb}")

    def mend(self) -> None:
        """Everything works again."""
        self._broken.clear()

    @property
    def port(self) -> Store:
        """This object as the store it stands for."""
        return cast("Store", self)

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._store, name)
        if name not in VERBS:
            return found

        def call(*args: Any, **kwargs: Any) -> Any:
            self.calls.append(name)
            if name in self._broken:
                raise self._broken[name]
            return found(*args, **kwargs)

        return call
