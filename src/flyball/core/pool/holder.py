"""Which process holds slots. Apart from the rest of the model: an agent's hooks load little else."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Holder:
    """One process, told apart from every other that ever had its pid.

    ``boot`` and ``pidns`` say where the pid means anything; ``start`` is the process's start time in
    the unit its system counts, so a recycled pid is a different holder.
    """

    host: str
    boot: str
    pidns: int
    pid: int
    start: int
