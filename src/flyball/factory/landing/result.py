"""How a landing ended, and who takes part in one."""

from __future__ import annotations

from dataclasses import dataclass

from flyball.core.tasks.task_run import LandingResult


@dataclass(frozen=True, slots=True, kw_only=True)
class Landed:
    result: LandingResult
    why: str = ""
    """What happened and the next step, in words."""
    detail: str = ""
    """What there is to see: the end of the gate's output, the paths that clash."""
    commit: str = ""
    waits: bool = False
    """No agent could do anything about it: it waits for a person as it is."""
    notes: tuple[str, ...] = ()
    """Said to the user, though the landing went well."""


class Refused(Exception):  # noqa: N818 - an answer on its way out, not an error
    def __init__(self, result: LandingResult, why: str, detail: str = "") -> None:
        super().__init__(why)
        self.landed = Landed(result=result, why=why, detail=detail)
