"""What a client needs of a gate: a slot for a while, and a place to report to.

    gate      anything with ``slot()``: a ``Limiter``, a ``Pool`` of a governor, your own
    slot      a ``with`` and an ``async with`` block that yields a ticket
    ticket    hears what the provider said: ``report(signal)``

``gate_for`` turns what a user writes into a gate: one of those as it stands, or the name of a pool.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Protocol, TypedDict, runtime_checkable

from flyball.core.signals import Signal
from flyball.errors import UsageError
from flyball.governor.ask import AskOptions, asking_for
from flyball.governor.default_governor import shared_governor
from flyball.governor.governor import Governor
from flyball.governor.lease import Slot

if TYPE_CHECKING:
    from typing import Unpack


class SlotTicket(Protocol):
    """What a slot yields. One whose ``hears_repeats`` is true is also told of throttled retries."""

    def report(self, status: Signal, /) -> object: ...


class SlotRequest(Protocol):
    """One use of a gate, from a thread or from an event loop."""

    def __enter__(self) -> SlotTicket: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> object: ...

    async def __aenter__(self) -> SlotTicket: ...

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> object: ...


class SlotOptions(TypedDict, total=False):
    """What is said with an ask; only what is wanted is passed on."""

    timeout: float
    """Wait at most so many seconds, then raise a ``RefusedError``."""
    cost: Mapping[str, float]
    """What the call will use of a gate's windows, for gates that have some."""


class Gate(Protocol):
    """Lets calls in."""

    @property
    def slot(self) -> Callable[..., SlotRequest]:
        """Takes what of ``SlotOptions`` it understands."""


@runtime_checkable
class Budgeted(Protocol):
    """A gate with a retry budget of its own, charged for every timeout it hears of."""

    def may_retry(self) -> bool: ...

    def take_retry(self) -> bool: ...


class Pool:
    """One pool of a governor, with what every ask of this client says about itself."""

    def __init__(self, governor: Governor, pool: str, /, **ask: Unpack[AskOptions]) -> None:
        asking_for(pool, **ask)  # a misspelt option is told here, not with the first call
        self.governor, self.pool, self._ask = governor, pool, ask

    def slot(self, *, timeout: float | None = None, cost: Mapping[str, float] | None = None) -> Slot:
        """``cost``: what this call will use of the pool's windows."""
        ask: AskOptions = {**self._ask, "cost": cost} if cost is not None else self._ask
        return self.governor.slot(self.pool, timeout=timeout, **ask)

    def of(self, pool: str) -> Pool:
        """Another pool of the same governor, asked in the same way."""
        return self if pool == self.pool else Pool(self.governor, pool, **self._ask)

    def __repr__(self) -> str:
        return f"<Pool {self.pool!r} at {self.governor.place}>"


def gate_for(gate: Gate | str) -> Gate:
    """A gate as it is; a name becomes that pool of the governor the environment points to."""
    if isinstance(gate, str):
        return Pool(shared_governor(), gate)
    if not callable(getattr(gate, "slot", None)):
        raise UsageError(f"expected a pool's name, a Limiter or a Pool, not {gate!r}")
    return gate


POOLS_BY_HOST = {
    "api.anthropic.com": "anthropic",
    "api.openai.com": "openai",
    "generativelanguage.googleapis.com": "google",
}


def pool_of_host(host: str) -> str:
    """The pool that a provider's calls count against where none was named; others use their host's name."""
    return POOLS_BY_HOST.get(host) or host or "unknown"
