"""What a store knows from outside its rows, under a test's control: time, chance, memory, identity."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

from flyball.core.pool.holder import Holder
from flyball.errors import UsageError
from flyball.stores.pool_session import Environment


class ManualClock:
    """Time that moves only by ``advance``; call it for the time.

    >>> clock = ManualClock(10.0)
    >>> clock.advance(2.5)
    12.5
    >>> clock()
    12.5
    """

    def __init__(self, now: float = 1_000.0) -> None:
        self._now = now

    def __call__(self) -> float:
        return self._now

    def advance(self, seconds: float) -> float:
        """Let time pass; the new time."""
        if not seconds >= 0:
            raise UsageError(f"time passes forwards only, not by {seconds!r} s")
        self._now += seconds
        return self._now


HERE = Holder("here", "boot-1", 1, 1, 1)


class FakeWorld:
    """Simulated time, seeded chance, settable memory, and a process that does not really run."""

    def __init__(self, *, seed: int = 0, now: float = 1_000.0, here: Holder = HERE) -> None:
        self.clock = ManualClock(now)
        self.seed = seed
        self.memory_free_bytes: int | None = None
        self.cpu_pressure: float | None = None
        self.here = here
        self.epoch = "first"
        """Change it where a store should think that it may have lost what it knew."""

    def ports(self, clock: Callable[[], float] | None = None) -> Environment:
        """What a store is given. Chance starts anew each time, so two stores see the same."""
        chance = Random(self.seed).random
        return Environment(
            clock or self.clock,
            chance,
            lambda: self.memory_free_bytes,
            lambda: self.here,
            lambda: self.epoch,
            cpu_pressure=lambda: self.cpu_pressure,
        )
