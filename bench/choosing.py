"""Choosing what starts next among many tasks: the time of one call, for shapes that are hard in some way.

A run looks at the same tasks whenever something has moved, so what is judged is another look at them, with
one task more in flight than at the last. The first look, with nothing remembered, and one at which nothing
has changed are in the notes. Every round has tasks of its own. The baseline is what any choosing must do at
least: put the same tasks in order by priority, age and id.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from statistics import median

from bench.report import Figure, Progress, Section, Target, beside
from flyball.core.tasks.footprint import Footprint
from flyball.core.tasks.readiness import TaskIndex
from flyball.core.tasks.scheduler import RunningTask, choose
from flyball.core.tasks.task import Task

NAME = "choosing"
TITLE = "choosing among ready tasks"
_ACTIVE = 16
_ROOM = 16
_LIMIT_MS = 100.0

Scene = tuple[list[Task], list[RunningTask], int]
"""Tasks, what is in flight, room."""


@dataclass(frozen=True, slots=True)
class Sizes:
    rounds: int = 15
    tasks: int = 10_000


FULL = Sizes()
QUICK = Sizes(rounds=3, tasks=1_000)


def run(sizes: Sizes, progress: Progress) -> Section:
    figures, firsts, sames = [], [], []
    for what, make in _SHAPES.items():
        progress(f"{NAME}: {what}")
        looks = [_Looks.at(*make(sizes.tasks, f"r{number}")) for number in range(sizes.rounds)]
        figures.append(_figure(what, looks))
        firsts.append(f"{what} {median(look.first for look in looks):.0f} ms")
        sames.append(f"{what} {median(look.same for look in looks):.0f} ms")
    notes = (
        f"{sizes.tasks:,} tasks; room for {_ROOM} beside up to {_ACTIVE} in flight where not said otherwise",
        f"the first look: {', '.join(firsts)}",
        f"a look at which nothing has changed: {', '.join(sames)}",
    )
    return Section(NAME, TITLE, tuple(figures), notes)


@dataclass(frozen=True, slots=True)
class _Looks:
    """How long each look at one scene took, in ms, and the baseline."""

    first: float
    another: float
    same: float
    order: float

    @classmethod
    def at(cls, tasks: list[Task], active: list[RunningTask], room: int) -> _Looks:
        started = time.perf_counter()
        lineup = TaskIndex(tasks)
        choose(lineup, active=active, room=room)
        first = (time.perf_counter() - started) * 1000
        more = [*active, RunningTask("one more", Footprint(("elsewhere.txt",)))]
        another = _ms(lambda: choose(lineup, active=more, room=room))
        same = _ms(lambda: choose(lineup, active=more, room=room))
        return cls(first, another, same, _ms(lambda: sorted(tasks, key=_key)))


def _figure(what: str, looks: list[_Looks]) -> Figure:
    ours, theirs = [look.another for look in looks], [look.order for look in looks]
    target = Target("value", _LIMIT_MS)
    return beside(what, ours, theirs, unit="ms", name="putting them in order", target=target)


def _ms(work: Callable[[], object]) -> float:
    start = time.perf_counter()
    work()
    return (time.perf_counter() - start) * 1000


def _key(task: Task) -> tuple[int, float, int]:
    return task.priority, task.created or 0.0, int(task.id.rpartition("-")[2])


# -- the shapes --------------------------------------------------------------------------------------------


def _task(number: int, footprint: Footprint | None, needs: tuple[str, ...] = ()) -> Task:
    """Neither in order nor all alike."""
    mixed = number * 7919
    return Task(
        id=f"t-{number}",
        title="a task",
        priority=mixed % 5,
        created=float(mixed % 10_007),
        footprint=footprint,
        needs=needs,
        labels=("backend",),
    )


def _distinct(count: int, fresh: str) -> Scene:
    tasks = [_task(n, Footprint((f"src/{fresh}/m{n % 100}/f{n}.py",))) for n in range(count)]
    active = [RunningTask(f"a-{n}", Footprint((f"src/{fresh}/m{n}/a{n}.py",))) for n in range(_ACTIVE)]
    return tasks, active, _ROOM


def _room_for_all(count: int, fresh: str) -> Scene:
    tasks, active, _ = _distinct(count, fresh)
    return tasks, active, count


def _undeclared(count: int, _: str) -> Scene:
    return [_task(n, None) for n in range(count)], [], _ROOM


def _through_globs(count: int, fresh: str) -> Scene:
    """Paths, and every third a glob; each is stopped by one of the globs in flight."""
    tails = ("**", "f*.py", "**/*-*.py", "f-*")
    active = [
        RunningTask(f"a-{n}", Footprint((f"src/{fresh}/m{n}/{tails[n % len(tails)]}",)))
        for n in range(_ACTIVE)
    ]
    paths = (f"src/{fresh}/m{n % _ACTIVE}/f-{n}{'.py' if n % 3 else '*'}" for n in range(count))
    return [_task(n, Footprint((path,))) for n, path in enumerate(paths)], active, _ROOM


def _past_globs(count: int, fresh: str) -> Scene:
    """All of the globs in flight miss by a little; one more does not, for a folder that every task reads."""
    active = [RunningTask(f"a-{n}", Footprint((f"src/{fresh}/*/m{n}-*.py",))) for n in range(_ACTIVE - 1)]
    active.append(RunningTask("a-lib", Footprint((f"lib/{fresh}/**",))))
    paths = (f"src/{fresh}/d{n % 50}/m{n % _ACTIVE}_{n}.py" for n in range(count))
    read = (f"lib/{fresh}/x.py",)
    return [_task(n, Footprint((path,), read)) for n, path in enumerate(paths)], active, _ROOM


def _chain(count: int, fresh: str) -> Scene:
    tasks = [
        _task(n, Footprint((f"src/{fresh}/{n}.py",)), (f"t-{n - 1}",) if n else ()) for n in range(count)
    ]
    return tasks, [], _ROOM


_SHAPES: dict[str, Callable[[int, str], Scene]] = {
    "all distinct": _distinct,
    "all distinct, room for all": _room_for_all,
    "all undeclared": _undeclared,
    "each stopped by a glob in flight": _through_globs,
    "each missed by 15 globs in flight": _past_globs,
    "each needs the one before": _chain,
}
