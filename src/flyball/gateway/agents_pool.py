"""Where agents hold a slot whose calls are counted one by one in their providers' pools.

Such an agent takes no provider slot while it compiles or tests. How many may live at once is a question of
the machine, so the pool has a fixed cap by the machine's memory until a person sets another
(``flyball pool set agents --cap 12``); ``flyball machine set`` bounds it by memory and load, too.
"""

from __future__ import annotations

from flyball.core.pool.settings import AGENTS_POOL
from flyball.governor.governor import Governor
from flyball.governor.internals import internals
from flyball.governor.state_url import on_server
from flyball.host.process import host_name
from flyball.host.resources import total_bytes

_GIB = 1024**3
_FEWEST, _MOST = 4, 32


def agents_pool(address: str) -> str:
    """The pool of this machine's agents: on a state that many machines share, it has the machine's name."""
    return f"{AGENTS_POOL}:{host_name()}" if on_server(address) else AGENTS_POOL


def ensure_agents_pool(governor: Governor) -> str:
    """The pool's name; it is made with its first use."""
    pool = agents_pool(internals(governor).address)
    if not internals(governor).named_settings(pool):
        governor.set_pool(pool, cap=default_cap(total_bytes()), adaptive=False)
    return pool


def default_cap(memory_bytes: int | None) -> int:
    """An agent with its tests and builds takes about a GiB.

    >>> default_cap(16 * 1024**3), default_cap(None)
    (16, 8)
    """
    return max(_FEWEST, min(_MOST, memory_bytes // _GIB)) if memory_bytes is not None else 8
