"""The seeded work of a simulation: the same jobs, in the same order, for every contender."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator
from dataclasses import dataclass


@dataclass(slots=True)
class Job:
    """One call, or one agent's run."""

    number: int
    service_s: float
    tokens: float
    unlucky: bool = False
    attempts: int = 0
    lingers_s: float = 0.0
    """How long the provider keeps the seat after the client thinks it is over."""


@dataclass(frozen=True, slots=True)
class Mix:
    """How jobs are spread: log-normal, given by their means and how heavy their tails are."""

    service_mean_s: float = 6.0
    service_sigma: float = 0.6
    tokens_mean: float = 2000.0
    tokens_sigma: float = 0.8
    unlucky: float = 0.0
    """The part that meets an overload on its first attempt."""
    stale: float = 0.0
    """The part whose client vanishes without the provider noticing ..."""
    stale_times: float = 20.0
    """... until so many times the job's own time have passed."""


def jobs(mix: Mix, seed: int | str) -> Iterator[Job]:
    """Endless: a backlog that never runs dry."""
    chance = random.Random(seed)
    service_mu = math.log(mix.service_mean_s) - mix.service_sigma**2 / 2
    tokens_mu = math.log(mix.tokens_mean) - mix.tokens_sigma**2 / 2
    number = 0
    while True:
        number += 1
        job = Job(
            number,
            chance.lognormvariate(service_mu, mix.service_sigma),
            float(max(1, int(chance.lognormvariate(tokens_mu, mix.tokens_sigma)))),
            chance.random() < mix.unlucky,
        )
        if mix.stale and chance.random() < mix.stale:
            job.lingers_s = mix.stale_times * job.service_s
        yield job
