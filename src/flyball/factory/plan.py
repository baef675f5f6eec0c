"""What a run would do now, found out without doing anything."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from flyball.core.footprint import footprint_of
from flyball.core.recovery import may_let_go
from flyball.core.slotrun import SlotRun, State
from flyball.core.task import Task, TaskStatus
from flyball.core.wave import Active, choose
from flyball.factory.config import ProjectConfig
from flyball.factory.frontier import landed
from flyball.factory.ledger import Ledger
from flyball.factory.report import Wish
from flyball.factory.repository import Repository
from flyball.factory.tasks.sources import open_source
from flyball.factory.workshop import STATE, pool_for


@dataclass(frozen=True, slots=True, kw_only=True)
class Start:
    task: str
    title: str
    priority: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Wait:
    task: str
    reason: str
    words: str
    blocker: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    project: str
    pool: str
    mode: str
    width: int
    resumes: dict[str, str] = field(default_factory=dict)
    """Cut short earlier, with the state in which each was left."""
    starts: list[Start] = field(default_factory=list)
    waits: list[Wait] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)


def planned_run(root: Path, config: ProjectConfig, wish: Wish, *, width: int | None = None) -> Plan:
    repository = Repository(root, default_branch=config.project.default_branch)
    source = open_source(config, root)
    loaded = source.load()
    wide = width or config.run.width
    still_open = {task.id for task in loaded.tasks if task.status is not TaskStatus.CLOSED}
    trips, closed, parked = _remembered(root, lambda ledger: landed(ledger, source, repository, still_open))
    over = {task.id for task in loaded.tasks} - still_open
    unfinished = {
        task: slot.state.value for task, slot in trips.items() if task not in over or not may_let_go(slot)
    }
    choice = choose(
        loaded.tasks,
        active=[_active(task, config) for task in loaded.tasks if task.id in unfinished],
        room=max(0, wide - len(unfinished)),
        areas=config.areas,
        held=parked,
        merged=closed,
        only=wish.only or None,
        parent=wish.parent,
    )
    return Plan(
        project=config.project.id,
        pool=pool_for(config),
        mode=wish.mode,
        width=wide,
        resumes=unfinished,
        starts=[
            Start(task=item.task.id, title=item.task.title, priority=item.task.priority)
            for item in choice.items
        ],
        waits=[
            Wait(task=each.task_id, reason=each.reason.value, words=each.words, blocker=each.blocker)
            for each in choice.deferrals
            if each.task_id not in unfinished
        ],
        problems=[f"{each.where}: {each.words}" for each in loaded.problems],
    )


def _active(task: Task, config: ProjectConfig) -> Active:
    """A trip that goes on: whoever would clash with it waits."""
    return Active(task.id, footprint_of(task.footprint, task.labels, config.areas))


def _remembered(
    root: Path, landed_of: Callable[[Ledger], set[str]]
) -> tuple[dict[str, SlotRun], set[str], dict[str, str]]:
    """From the ledger, if there is one: what is unfinished, landed, and waiting for a person."""
    try:
        ledger = Ledger(root / STATE, read_only=True)
    except FileNotFoundError:
        return {}, set(), {}
    try:
        ledger.load()
        unfinished = dict(ledger.slots)
        parked = {task: slot.reason for task, slot in ledger.trips_of(State.PARKED).items()}
        return unfinished, landed_of(ledger), parked
    finally:
        ledger.close()
