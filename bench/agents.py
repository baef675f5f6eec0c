"""Twenty real agents with subagents under a hidden limit that moves, as their users run them.

The real claude, codex, gemini and opencode, each with an API key, call the bundled provider: through
``flyball exec``, where each call takes a slot; through it with ``counts = agents``, where each agent takes
one as long as it lives; and without flyball, where they try refused calls again by themselves. All four are
led into one pool, as behind one account. Each agent runs commands, asks for up to eight subagents at once,
and goes on.

What is published of a run through ``flyball exec``:

    above the cap    calls that came to the provider while more were there than the pool's cap allowed
    429s seen        by the agents: in what they print, and at the gateway, which counts what it hands over
    goodput          seat time that was served, of what an oracle would have served (``agents_log.py``)
    in flight        the share of an agent's life in which at least one call of its own, or of its subagents,
                     is being served

Then the factory with the real claude, which merges the same tasks twice (``agents_factory.py``), and an hour
of three terminals and a script, replayed (``tests/agents/one_line.py``).

Times are compressed: a call of 1.2 s stands for one of ten seconds, so the limit, which moves after 75 s,
moves every ten minutes. It needs ``make agents``.
"""

from __future__ import annotations

import shlex
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from itertools import cycle, islice, pairwise
from pathlib import Path

from bench import agents_stand_in
from bench.agents_factory import COUNTS, Tasks, merge
from bench.agents_log import check_cap, in_flight_s, seat_time
from bench.agents_run import Load, Outcome, Way, measure
from bench.homes import scratch
from bench.report import Figure, Progress, Section, Target, caps_over_time
from flyball.core.signals import End
from flyball.sim.provider.capacity import Capacity
from tests.agents.bench import Bench
from tests.agents.kit import BIN, Agent, Claude, Codex, Gemini, Opencode
from tests.agents.one_line import HOUR_S, SEATS_WITH_HOOKS, overtakes, replay_with_hooks

NAME = "agents"
TITLE = "real agents under a hidden limit that moves"
_MIX: Sequence[Agent] = (Gemini(), Codex(), Claude(), Opencode(), Claude())
_NONE = Target("value", 0.0)


_LOAD = Load(
    agents=(),
    capacity="10,75:5,150:10",
    subagents=8,
    rounds=2,
    steps=8,
    call_s=1.2,
    tool_s=1.0,
    apart_s=1.0,
    retry_after_s=1.0,
    limit_s=400.0,
)
_TASKS = Tasks(count=16, steps=4, tool_s=4.0, call_s=1.2, capacity="4", retry_after_s=1.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizes:
    agents: int = 20
    load: Load = _LOAD
    """Its agents are so many of the mix."""
    tasks: Tasks | None = _TASKS
    hour_s: float | None = 120.0
    """An hour is replayed in this time."""
    stand_ins: bool = False
    """A small program in the place of claude: does the bench run, not what is it like."""


FULL = Sizes()
QUICK = Sizes(
    agents=5,
    load=replace(_LOAD, capacity="4,10:2,20:4", subagents=2, rounds=1, steps=2, call_s=0.5, tool_s=0.2),
    tasks=Tasks(count=2, steps=1, tool_s=0.5, call_s=0.5, capacity="2", retry_after_s=0.2),
    hour_s=None,
)
TINY = replace(
    QUICK,
    agents=2,
    load=replace(QUICK.load, capacity="2,1:1", call_s=0.05, tool_s=0.02, apart_s=0.1, retry_after_s=0.2),
    tasks=None,
    stand_ins=True,
)


def run(sizes: Sizes, progress: Progress) -> Section:
    if not (sizes.stand_ins or BIN.is_dir()):
        return Section(NAME, TITLE, (), ("nothing was measured: the real agents are not here; make agents",))
    notes: list[str] = []
    figures = [*_twenty(sizes, progress, notes)]
    if sizes.tasks is not None:
        figures.append(_merged(sizes.tasks, progress, notes))
    if sizes.hour_s is not None:
        figures += _hour(sizes.hour_s, progress, notes)
    return Section(NAME, TITLE, tuple(figures), tuple(notes))


# -- twenty agents ------------------------------------------------------------------------------------------


def _twenty(sizes: Sizes, progress: Progress, notes: list[str]) -> Iterator[Figure]:
    with ExitStack() as stack:
        load = replace(sizes.load, agents=tuple(islice(cycle(_MIX), sizes.agents)))
        if sizes.stand_ins:
            folder = stack.enter_context(scratch())
            load = replace(load, agents=[Claude()] * sizes.agents, programs=_stand_in(folder))
        outcomes: dict[Way, Outcome] = {}
        for way in Way:
            progress(f"{NAME}: {sizes.agents} agents, {way.value}")
            outcomes[way] = measure(load, way)
    ours, capacity = outcomes[Way.CALLS], Capacity.parse(load.capacity)
    what = f"{sizes.agents} agents, {capacity.words()} seats"
    checked = check_cap(ours.calls, ours.looks)
    yield Figure(what=f"{what}: calls above the cap", ours=checked.above, unit="", target=_NONE)
    if checked.unjudged:
        notes.append(f"{checked.unjudged} calls came when the machine was too busy to look at the cap")
    yield from _beside(f"{what}: 429s seen by an agent", _seen, outcomes, target=_NONE)
    yield from _beside(f"{what}: agents dead of limits", _limited, outcomes, target=_NONE)
    yield from _beside(f"{what}: agents that did not finish", _unfinished, outcomes, target=_NONE)
    seats = seat_time(ours.calls, ours.looks, capacity, from_s=0.0, to_s=_end_s(ours))
    yield Figure(
        what=f"{what}: goodput, of the oracle's",
        ours=100 * seats.share,
        unit="%",
        target=Target("value", 99.0, at_least=True),
    )
    yield from _beside(f"{what}: until the last agent was done", lambda o: o.wall_s, outcomes, unit="s")
    yield from _beside(f"{what}: calls that the provider refused", lambda o: o.refused, outcomes)
    yield from _beside(f"{what}: an agent's life with a call in flight", _in_flight, outcomes, unit="%")
    notes += _notes(outcomes, load, capacity)


def _beside(
    what: str,
    number: Callable[[Outcome], float],
    outcomes: Mapping[Way, Outcome],
    *,
    unit: str = "",
    target: Target | None = None,
) -> Iterator[Figure]:
    for way in (Way.WITHOUT, Way.AGENTS):
        yield Figure(
            what=what,
            ours=number(outcomes[Way.CALLS]),
            unit=unit,
            beside=way.value,
            theirs=number(outcomes[way]),
            target=target if way is Way.WITHOUT else None,
        )


def _seen(outcome: Outcome) -> int:
    """Not every agent prints each of them, and the gateway hands over none that it does not count."""
    printed = sum(life.seen for life in outcome.lives)
    return max(printed, outcome.refused_clients if outcome.through_gateway else outcome.refused)


def _limited(outcome: Outcome) -> int:
    return sum(life.ending.end is End.LIMITED for life in outcome.lives)


def _unfinished(outcome: Outcome) -> int:
    return sum(life.ending.end is not End.FINISHED for life in outcome.lives)


def _in_flight(outcome: Outcome) -> float:
    lived_s = sum(life.ended_s - life.began_s for life in outcome.lives)
    return 100 * sum(in_flight_s(outcome.calls, life.name) for life in outcome.lives) / lived_s


def _end_s(outcome: Outcome) -> float:
    return max(life.ended_s for life in outcome.lives)


def _notes(outcomes: Mapping[Way, Outcome], load: Load, capacity: Capacity) -> Iterator[str]:
    ours = outcomes[Way.CALLS]
    kinds = Counter(agent.name for agent in load.agents)
    told = ", ".join(f"{count} {name}" for name, count in kinds.items())
    lengths = f"calls of {load.call_s:g} s, tool runs of {load.tool_s:g} s"
    yield f"{told}, each with up to {load.subagents} subagents at once; one starts each {load.apart_s:g} s"
    yield f"{lengths}; seats by second: {load.capacity}"
    ends = [at_s for at_s, _ in capacity.steps if at_s < _end_s(ours)] + [_end_s(ours)]
    for from_s, to_s in pairwise(ends):
        seats = seat_time(ours.calls, ours.looks, capacity, from_s=from_s, to_s=to_s)
        lost_s = seats.possible_s - seats.served_s
        yield (
            f"from {from_s:.0f} s on {capacity.at(from_s)} seats: {100 * seats.share:.1f} % of the oracle's, "
            f"{lost_s:.1f} s of {seats.possible_s:.0f} s of seat time lost"
        )
    yield "with counts = agents each claude is told to start fewer subagents, so it makes fewer calls"
    for way, outcome in outcomes.items():
        served = len(outcome.calls) - outcome.refused
        counted = f"{served} calls served, {outcome.refused} refused, {outcome.wall_s:.0f} s"
        caps = caps_over_time((look.t_s, look.cap) for look in outcome.looks)
        caps = f"; the cap: {caps}" if caps else ""
        yield f"{way.value}: {counted}{caps}"
        for life in outcome.lives:
            if life.ending.end is not End.FINISHED:
                yield f"{way.value}: {life.name} ({life.runtime}) ended as {life.ending.end.value}"


def _stand_in(folder: Path) -> Path:
    program = folder / "claude"
    words = shlex.join([sys.executable, str(Path(agents_stand_in.__file__))])
    program.write_text(f'#!/bin/sh\nexec {words} "$@"\n')
    program.chmod(0o755)
    return folder


# -- the factory --------------------------------------------------------------------------------------------


def _merged(tasks: Tasks, progress: Progress, notes: list[str]) -> Figure:
    merges = {}
    for counts in COUNTS:
        progress(f"{NAME}: the factory, counts = {counts}")
        merges[counts] = merge(tasks, counts)
        done = merges[counts]
        words = f"{done.merged} tasks in {done.wall_s:.0f} s, {done.refused} calls refused"
        notes.append(f"the factory, counts = {counts}: {words}")
    calls, agents = (merges[counts].per_hour for counts in COUNTS)
    what = (
        f"the factory with claude, {tasks.steps * tasks.tool_s:g} s of tools a task, {tasks.capacity} seats"
    )
    return Figure(
        what=f"{what}: merged per hour",
        ours=calls,
        unit="",
        beside="counts = agents",
        theirs=agents,
    )


# -- an hour ------------------------------------------------------------------------------------------------


def _hour(load_s: float, progress: Progress, notes: list[str]) -> Iterator[Figure]:
    progress(f"{NAME}: an hour of three terminals and a script")
    with scratch() as home:
        bench = Bench(home, "", str(SEATS_WITH_HOOKS), counts="auto", paced=True)
        with bench.provider:
            try:
                replay = replay_with_hooks(bench, load_s=load_s)
                tally = bench.provider.tally()
            finally:
                bench.close()
    what = f"three terminals and a script, an hour at {HOUR_S / load_s:.0f} x"
    yield Figure(what=f"{what}: calls refused", ours=tally.rejected, unit="", target=_NONE)
    yield Figure(
        what=f"{what}: calls at once",
        ours=tally.peak_open,
        unit="",
        beside="seats",
        theirs=replay.seats,
        target=Target("ratio", 1.0),
    )
    yield Figure(
        what=f"{what}: overtakes in the line", ours=len(overtakes(replay.seen)), unit="", target=_NONE
    )
    yield Figure(
        what=f"{what}: looks at the status with all four in one pool",
        ours=replay.together,
        unit="",
        target=Target("value", 1.0, at_least=True),
    )
    looks = f"in {replay.in_line} of {len(replay.seen)} looks at the status"
    notes.append(f"the hour: {tally.accepted} calls; {looks} the script and a terminal both stood in line")
