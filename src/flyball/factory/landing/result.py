"""How a landing ended, and who takes part in one."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class LandingResult(Enum):
    MERGED = "merged"
    PR_OPENED = "pr-opened"
    CONFLICT = "conflict"
    GATE_FAILED = "gate-failed"
    GATE_BROKEN = "gate-broken"
    """One of its commands could not be run at all, and the work has nothing to do with that."""
    PROTECTED = "protected"
    UNSIGNED = "unsigned"
    UNAPPROVED = "unapproved"
    DIRTY = "dirty"
    NO_CHANGES = "no-changes"
    NO_REMOTE = "no-remote"
    DIVERGED = "diverged"
    """The default branch here and origin's clash, and landings are pushed."""
    NO_GH = "no-gh"
    """The program that opens pull requests is missing, or does not answer."""
    ERROR = "error"


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
