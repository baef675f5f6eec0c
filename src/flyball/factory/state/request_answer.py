"""What a run answers to what a person asked of it: an outcome for code, words for people."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class RequestOutcome(Enum):
    """What became of a request. The ledger keeps the value."""

    DONE = "done"
    """It was done, or has begun."""
    UNCHANGED = "unchanged"
    """There was nothing to do: it is so already, or nothing is under way."""
    REFUSED = "refused"
    """It cannot be done as things stand; the words say why."""
    LATE = "late"
    """The run that it was meant for was over."""


@dataclass(frozen=True, slots=True)
class RequestAnswer:
    outcome: RequestOutcome
    words: str

    @property
    def accepted(self) -> bool:
        """Are things as they were asked to be, or on their way there?"""
        return self.outcome in (RequestOutcome.DONE, RequestOutcome.UNCHANGED)


def answer_done(words: str) -> RequestAnswer:
    return RequestAnswer(RequestOutcome.DONE, words)


def answer_unchanged(words: str) -> RequestAnswer:
    return RequestAnswer(RequestOutcome.UNCHANGED, words)


def answer_refused(words: str) -> RequestAnswer:
    return RequestAnswer(RequestOutcome.REFUSED, words)
