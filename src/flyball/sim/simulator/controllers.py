"""The contenders: flyball's own controllers by their names in settings, and the peers.

flyball runs in simulated time with the pool that the Limiter uses, unmodified.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import cast

from flyball.core.pool.local_pool import CallStart, LocalPool
from flyball.core.pool.setting_table import resolve_pool
from flyball.core.pool.settings import CONTROLLERS, PoolChanges
from flyball.core.signals import Signal
from flyball.sim.simulator import rivals
from flyball.sim.simulator.engine import CallPolicy
from flyball.sim.simulator.jobs import Job
from flyball.sim.simulator.rivals import Botocore, Koryph


class Governed:
    """A gate with any of flyball's controllers."""

    def __init__(self, changes: PoolChanges) -> None:
        self.gate = LocalPool(resolve_pool(changes), 0.0)

    @property
    def level(self) -> float:
        return float(self.gate.cap)

    def earliest_start(self, t_s: float, job: Job) -> float:
        return self.gate.earliest_start(t_s, {"tokens": job.tokens})

    def start(self, t_s: float, job: Job) -> object:
        return self.gate.start(t_s, {"tokens": job.tokens})

    def end(self, started: object, job: Job, signal: Signal, t_s: float) -> None:  # noqa: ARG002
        self.gate.end(cast(CallStart, started), signal, t_s)
        self.gate.facts.clear()


FIXED_LOW, FIXED_HIGH = 8, 64


@dataclass(frozen=True, slots=True)
class Contender:
    name: str
    words: str
    make: Callable[[PoolChanges, int, int], CallPolicy]
    """From the pool's settings (only flyball's own read them), a seed, and the number of callers."""
    ours: bool = False
    coordinates: bool = False
    """One policy can serve several processes."""


def _ours(name: str, words: str) -> Contender:
    return Contender(
        name,
        words,
        lambda pool, _, __: Governed(cast(PoolChanges, {**pool, "controller": name})),
        ours=True,
        coordinates=True,
    )


_OURS = {
    "measured": "flyball: measures the capacity (the default)",
    "article": "flyball: the article's AIMD with a memory",
    "koryph": "flyball: koryph's AIMD with a memory",
    "gradient2": "flyball: latency, for backends that queue",
    "fixed": f"flyball: the cap a person set, {FIXED_LOW} unless named",
}


def _peer(
    name: str, words: str, make: Callable[[int, int], CallPolicy], *, coordinates: bool = False
) -> Contender:
    return Contender(name, words, lambda _, seed, callers: make(seed, callers), coordinates=coordinates)


_PEERS = (
    _peer("fixed-low", f"a semaphore of {FIXED_LOW}", partial(rivals.Fixed, FIXED_LOW)),
    _peer("fixed-high", f"a semaphore of {FIXED_HIGH}", partial(rivals.Fixed, FIXED_HIGH)),
    _peer("article-aimd", "the article's AIMD as printed, ceiling 12", rivals.Article),
    _peer("article-raised", "the same with our ceiling of 512", partial(rivals.Article, ceiling=512.0)),
    _peer("koryph-aimd", "koryph's governor as shipped", Koryph, coordinates=True),
    _peer("netflix-aimd", "Netflix AIMDLimit", rivals.NetflixAimd),
    _peer("netflix-gradient2", "Netflix Gradient2Limit", rivals.NetflixGradient2),
    _peer("inspect", "Inspect's adaptive connections", rivals.Inspect),
    _peer("botocore", "botocore's adaptive retry mode", Botocore),
)

OURS: Mapping[str, Contender] = {name: _ours(name, _OURS[name]) for name in CONTROLLERS}
PEERS: Mapping[str, Contender] = {peer.name: peer for peer in _PEERS}
CONTENDERS: Mapping[str, Contender] = {**OURS, **PEERS}
DEFAULT = CONTROLLERS[0]
