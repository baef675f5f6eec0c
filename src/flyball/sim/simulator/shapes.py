"""How a hidden limit moves: schedules of steps, neighbours and outages. Seeded where chance is in it."""

from __future__ import annotations

import math
import random
from collections.abc import Callable

from flyball.sim.simulator.limits import Draw

Steps = list[tuple[float, int]]
Spans = list[tuple[float, float]]


def sample_steps(curve: Callable[[float], float], horizon_s: float, every_s: float) -> Steps:
    """A curve as steps of whole seats."""
    steps: Steps = []
    for tick in range(math.ceil(horizon_s / every_s)):
        seats = round(curve(tick * every_s))
        if not steps or steps[-1][1] != seats:
            steps.append((tick * every_s, seats))
    return steps


def wave(middle: float, swing: float, horizon_s: float, *, every_s: float) -> Steps:
    """One sine over the whole horizon: a day."""
    return sample_steps(
        lambda t_s: middle + swing * math.sin(2 * math.pi * t_s / horizon_s), horizon_s, every_s
    )


def thirds(first: int, second: int, horizon_s: float) -> Steps:
    """There and back."""
    return [(0.0, first), (horizon_s / 3, second), (horizon_s * 2 / 3, first)]


def restless(low: int, high: int, mean_s: float, horizon_s: float, seed: int) -> Steps:
    """A neighbour that takes another share of the seats every ``mean_s`` on average."""
    chance = random.Random(seed)
    steps: Steps = []
    t_s = 0.0
    while t_s < horizon_s:
        steps.append((t_s, chance.randint(low, high)))
        t_s += chance.expovariate(1 / mean_s)
    return steps


def square(low: int, high: int, mean_s: float, horizon_s: float, seed: int) -> Steps:
    """High, low, high: each for a random time of at least a third of the mean."""
    chance = random.Random(seed)
    steps: Steps = []
    t_s = 0.0
    while t_s < horizon_s:
        steps.append((t_s, low if len(steps) % 2 else high))
        t_s += mean_s / 3 + chance.expovariate(1.5 / mean_s)
    return steps


def walk(low: int, high: int, every_s: float, horizon_s: float, seed: int) -> Steps:
    """A random walk by up to two seats at a time."""
    chance = random.Random(seed)
    steps: Steps = [(0.0, (low + high) // 2)]
    while steps[-1][0] + every_s < horizon_s:
        at_s, seats = steps[-1]
        steps.append((at_s + every_s, min(high, max(low, seats + chance.randint(-2, 2)))))
    return steps


def bursty(
    per_s: float, horizon_s: float, seed: int, *, busy_s: float = 60.0, idle_s: float = 120.0
) -> list[Draw]:
    """A neighbour on the same quota: calls of some 2,000 tokens while it is busy, ``per_s`` on average."""
    chance = random.Random(seed * 7919)
    calls_per_s = per_s / 2000 * (busy_s + idle_s) / busy_s
    draws: list[Draw] = []
    t_s = chance.expovariate(1 / idle_s)
    while t_s < horizon_s:
        until_s = t_s + chance.expovariate(1 / busy_s)
        while t_s < min(until_s, horizon_s):
            draws.append(Draw(t_s, chance.lognormvariate(math.log(2000) - 0.32, 0.8)))
            t_s += chance.expovariate(calls_per_s)
        t_s = until_s + chance.expovariate(1 / idle_s)
    return draws


def every(first_s: float, period_s: float, lasts_s: float, horizon_s: float) -> Spans:
    """The same outage again and again."""
    count = max(0, math.ceil((horizon_s - first_s) / period_s))
    return [(first_s + i * period_s, first_s + i * period_s + lasts_s) for i in range(count)]


def mixed_outages(horizon_s: float, seed: int) -> Spans:
    """From seconds to ten minutes, some twenty minutes apart."""
    chance = random.Random(seed * 104729)
    spans: Spans = []
    t_s = 600 + chance.expovariate(1 / 300)
    while t_s < horizon_s:
        lasts_s = min(600.0, chance.lognormvariate(math.log(40), 1.0))
        spans.append((t_s, t_s + lasts_s))
        t_s += lasts_s + 600 + chance.expovariate(1 / 600)
    return spans
