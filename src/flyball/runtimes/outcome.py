"""What the pool is told of an agent's run, while it goes on and when it has ended. ``exec`` and the factory
tell it the same.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Protocol, TypeVar

from flyball.core.pool.model import Outcome
from flyball.core.signals import End, Signal
from flyball.errors import StoreError
from flyball.runtimes.port import Ending, Progress

_OUTCOMES = {End.FINISHED: Outcome.FINISHED, End.FAILED: Outcome.FAILED}


def outcome_of(end: End) -> Outcome:
    """Limited, killed and unknown say nothing about the work. A limit has told the pool of itself by its
    signal; released as throttled it would count twice.

    >>> outcome_of(End.LIMITED)
    <Outcome.ABANDONED: 'abandoned'>
    """
    return _OUTCOMES.get(end, Outcome.ABANDONED)


class AgentLease(Protocol):
    """The lease that an agent runs under."""

    rejected: bool

    def report(self, status: Signal, /) -> Signal: ...


_Lease = TypeVar("_Lease", bound=AgentLease)


def report_signal(
    lease: _Lease, signal: Signal, progress: Progress, *, note_answer: Callable[[_Lease], None]
) -> None:
    """Until the model has answered, what is refused is the call that the lease was granted for.
    ``note_answer`` is the governor's."""
    if progress.turns:
        note_answer(lease)
    # The agent runs on whether or not the state can be written just now.
    with suppress(StoreError):
        lease.report(signal)


def report_ending(
    lease: _Lease, ending: Ending, *, read: bool, note_answer: Callable[[_Lease], None]
) -> Outcome:
    """Tell the lease what it has not been told yet; the outcome to release it with.

    ``read``: the agent's output was read, so a run that finished is an answer of the model.
    """
    if ending.end is End.LIMITED and ending.signal is not None and not ending.told:
        report_signal(lease, ending.signal, ending.progress, note_answer=note_answer)
    if read and ending.end is End.FINISHED:
        note_answer(lease)
    # How long a refused run took says nothing about how long work takes.
    lease.rejected = ending.end is End.LIMITED
    return outcome_of(ending.end)
