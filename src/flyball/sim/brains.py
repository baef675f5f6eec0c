"""flyball itself in simulated time: the gate that the Limiter uses, unmodified."""

from __future__ import annotations

from typing import cast

from flyball.core.gate import Gate, Start
from flyball.core.settings import PoolChanges, resolve_pool
from flyball.core.signals import Signal
from flyball.sim.jobs import Job


class Governed:
    """A gate with any of flyball's controllers."""

    def __init__(self, changes: PoolChanges) -> None:
        self.gate = Gate(resolve_pool(changes), 0.0)

    @property
    def level(self) -> float:
        return float(self.gate.cap)

    def open_at(self, t_s: float, job: Job) -> float:
        return self.gate.open_at(t_s, {"tokens": job.tokens})

    def start(self, t_s: float, job: Job) -> object:
        return self.gate.start(t_s, {"tokens": job.tokens})

    def end(self, started: object, job: Job, signal: Signal, t_s: float) -> None:  # noqa: ARG002
        self.gate.end(cast(Start, started), signal, t_s)
        self.gate.facts.clear()
