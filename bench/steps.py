"""Short work against a limit that moves, on the paths that users take: real processes, untouched pools.

84 calls of 1.5 s from twelve clients, then all is over, while the provider's seats go down and come back:
through the gateway (``flyball env``), through ``flyball.httpx_client``, and without flyball, where a refused
call waits as the providers' SDKs do and tries again until it is answered. Times are a quarter of real ones,
the Retry-After with them: 5 s of it are 1.25 s here. What a run cannot beat is the list of calls put on the
seats with no gap, which a note names.

One refusal out of the blue, with a short Retry-After and with a long one: how long it delays other calls
than its own. And agents that print plain text, one of which is refused and gives up, through
``flyball exec``.
"""

from __future__ import annotations

import heapq
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from statistics import median

from bench.report import Figure, Progress, Section, Target, beside
from bench.steps_run import Load, Outcome, Way, measure
from bench.stray import IDEAL, FakeAgent, ideal_s, one_refused, wall_s
from flyball.sim.provider.capacity import Capacity

NAME = "steps"
TITLE = "short work against a limit that moves, as users meet it"
SHAPES = {"6-3-6 seats": ((0, 6), (10, 3), (20, 6)), "8-4-8 seats": ((0, 8), (8, 4), (16, 8))}
_TOKENS = (30, 120)
_TOKENS_PER_S = 50.0
_RETRY_AFTER_S = 1.25
_REJECT_S = 0.1
_STRAYS = {"1 s": 0.25, "60 s": 15.0}
_STRAY_CLIENTS = 8
_DELAYED_S = 0.2
"""More than the gateway and a loaded machine add to a call."""
_TIME, _REFUSALS = Target("ratio", 1.0), Target("ratio", 0.1)
_TEXT = """#!/bin/sh
sleep {early:.2f}
if [ "$1" = refused ]; then
  echo "API Error: Request rejected (429) · This request would exceed your organization's rate limit."
  exit 1
fi
sleep {late:.2f}
echo Done.
"""
_LIMITED = 75
"""What ``flyball exec`` ends with where its agent was refused."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizes:
    rounds: int = 3
    pace: float = 1.0
    """By how much all of it is quicker."""
    shapes: tuple[str, ...] = tuple(SHAPES)
    calls: int = 84
    clients: int = 12
    stray_calls: int = 48
    agents: int = 30
    agent_s: float = 3.0


FULL = Sizes()
QUICK = Sizes(rounds=1, pace=5.0, stray_calls=24, agents=10, agent_s=0.5)


def run(sizes: Sizes, progress: Progress) -> Section:
    notes = ["out-of-the-box pools; clients, provider and gateway are processes of their own"]
    figures: list[Figure] = []
    for what in sizes.shapes:
        figures += _shape(what, sizes, progress, notes)
    for asked in _STRAYS:
        figures += _stray(asked, sizes, progress, notes)
    figures += _text_agents(sizes, progress)
    return Section(NAME, TITLE, tuple(figures), tuple(notes))


def _shape(what: str, sizes: Sizes, progress: Progress, notes: list[str]) -> Iterator[Figure]:
    load = Load(
        capacity=",".join(f"{at_s / sizes.pace:g}:{seats}" for at_s, seats in SHAPES[what]),
        tokens=_tokens(sizes.calls),
        clients=sizes.clients,
        tokens_per_s=_TOKENS_PER_S * sizes.pace,
        retry_after_s=_RETRY_AFTER_S / sizes.pace,
    )
    seen: dict[Way, list[Outcome]] = {way: [] for way in Way}
    for number in range(sizes.rounds):
        for way in Way:
            progress(f"{NAME}: {what}, {way.value}, round {number + 1} of {sizes.rounds}")
            seen[way].append(measure(load, way))
    without = seen[Way.WITHOUT]
    for way in (Way.GATEWAY, Way.CLIENT):
        yield beside(
            f"{what}, {way.value}: time to the last answer",
            [each.wall_s for each in seen[way]],
            [each.wall_s for each in without],
            unit="s",
            name=Way.WITHOUT.value,
            target=_TIME,
        )
        yield beside(
            f"{what}, {way.value}: calls that the provider refused",
            [each.refused for each in seen[way]],
            [each.refused for each in without],
            unit="",
            name=Way.WITHOUT.value,
            target=_REFUSALS,
        )
        for number, each in enumerate(seen[way], 1):
            words = f"{what}, {way.value}, round {number}: {each.wall_s:.1f} s, {each.refused} refused"
            notes.append(f"{words}; the cap: {each.caps()}")
    notes.append(f"{what}: {best_s(load):.1f} s is what no client can beat")


def best_s(load: Load) -> float:
    """The calls one after the other on the seats, none refused and no seat idle while a client has a call."""
    capacity = Capacity.parse(load.capacity)
    now_s, ends = 0.0, list[float]()
    changes = [at_s for at_s, _ in capacity.steps]
    for tokens in load.tokens:
        while len(ends) >= min(load.clients, capacity.at(now_s)):
            rises = [at_s for at_s in changes if now_s < at_s < ends[0]]
            now_s = rises[0] if rises else heapq.heappop(ends)
        heapq.heappush(ends, now_s + tokens / load.tokens_per_s)
    return max(ends)


def _stray(asked: str, sizes: Sizes, progress: Progress, notes: list[str]) -> Iterator[Figure]:
    """More seats than clients, and no more clients than slots: no call waits but for the refusal."""
    wait_s = _STRAYS[asked] / sizes.pace
    load = Load(
        capacity=str(2 * _STRAY_CLIENTS),
        tokens=_tokens(sizes.stray_calls),
        clients=_STRAY_CLIENTS,
        tokens_per_s=_TOKENS_PER_S * sizes.pace,
        retry_after_s=wait_s,
        script=f"okx{sizes.stray_calls // 3},429:{wait_s:.10g}",
    )
    seen: list[Outcome] = []
    for number in range(sizes.rounds):
        progress(f"{NAME}: one refusal, Retry-After {asked}, round {number + 1} of {sizes.rounds}")
        seen.append(measure(load, Way.GATEWAY))
    what = f"one refusal of {sizes.stray_calls} calls, Retry-After {asked} (here {wait_s:g} s)"
    delays = [
        [max(0.0, call.took_s - call.tokens / load.tokens_per_s) for call in each.calls] for each in seen
    ]
    counts = [sum(delay_s > _DELAYED_S for delay_s in each) for each in delays]
    yield Figure(
        what=f"{what}: calls delayed", ours=median(counts), unit="", beside="the refused one", theirs=1
    )
    yield Figure(
        what=f"{what}: delay of all calls together",
        ours=median(sum(each) for each in delays),
        unit="s",
        beside="of the refused one",
        theirs=wait_s + _REJECT_S,
    )
    for number, each in enumerate(seen, 1):
        words = f"Retry-After {asked}, round {number}: {each.wall_s:.1f} s, {each.refused} refused"
        notes.append(f"{words}; the cap: {each.caps()}")


def _text_agents(sizes: Sizes, progress: Progress) -> Iterator[Figure]:
    script = _TEXT.format(early=sizes.agent_s / 6, late=sizes.agent_s * 5 / 6)
    agent = FakeAgent(script, ("-p",), ends=frozenset({0, 1, _LIMITED}))
    cases = {"none refused": ["calm"] * sizes.agents, "one refused": one_refused(sizes.agents)}
    ours: dict[str, list[float]] = {what: [] for what in cases}
    theirs: dict[str, list[float]] = {what: [] for what in cases}
    for number in range(sizes.rounds):
        for what, told in cases.items():
            progress(f"{NAME}: plain text, {what}, round {number + 1} of {sizes.rounds}")
            theirs[what].append(ideal_s(agent, told))
            ours[what].append(wall_s(agent, told))
    for what in cases:
        yield beside(
            f"{sizes.agents} agents that print plain text, {what}",
            ours[what],
            theirs[what],
            unit="s",
            name=IDEAL,
            target=Target("ratio", 1.5) if what == "one refused" else None,
        )


def _tokens(calls: int) -> Sequence[int]:
    chance = random.Random(NAME)
    return [chance.randint(*_TOKENS) for _ in range(calls)]
