"""What a person asked of a run, and how it ended."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum

from flyball.core.tasks.readiness import Deferral
from flyball.core.tasks.statistics import SpendTotals
from flyball.core.tasks.task import Task, ancestors
from flyball.factory.landing.base_gate import RedBase
from flyball.factory.tasks.port import TaskProblem


class RunVerb(Enum):
    """What can be asked of a run that is going on. The ledger keeps the value."""

    DRAIN = "drain"
    STOP = "stop"
    RESIZE = "resize"
    NUDGE = "nudge"
    MERGE = "merge"
    CLOSE = "close"
    REJECT = "reject"

    @property
    def waits_for_next_run(self) -> bool:
        """The others are meant for the run that was there."""
        return self in (RunVerb.NUDGE, RunVerb.MERGE, RunVerb.REJECT)


class ManualMove(Enum):
    """What a person has done with one task, whatever the policy says. Requests keep the value."""

    MERGE = "merge"
    PULL_REQUEST = "pr"
    """Open a pull request."""
    LAND_APPROVED = "approved"
    """Land the pull request that is open, if people approved it."""
    LAND_UNAPPROVED = "unapproved"
    REVIEW = "review"
    """Have the pull request reviewed, which stays open."""
    CLOSE = "close"
    REJECT = "reject"


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRequest:
    """What a person asked of this run."""

    mode: str = "rolling"
    once: bool = False
    only: Sequence[str] = ()
    parent: str | None = None
    resume: bool = False
    """Going on with something was expected."""

    def wants(self, task: Task, tasks: Mapping[str, Task]) -> bool:
        """Is this run for the task, whichever run began it?"""
        if self.only and task.id not in self.only:
            return False
        return self.parent is None or any(each.id == self.parent for each in ancestors(task, tasks))


@dataclass(frozen=True, slots=True, kw_only=True)
class RunOptions:
    """What a person may say about a run beside its request."""

    width: int | None = None
    model: str = ""
    default_model: str = ""
    guard: str | None = None
    """What the run says about budgets; None: what the project says."""
    allow_api_spend: bool = False
    check_base: bool = True
    """False: start agents though the gate may be red on the base."""


@dataclass(slots=True)
class RunReport:
    """How a run ended."""

    merged: list[str] = field(default_factory=list)
    blocked: dict[str, str] = field(default_factory=dict)
    parked: dict[str, str] = field(default_factory=dict)
    left: dict[str, str] = field(default_factory=dict)
    """Under way when the run was drained or stopped; the next run goes on with them."""
    unstarted: list[str] = field(default_factory=list)
    """Would have come next when the run was drained or stopped."""
    waiting: list[Deferral] = field(default_factory=list)
    """Tasks that cannot start by themselves: a need that is missing or blocked, a circle."""
    problems: Sequence[TaskProblem] = ()
    paused: str = ""
    stopped: str = ""
    red_base: RedBase | None = None
    """Why no agent was started."""
    spend: SpendTotals = field(default_factory=SpendTotals)
    """What the run's agents used, as far as they say."""
    denials: dict[str, list[str]] = field(default_factory=dict)
    """By task: what its agents wanted to do and were not permitted to."""
    notes: list[str] = field(default_factory=list)

    def note(self, words: str) -> None:
        if words not in self.notes:
            self.notes.append(words)
