"""pydantic-ai: a pool as the concurrency limiter of a model whose client ``govern`` does not know.

    ConcurrencyLimitedModel(model, limiter=PoolLimiter("anthropic"))

It sees when a call begins and ends, a stream's end included, and the error that one ends with; neither the
headers of an answer nor what it used. A model whose SDK is governed says more: ``flyball.govern(model)``. Use
one of the two, or each call takes two slots.
"""

from __future__ import annotations

import asyncio
import sys

from pydantic_ai.concurrency import AbstractConcurrencyLimiter

from flyball.core.signals import Signal, SignalKind
from flyball.integrations.gate import Gate, gate_for
from flyball.integrations.held_slot import AsyncHold
from flyball.integrations.outcome import JudgedResponse, judge

_FINE = JudgedResponse(Signal(SignalKind.OK))


class PoolLimiter(AbstractConcurrencyLimiter):
    """Takes a slot of a gate for each call: a pool's name, a ``Limiter`` or a ``Pool``."""

    def __init__(self, gate: Gate | str) -> None:
        self._gate = gate_for(gate)
        self._holds: list[AsyncHold] = []

    async def acquire(self, source: str) -> None:  # noqa: ARG002 - the port; the pool has a name of its own
        self._holds.append(await AsyncHold.of(self._gate, {}))

    def release(self) -> None:
        """Slots are alike and a release does not say whose it is: the one that was taken last ends."""
        hold, error = self._holds.pop(), sys.exc_info()[1]
        judged = _FINE if error is None else judge(error)
        told = () if judged is None else (asyncio.ensure_future(hold.tell(judged.signal, news=True)),)
        hold.free_soon(after=told)
