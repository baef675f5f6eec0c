"""Why a task does not start now: a reason for scripts, the blocker by name, a sentence for people."""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple


class DeferReason(Enum):
    ACTIVE = "active"
    """It is in flight already."""
    NOT_ASKED = "not-asked"
    """This run was asked for other tasks."""
    TYPE = "type"
    LABEL = "label"
    HELD = "held"
    """The caller keeps it back, with a sentence of its own."""
    STATUS = "status"
    CIRCLE = "circle"
    """It waits for itself."""
    CHILDREN = "children"
    NEEDS = "needs"
    ROOM = "room"
    BUDGET = "budget"
    """It could not be paid for now."""
    RESOURCE = "resource"
    FOOTPRINT = "footprint"
    TURN = "turn"
    """Somebody who was passed over too often comes first."""


class Deferral(NamedTuple):
    """A tuple, as one call makes thousands."""

    task_id: str
    reason: DeferReason
    blocker: str | None
    """The task in the way; the resource, where no task holds it."""
    words: str
    """One sentence about the task, without its name and without a full stop."""
