"""The run's standing towards its pool: say that there is work, and know what the pool leaves it."""

from __future__ import annotations

import contextlib
import time

from flyball.core.pool.settings import DEMAND_TTL_S
from flyball.errors import StoreError
from flyball.factory.run.context import AgentLauncher
from flyball.factory.run.waiting import RunSlots
from flyball.factory.state.blocking_calls import run_in_thread

REFRESH_S = DEMAND_TTL_S / 3


class PoolStanding:
    def __init__(self, launcher: AgentLauncher, project: str, places: RunSlots) -> None:
        self._governor, self._pool = launcher.governor, launcher.pool
        self._project, self._places = project, places
        self._said_until = 0.0
        self._share_told = False
        self.words = ""
        """What the pool leaves this run, where that is less than its width; said once."""

    @property
    def refresh_in_s(self) -> float | None:
        return max(0.05, self._said_until - time.monotonic()) if self._said_until else None

    async def demand(self, wanted: bool) -> None:
        """A demand is renewed while there is ready work and dropped when there is none."""
        now = time.monotonic()
        if wanted == bool(self._said_until) and (not wanted or now < self._said_until):
            return
        self._said_until = now + REFRESH_S if wanted else 0.0
        with contextlib.suppress(StoreError):
            await run_in_thread(
                self._governor.demand,
                self._pool,
                self._project,
                ttl_s=DEMAND_TTL_S if wanted else 0.0,
            )

    async def look(self) -> None:
        """Compare the width with the fair share, once."""
        if self._share_told:
            return
        self._share_told = True
        with contextlib.suppress(StoreError):
            self.words = await run_in_thread(self._compare)

    def _compare(self) -> str:
        width = self._places.width
        pool = next((each for each in self._governor.status().pools if each.name == self._pool), None)
        if pool is None:
            return ""
        mine = next((each for each in pool.projects if each.name == self._project), None)
        rivals = sum(each.demanding and each.name != self._project for each in pool.projects)
        share = mine.fair_share if mine is not None else pool.cap
        if width <= share:
            return ""
        shared = f", shared by {rivals + 1} projects" if rivals else ""
        return (
            f"width {width} is more than this project's fair share: {share} of {pool.cap} {pool.name}{shared}"
        )
