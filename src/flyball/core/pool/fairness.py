"""Fairness: which part of a cap a project may have, and in which order the waiting asks are served.

The order is: aged priority, then the neediest project, then arrival. Ageing lets a low ask catch up with the
highest priority that waits, never overtake it, so a queue of equals is ordered by fairness alone.

Projects share a cap by one of two rules:

    strict   every demanding project owns its part, used or not; the remainder rotates, so with more
             projects than slots each gets its turn. Parts always sum to the cap.
    lend     idle parts are lent: any free slot may be taken, and the next freed one goes to the
             project that has least for its weight. Over time that is weighted max-min fairness.

Among projects that have equally little, turns decide (start-time fair queueing): every slot handed to a
project moves its turn on by slots / weight, and the lowest turn is next. So a project with many processes,
which always has the oldest ask in line, gets no more than its part even where only one slot is shared.

What a call used of tokens moves the turn, too, as soon as its answer has said it and while asks wait: where a
slot or a budget of tokens is what all wait for, a project of few long calls and one of many short ones come
to the same.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from flyball.core.pool.model import Candidate, ProjectUse

TOKENS_OF_A_CALL = 1000
"""So many count as much as one more call: providers allow about as many for each request, at every tier."""


def strict_shares(cap: int, weights: Mapping[str, float], epoch: int) -> dict[str, int]:
    """Split ``cap`` among the demanding projects. ``epoch`` counts rotation windows.

    >>> strict_shares(8, {"a": 1, "b": 1, "c": 1}, epoch=0)
    {'a': 3, 'b': 3, 'c': 2}
    >>> strict_shares(8, {"a": 1, "b": 1, "c": 1}, epoch=1)
    {'a': 3, 'b': 2, 'c': 3}
    """
    names = sorted(weights)
    if not names:
        return {}
    total = sum(weights.values())
    # The tiny addend keeps 8 * (0.1 / 0.1) from flooring to 7.
    base = {name: int(cap * weights[name] / total + 1e-9) for name in names}
    remainder = cap - sum(base.values())
    for index, name in enumerate(names):
        if (index + epoch) % len(names) < remainder:
            base[name] += 1
    return base


def fair_shares(cap: int, wants: Mapping[str, tuple[int, float]]) -> dict[str, int]:
    """Weighted max-min: no project gets more than it wants, and what is left over goes round again.

    ``wants`` maps a project to (slots it could use, weight).

    >>> fair_shares(8, {"a": (20, 1), "b": (1, 1), "c": (20, 1)})
    {'a': 4, 'b': 1, 'c': 3}
    """
    level = _water_level(cap, wants)
    got = {name: min(want, int(level * weight + 1e-9)) for name, (want, weight) in sorted(wants.items())}
    for _ in range(cap - sum(got.values())):
        hungry = [name for name in got if got[name] < wants[name][0]]
        if not hungry:
            break
        got[min(hungry, key=lambda name: (got[name] / wants[name][1], name))] += 1
    return got


def _water_level(cap: int, wants: Mapping[str, tuple[int, float]]) -> float:
    """Slots per unit of weight at which the cap is just used up."""
    left, weights = float(cap), sum(weight for _, weight in wants.values())
    for want, weight in sorted(wants.values(), key=lambda pair: pair[0] / pair[1]):
        if want / weight * weights >= left:
            return left / weights
        left, weights = left - want, weights - weight
    return float(cap)


def need(use: ProjectUse, turn: float) -> tuple[float, float]:
    """How much a project has for its weight, then whose turn it is: the lowest is the neediest."""
    return use.in_use / use.weight, start_of_turn(use, turn)


def start_of_turn(use: ProjectUse, turn: float) -> float:
    """A project that was away does not get back the turns it did not want."""
    return max(use.turn, turn)


def turn_after_call(use: ProjectUse, turn: float, tokens: float) -> float:
    """Whose turn it is again, once it is known what a call used.

    >>> turn_after_call(ProjectUse("a", weight=2.0, turn=4.0), 3.0, 9000.0)
    8.5
    """
    return start_of_turn(use, turn) + tokens / TOKENS_OF_A_CALL / use.weight


def competing_weights(projects: Iterable[ProjectUse], announced: Sequence[str]) -> dict[str, float]:
    """Projects that compete now, with their weights: a waiting ask, a live lease or a heartbeat."""
    with_heartbeat = set(announced)
    return {p.name: p.weight for p in projects if p.in_use or p.waiting or p.name in with_heartbeat}


def aged_priority(priority: int, waited_s: float, *, ageing_s: float, top: int) -> int:
    """The priority after so long a wait: one more per ``ageing_s``, never above the highest that waits.

    >>> [aged_priority(-1, waited_s, ageing_s=60, top=1) for waited_s in (59, 60, 7200)]
    [-1, 0, 1]
    """
    return min(top, priority + int(max(0.0, waited_s) // ageing_s))


def rank_asks(
    waiting: Sequence[Candidate],
    projects: Mapping[str, ProjectUse],
    *,
    turn: float,
    ageing_s: float,
    now: float,
) -> list[Candidate]:
    """The waiting, first in line first. ``turn`` is where the hand-out stands."""
    if not waiting:
        return []
    top = max(ask.priority for ask in waiting)

    def rank(ask: Candidate) -> tuple[int, tuple[float, float], int]:
        risen = aged_priority(ask.priority, now - ask.asked_at, ageing_s=ageing_s, top=top)
        return (-risen, need(projects[ask.project], turn), ask.id)

    return sorted(waiting, key=rank)
