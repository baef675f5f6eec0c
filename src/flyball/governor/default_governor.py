"""The governor that a program has without making one."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from flyball.core.pool.settings import DEFAULT_POOL
from flyball.governor.ask import asking_for
from flyball.governor.governor import Governor
from flyball.governor.lease import Slot
from flyball.governor.state_url import resolve

if TYPE_CHECKING:
    from typing import Unpack

    from flyball.governor.ask import AskOptions

_shared: dict[str, Governor] = {}
_lock = threading.Lock()


def shared_governor() -> Governor:
    """The process's own governor for where the environment points now."""
    address = resolve()
    with _lock:
        if address not in _shared:
            _shared[address] = Governor(address)
        return _shared[address]


def slot(pool: str = DEFAULT_POOL, *, timeout: float | None = None, **ask: Unpack[AskOptions]) -> Slot:
    """Hold a slot of a pool for the length of a ``with`` or ``async with`` block.

    State is shared by every process of the machine (``FLYBALL_HOME``, ``FLYBALL_URL``). Waits until a slot is
    free, at most ``timeout`` seconds, then raises ``WaitTimeoutError``. ``AskOptions`` lists what else an ask
    may say: project, name, slots, priority, resources, model, cost.
    """
    return Slot(shared_governor()._internals, asking_for(pool, **ask), timeout)
