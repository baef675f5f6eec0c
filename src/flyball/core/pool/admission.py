"""The fast tempo: does this ask fit the limits of the plan, and which waiting ask is next?

``judge`` is a handful of comparisons of counts and meters against ``Limits``, in one fixed order:

    machine ceiling -> retry-after, breaker, usage window, trial -> spacing -> cap and reserve
    -> fair share and maximum -> windows -> resources -> memory -> cpu

The first that does not fit becomes a ``Denial``; the store makes the ``Verdict`` (verdict.py) of it, with
the blocker and ``estimate_s``. The breaker's trial is exempt from spacing and from the adaptive cap (work
admitted before the breaker opened may hold more than the floor for hours), never from the ceiling.

``choose`` takes the first ask of the fair order (fairness.py) that fits. An ask too large for the free slots
may be overtaken for one ageing period, then the slots collect for it; one too large for its project's strict
share may then run alone.

Spacing keeps a minimum, jittered time between two grants, so that a raised cap does not start a herd. Only a
grant moves its clock: if a denial did, a busy queue would push the next grant away for ever.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from flyball.core.pool import rate_window as windowing
from flyball.core.pool.fairness import rank_asks
from flyball.core.pool.model import Candidate, Limits, MachineUse, Meters, Phase, PoolCounts, ProjectUse
from flyball.core.pool.settings import ShareRule
from flyball.core.pool.verdict import Reason

MACHINE_LOOK_S = 5.0
"""Nothing tells us when memory or a CPU becomes free: an ask that waits for it looks this often."""


@dataclass(frozen=True, slots=True)
class Denial:
    """Why not now. ``until`` is when time alone may change it (None: when a lease ends)."""

    reason: Reason
    until: float | None = None
    detail: str = ""
    window: str = ""
    """Which window has no room, where that is the reason."""


def too_large(ask: Candidate, limits: Limits, project: ProjectUse, machine: MachineUse) -> str:
    """Words on why this ask can never be granted under the current settings; empty if it can."""
    usable = limits.ceiling if ask.priority > 0 else limits.ceiling - limits.reserve
    if ask.slots > usable:
        return f"asks for {ask.slots} slots, the pool can never grant more than {usable}"
    if project.maximum is not None and ask.slots > project.maximum:
        return f"asks for {ask.slots} slots, {project.name!r} may hold at most {project.maximum}"
    if machine.ceiling is not None and machine.bounds(ask) and ask.slots > machine.ceiling:
        return f"asks for {ask.slots} slots, the machine's ceiling is {machine.ceiling}"
    return ""


def judge(
    ask: Candidate,
    limits: Limits,
    meters: Meters,
    counts: PoolCounts,
    project: ProjectUse,
    machine: MachineUse,
    now: float,
) -> Denial | None:
    """None if the ask may start now, else the first thing in its way."""
    full = machine.ceiling is not None and machine.in_use + ask.slots > machine.ceiling
    if full and machine.bounds(ask):
        return Denial(Reason.MACHINE, detail=f"machine {machine.in_use}/{machine.ceiling} over all pools")
    if limits.closed_until is not None and now < limits.closed_until:
        if limits.open_above is None:
            reason = Reason.BREAKER if limits.phase is Phase.OPEN else Reason.RETRY_AFTER
            return Denial(reason, until=limits.closed_until)
        if ask.priority <= limits.open_above:
            return Denial(Reason.USED_UP_SOON, until=limits.closed_until)
    trial = limits.phase is Phase.TRIAL
    if trial and meters.trial_id is not None:
        return Denial(Reason.TRIAL, until=limits.valid_until)
    if not trial and now < meters.next_grant_at:
        return Denial(Reason.SPACING, until=meters.next_grant_at)
    return (
        _judge_room(ask, limits, counts, project, now, trial=trial)
        or (_judge_windows(ask, meters, now) if meters.windows else None)
        or _judge_machine(ask, machine, now)
    )


def _judge_room(
    ask: Candidate, limits: Limits, counts: PoolCounts, project: ProjectUse, now: float, *, trial: bool
) -> Denial | None:
    cap = limits.ceiling if trial else limits.cap
    if counts.in_use + ask.slots > cap:
        return Denial(Reason.CAP, detail=_shortfall(ask, cap - counts.in_use))
    # A reserve never takes the last slot: at a cap of 1 ordinary work would stop for good.
    reserve = min(limits.reserve, cap - 1)
    if ask.priority <= 0 and reserve and counts.low_in_use + ask.slots > cap - reserve:
        left = cap - reserve - counts.low_in_use
        return Denial(Reason.RESERVE, detail=_shortfall(ask, left, beside=" beside the reserve"))
    if project.maximum is not None and project.in_use + ask.slots > project.maximum:
        return Denial(Reason.MAXIMUM, detail=f"{project.name!r} is at its maximum of {project.maximum}")
    shared = limits.share is ShareRule.STRICT and not trial and not _fits_reserve(ask, counts, reserve)
    if shared and not _fits_share(ask, limits, project, now):
        detail = f"{project.name!r} uses {project.in_use} of its fair share {project.share or 0}"
        return Denial(Reason.SHARE, until=limits.valid_until, detail=detail)
    return None


def _shortfall(ask: Candidate, left: int, *, beside: str = "") -> str:
    """A pool may look free by its counts alone: an ask for several slots says how many it lacks."""
    return f"asks for {ask.slots}, {max(0, left)} free{beside}" if ask.slots > 1 else ""


def _judge_windows(ask: Candidate, meters: Meters, now: float) -> Denial | None:
    at, name = windowing.room_at(meters.windows, ask.cost, now)
    if at <= now:
        return None
    need = ask.cost.get(name, 1.0 if name == windowing.REQUESTS else 0.0)
    window = max(
        (window for window in meters.windows if window.name == name),
        key=lambda window: window.room_at(need, now),
    )
    left = max(0.0, window.level_at(now))
    detail = f"{window.source.value} window {name}: {left:.0f} of {window.limit:.0f} left, {need:.0f} needed"
    return Denial(Reason.WINDOW, until=at, detail=detail, window=name)


def _fits_reserve(ask: Candidate, counts: PoolCounts, reserve: int) -> bool:
    """What is reserved for priority above 0 belongs to no project's share: else it might stay unused."""
    return ask.priority > 0 and counts.in_use - counts.low_in_use + ask.slots <= reserve


def _fits_share(ask: Candidate, limits: Limits, project: ProjectUse, now: float) -> bool:
    """Within the share; or too large for any share, patient, and alone: else it would wait for ever."""
    if project.in_use + ask.slots <= (project.share or 0):
        return True
    return ask.slots > 1 and project.in_use == 0 and now - ask.asked_at >= limits.ageing_s


def _judge_machine(ask: Candidate, machine: MachineUse, now: float) -> Denial | None:
    for kind, units in ask.resources.items():
        free = machine.resource_free.get(kind, 0)
        if units > free:
            return Denial(
                Reason.RESOURCE, detail=f"resource {kind!r} has {max(0, free)} free, {units} needed"
            )
    floor, available = machine.memory_floor_bytes, machine.memory_free_bytes
    if floor is not None and available is not None and available < floor and machine.bounds(ask):
        detail = f"{available >> 20} MiB of memory free, the floor is {floor >> 20} MiB"
        return Denial(Reason.MEMORY, until=now + MACHINE_LOOK_S, detail=detail)
    limit, pressure = machine.cpu_pressure_limit, machine.cpu_pressure
    if limit is not None and pressure is not None and pressure > limit and machine.bounds(ask):
        detail = f"work waits for a CPU {pressure:.0f} % of the time, the limit is {limit} %"
        return Denial(Reason.CPU, until=now + MACHINE_LOOK_S, detail=detail)
    return None


def choose(
    waiting: Sequence[Candidate],
    limits: Limits,
    meters: Meters,
    counts: PoolCounts,
    projects: Mapping[str, ProjectUse],
    machine: MachineUse,
    now: float,
) -> Candidate | None:
    """The next ask to grant, if any. ``waiting`` holds the oldest ask of each (project, priority) line."""
    awaited: set[str] = set()
    for ask in rank_asks(waiting, projects, turn=meters.turn, ageing_s=limits.ageing_s, now=now):
        if awaited and any(w.name in awaited and windowing.cost_in(w, ask.cost) for w in meters.windows):
            continue
        denial = judge(ask, limits, meters, counts, projects[ask.project], machine, now)
        if denial is None:
            return ask
        if denial.reason is Reason.WINDOW:
            # The first ask waits for room; smaller ones behind it would keep the window empty for ever.
            awaited.add(denial.window)
        if _keeps_freed_slots(ask, denial, limits, projects[ask.project], machine, now):
            break
    return None


def _keeps_freed_slots(
    ask: Candidate, denial: Denial, limits: Limits, use: ProjectUse, machine: MachineUse, now: float
) -> bool:
    """A large ask that was overtaken for long enough keeps freed slots for itself, if they can suffice."""
    lacks_room = denial.reason in (Reason.CAP, Reason.RESERVE, Reason.MACHINE) and ask.slots > 1
    patient = now - ask.asked_at >= limits.ageing_s
    return lacks_room and patient and not too_large(ask, limits, use, machine)


def place_in_way(denial: Denial, project: ProjectUse, *, position: int, in_line: bool) -> int:
    """The place in the line that matters: at its own maximum a project waits for its own leases alone."""
    if denial.reason is not Reason.MAXIMUM:
        return position
    return min(position, project.waiting + (0 if in_line else 1))


_HELD_BY_ALL = frozenset({Reason.CAP, Reason.RESERVE, Reason.QUEUE})


def is_overdue(denial: Denial, meters: Meters, counts: PoolCounts, oldest_s: float | None) -> bool:
    """Do the leases of now last longer than those before them, so that their pace says nothing?

    The oldest of so many is usually about this many times older than the mean.
    """
    if oldest_s is None or denial.reason not in _HELD_BY_ALL or meters.hold_mean_s <= 0 or counts.in_use == 0:
        return False
    return oldest_s > meters.hold_mean_s * (1 + math.log(counts.in_use))


def estimate_s(
    denial: Denial,
    meters: Meters,
    counts: PoolCounts,
    project: ProjectUse,
    *,
    position: int,
    oldest_s: float | None,
    now: float,
) -> float | None:
    """When a slot may come, from now: the known time, or the pool's own pace; None if unknown.

    At a project's maximum only its own leases matter. They end at the pool's pace, but for the oldest: what
    has lasted longer than others probably lasts as long again. ``oldest_s``: the age of the oldest of these.
    """
    if denial.reason in (Reason.MEMORY, Reason.CPU):
        return None  # its time is when to look again, and no end of a lease of ours need free any of it
    if denial.reason is Reason.MAXIMUM and oldest_s is not None:
        mean_s = meters.hold_mean_s if meters.hold_mean_s > 0 else oldest_s
        if mean_s <= 0:
            return None
        ends_per_s = (project.in_use - 1) / mean_s + 1 / max(mean_s, oldest_s)
        return max(1, position) / ends_per_s
    known = max(0.0, denial.until - now) if denial.until is not None else 0.0
    if denial.reason is not Reason.SHARE and denial.until is not None and position <= 1:
        return known
    if meters.hold_mean_s <= 0 or counts.in_use == 0:
        return known if denial.until is not None and denial.reason is not Reason.SHARE else None
    if is_overdue(denial, meters, counts, oldest_s):
        return None
    return known + max(1, position) * meters.hold_mean_s / counts.in_use


def next_grant_at(now: float, spacing_s: float, spread: float, chance: float) -> float:
    """When the grant after this one may happen; ``chance`` is uniform in [0, 1).

    >>> [next_grant_at(100, 3, 0.5, chance) for chance in (0.0, 0.5)]
    [101.5, 103.0]
    """
    return now + spacing_s * (1 + spread * (2 * chance - 1))
