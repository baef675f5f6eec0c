"""Which request is next: tenants take turns before anything is done for their requests.

A server works on a few requests at a time; more would only get in each other's way. A request that comes
while all turns are taken stands in the line of its tenant, and the lines are served in rotation: a tenant
that sends a thousand requests waits behind its own, and a light tenant behind one of each other's.

A turn is over when the answer begins, when the request begins to wait for a slot or a look, or when it has
taken ``LONGEST_S``: a store that does not answer must not hold up requests that do not need it.

Use from one event loop only.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict, deque
from contextvars import ContextVar

AT_ONCE = 8
LONGEST_S = 0.05
_NAMED = (b"/v1/orgs/", b"/v1/pools/")


class Turn:
    """The right to be worked on."""

    __slots__ = ("_turns", "began")

    def __init__(self, turns: TenantScheduler, began: float) -> None:
        self._turns: TenantScheduler | None = turns
        self.began = began

    def over(self) -> None:
        """Let the next request start. A second call changes nothing."""
        turns, self._turns = self._turns, None
        if turns is not None:
            turns.end(self)


_current: ContextVar[Turn | None] = ContextVar("turn", default=None)


class TenantScheduler:
    """Gives requests their turns."""

    def __init__(self, at_once: int = AT_ONCE) -> None:
        self._at_once = at_once
        self._taken: dict[Turn, None] = {}
        self._lines: OrderedDict[bytes, deque[asyncio.Future[Turn]]] = OrderedDict()
        self._watch: asyncio.TimerHandle | None = None

    async def take(self, tenant: bytes) -> Turn:
        """A turn for the task that calls this, at once or when it is this tenant's."""
        turn = await self._next(tenant)
        _current.set(turn)
        return turn

    async def _next(self, tenant: bytes) -> Turn:
        loop = asyncio.get_running_loop()
        if not self._lines and len(self._taken) < self._at_once:
            return self._give(loop)
        future: asyncio.Future[Turn] = loop.create_future()
        self._lines.setdefault(tenant, deque()).append(future)
        if self._watch is None:
            self._watch = loop.call_later(LONGEST_S, self._relieve)
        try:
            return await future
        except asyncio.CancelledError:
            if future.done() and not future.cancelled():
                future.result().over()
            raise

    def _give(self, loop: asyncio.AbstractEventLoop) -> Turn:
        turn = Turn(self, loop.time())
        self._taken[turn] = None
        return turn

    def end(self, turn: Turn) -> None:
        del self._taken[turn]
        if self._lines:
            self._serve()

    def _serve(self) -> None:
        loop = asyncio.get_running_loop()
        while self._lines and len(self._taken) < self._at_once:
            tenant, line = self._lines.popitem(last=False)
            future = line.popleft()
            if line:
                self._lines[tenant] = line
            if not future.done():
                future.set_result(self._give(loop))

    def _relieve(self) -> None:
        """End the turns of requests that take too long."""
        loop = asyncio.get_running_loop()
        for turn in [turn for turn in self._taken if loop.time() - turn.began >= LONGEST_S]:
            turn.over()
        self._watch = loop.call_later(LONGEST_S, self._relieve) if self._lines else None


def tenant_in(path: bytes, authorization: bytes) -> bytes:
    """The line of a request, from what it shows first: the org or pool it names, and its token.

    >>> tenant_in(b"/v1/orgs/acme/runs/7", b"Bearer x")
    b'Bearer x /v1/orgs/acme'
    """
    if path.startswith(_NAMED):
        return b"%b %b" % (authorization, b"/".join(path.split(b"/", 4)[:4]))
    return authorization


def end_turn() -> None:
    """The request that calls this waits from now on, or has its answer: it needs no turn any more."""
    turn = _current.get(None)
    if turn is not None:
        turn.over()
