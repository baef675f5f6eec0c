"""What a provider could serve at each moment, as calls at once: plots and recovery times are held against
it.

Seats are that already; an outage is zero. A quota of tokens or requests is turned into it: so many calls
a second at their mean cost, times how long one takes. What a neighbour takes of a quota is averaged over
a minute, so the curve of a shared quota is an estimate; everything else is exact.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Sequence

from flyball.sim.hidden import INFINITY, Outages, Refilling, Rule, Seats
from flyball.sim.jobs import Mix
from flyball.sim.scenario import Scenario

BIN_S = 60.0


def curve(scenario: Scenario, seed: int) -> list[tuple[float, float]]:
    """Steps of (from this second on, this many calls at once), the first at 0."""
    rules = scenario.provider(seed).rules
    limits = [limit for rule in rules if (limit := _limit(rule, scenario.mix)) is not None]
    times = sorted({0.0, *(t_s for rule in rules for t_s in _changes(rule, scenario.horizon_s))})
    steps: list[tuple[float, float]] = []
    for t_s in times:
        height = min((limit(t_s) for limit in limits), default=0.0)
        if t_s < scenario.horizon_s and (not steps or steps[-1][1] != height):
            steps.append((t_s, height))
    return steps


def at(steps: Sequence[tuple[float, float]], t_s: float) -> float:
    return steps[max(0, bisect_right(steps, (t_s, INFINITY)) - 1)][1]


def _limit(rule: Rule, mix: Mix) -> Callable[[float], float] | None:
    if isinstance(rule, Seats):
        return lambda t_s: float(rule.capacity(t_s))
    if isinstance(rule, Outages):
        return lambda t_s: 0.0 if rule.over_at(t_s) is not None else INFINITY
    if isinstance(rule, Refilling):
        cost = 1.0 if rule.unit == "requests" else mix.tokens_mean
        taken = _taken(rule)
        return lambda t_s: max(0.0, rule.per_s - taken.get(t_s // BIN_S, 0.0)) / cost * mix.service_mean_s
    return None


def _changes(rule: Rule, horizon_s: float) -> list[float]:
    if isinstance(rule, Seats):
        return [t_s for t_s, _ in rule.steps]
    if isinstance(rule, Outages):
        return [t_s for span in rule.spans for t_s in span]
    if isinstance(rule, Refilling) and rule.neighbour:
        return [n * BIN_S for n in range(int(horizon_s / BIN_S) + 1)]
    return []


def _taken(rule: Refilling) -> dict[float, float]:
    """What the neighbour takes per second, by minute."""
    taken: dict[float, float] = {}
    for draw in rule.neighbour:
        taken[draw.at_s // BIN_S] = taken.get(draw.at_s // BIN_S, 0.0) + draw.amount / BIN_S
    return taken
