"""A network between clients and a server that fails on purpose.

``FaultProxy`` listens on a port of its own and passes everything on, connection by connection, until it is
told otherwise: from then on what is asked, what is answered or both hangs (and is kept), comes late, or is
lost; connections are cut, or refused from the start. What hung goes on in the order of the connections or in
the reverse one. An event loop in one thread does all of it; the methods are called from tests.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine
from enum import Flag, auto
from typing import Any, TypeVar

R = TypeVar("R")
REORDERED_S = 0.02
"""Between two connections that go on one after the other: the server has handled the first by then."""


class Way(Flag):
    ASKING = auto()
    ANSWERING = auto()
    BOTH = ASKING | ANSWERING


class FaultProxy:
    """``target``: a port of this machine, or the path of a unix socket."""

    def __init__(self, target: int | str) -> None:
        self._target = target
        self._links: list[_Link] = []
        self._hung, self._lost, self._late_s = Way(0), Way(0), 0.0
        self._refuses = False
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="fault-proxy")
        self._thread.start()
        self._server = self._do(asyncio.start_server(self._accept, "127.0.0.1", 0))
        self.port: int = self._server.sockets[0].getsockname()[1]

    # -- what a test says ---------------------------------------------------------------------------

    def hang(self, way: Way = Way.BOTH) -> None:
        """Nothing goes this way any more, and neither side is told. What was sent is kept."""
        self._do(self._set_hung(self._hung | way))

    def resume(self, *, newest_first: bool = False) -> None:
        """What was kept goes on, connection by connection."""
        self._do(self._go_on(newest_first))

    def delay(self, seconds: float) -> None:
        """Everything takes so much longer, each way."""
        self._late_s = seconds

    def lose(self, way: Way) -> None:
        """What goes this way from now on never arrives."""
        self._lost = way

    def cut(self) -> None:
        """Every connection breaks at once; new ones may be made."""
        self._do(self._cut())

    def refuse(self, *, refuses: bool = True) -> None:
        """New connections break at once."""
        self._refuses = refuses

    def mend(self) -> None:
        """From now on nothing fails."""
        self._refuses, self._lost, self._late_s = False, Way(0), 0.0
        self.resume()

    @property
    def kept(self) -> int:
        """How many connections have something that hangs."""
        return sum(link.waiting for link in self._links)

    def close(self) -> None:
        self._do(self._stop())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    # -- in the loop --------------------------------------------------------------------------------

    def _do(self, step: Coroutine[Any, Any, R]) -> R:
        return asyncio.run_coroutine_threadsafe(step, self._loop).result(timeout=20)

    async def _accept(self, asking: asyncio.StreamReader, answers: asyncio.StreamWriter) -> None:
        link = _Link(self, answers)
        self._links.append(link)
        try:
            if not self._refuses:
                await link.run(asking, self._target)
        finally:
            link.abort()
            self._links.remove(link)

    async def _set_hung(self, way: Way) -> None:
        self._hung = way

    async def _go_on(self, newest_first: bool) -> None:
        self._hung = Way(0)
        waiting = [link for link in self._links if link.waiting]
        for link in reversed(waiting) if newest_first else waiting:
            link.gate.set()
            await asyncio.sleep(REORDERED_S)

    async def _cut(self) -> None:
        for link in self._links:
            link.abort()
        while self._links:
            await asyncio.sleep(0)

    async def _stop(self) -> None:
        self._server.close()
        await self._cut()
        await self._server.wait_closed()

    async def passed(self, way: Way, link: _Link) -> bool:
        """Wait until a piece of data may go on. False: it never may."""
        if self._late_s:
            await asyncio.sleep(self._late_s)
        while way & self._hung:
            link.gate.clear()
            link.waiting = True
            await link.gate.wait()
        link.waiting = False
        return not way & self._lost


class _Link:
    """One connection: a client's end and the server's."""

    def __init__(self, proxy: FaultProxy, client: asyncio.StreamWriter) -> None:
        self._proxy, self._ends = proxy, [client]
        self._pumps: list[asyncio.Task[None]] = []
        self.gate, self.waiting = asyncio.Event(), False

    async def run(self, asking: asyncio.StreamReader, target: int | str) -> None:
        try:
            answering, server = await _connected(target)
        except OSError:
            return
        client = self._ends[0]
        self._ends.append(server)
        self._pumps = [
            asyncio.ensure_future(self._pump(Way.ASKING, asking, server)),
            asyncio.ensure_future(self._pump(Way.ANSWERING, answering, client)),
        ]
        # Whichever side ends first ends the other.
        await asyncio.wait(self._pumps, return_when=asyncio.FIRST_COMPLETED)
        for pump in self._pumps:
            pump.cancel()
        await asyncio.gather(*self._pumps, return_exceptions=True)

    async def _pump(self, way: Way, source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
        while data := await source.read(1 << 16):
            if await self._proxy.passed(way, self):
                sink.write(data)
                await sink.drain()

    def abort(self) -> None:
        for end in self._ends:
            end.transport.abort()
        for pump in self._pumps:
            pump.cancel()


async def _connected(target: int | str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    if isinstance(target, str):
        return await asyncio.open_unix_connection(target)
    return await asyncio.open_connection("127.0.0.1", target)
