"""Whether the store answers: found out by a small write once a second, while that matters.

The store's steps run one after the other in a thread of their own, and one that meets a store that is away
may take many seconds to fail. So the gateway does not wait for a call to run into it: the write goes the way
of all steps, and a store that has not done it in time counts as away until it has.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from flyball.errors import StoreBusyError, StoreError
from flyball.governor.flow_drivers import store_threads
from flyball.host.clock import boot_seconds
from flyball.stores.port import Store

BEAT_S = 1.0
AGAIN_S = 0.25
"""How soon a store that is away is asked again."""
PATIENCE_S = 1.0
NOTE = "gateway"


class StoreHealth:
    """Used from one event loop only."""

    def __init__(
        self, store: Callable[[], Store], *, is_needed: Callable[[], bool], on_change: Callable[[], None]
    ) -> None:
        self._store, self._is_needed, self._on_change = store, is_needed, on_change
        self._beats: asyncio.Task[None] | None = None
        self._answering = asyncio.Event()
        self._answering.set()
        self.error: StoreError | None = None
        """Why it is away; None while it answers."""
        self._away_since = 0.0

    @property
    def answers(self) -> bool:
        return self.error is None

    @property
    def away_s(self) -> float:
        """How long it has been away, the sleep of the machine counted."""
        return 0.0 if self.answers else boot_seconds() - self._away_since

    def keep(self) -> None:
        """Beat as long as that is needed."""
        if self._beats is None or self._beats.done():
            self._beats = asyncio.ensure_future(self._beat())

    def fail(self, error: StoreError) -> None:
        """A step failed: the store is away until a write is done."""
        began, self.error = self.error is None, error
        if began:
            self._away_since = boot_seconds()
            self._answering.clear()
            self._on_change()
        self.keep()

    async def wait_for_answer(self, deadline: float) -> None:
        """Until it answers. Raises StoreError at the deadline, on the loop's clock."""
        try:
            async with asyncio.timeout_at(deadline):
                await self._answering.wait()
        except TimeoutError:
            raise self.error or StoreBusyError("the state does not answer") from None

    async def _beat(self) -> None:
        while self._is_needed():
            await asyncio.sleep(BEAT_S if self.answers else AGAIN_S)
            written = store_threads().begin(lambda: self._store().note(NOTE, ""))
            done, _ = await asyncio.wait({written}, timeout=PATIENCE_S)
            if not done:
                self.fail(StoreBusyError(f"the state did not answer within {PATIENCE_S:g} s"))
            try:
                await written
            except StoreError as error:
                self.fail(error)
            else:
                self._recover()

    def _recover(self) -> None:
        if not self.answers:
            self.error = None
            self._answering.set()
            self._on_change()

    def close(self) -> None:
        if self._beats is not None:
            self._beats.cancel()
