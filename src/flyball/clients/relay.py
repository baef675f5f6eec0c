"""An answer's body on its way to the caller, with a slot that is free when the body is over.

Over means read to the end, closed, broken, or dropped and collected, whichever is first. Bytes pass as they
come. An ear listens to them; what it makes out is told before the caller, who gives up on an error, has it.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from flyball.clients.ear import Ear
from flyball.clients.hold import AsyncHold, Hold
from flyball.clients.telling import unanswered
from flyball.core.signals import Signal

I = TypeVar("I")  # noqa: E741


@dataclass(frozen=True, slots=True)
class Opening(Generic[I]):
    """The first part of a body, already read, and what is left of it; None: nothing."""

    head: tuple[bytes, ...]
    rest: I | None


def read_opening(stream: Any, limit: int) -> Opening[Iterator[bytes]]:
    """Read a body up to ``limit`` bytes or a little more, and close it if that was all."""
    head, size, parts = [], 0, iter(stream)
    for part in parts:
        head.append(part)
        size += len(part)
        if size >= limit:
            return Opening(tuple(head), parts)
    stream.close()
    return Opening(tuple(head), None)


async def read_opening_async(stream: Any, limit: int) -> Opening[AsyncIterator[bytes]]:
    """``read_opening`` for an event loop."""
    head, size, parts = [], 0, aiter(stream)
    async for part in parts:
        head.append(part)
        size += len(part)
        if size >= limit:
            return Opening(tuple(head), parts)
    await stream.aclose()
    return Opening(tuple(head), None)


def _tell(hold: Hold, said: Signal | None) -> None:
    if said is not None and hold.held:
        hold.tell(said, news=True)


async def _tell_async(hold: AsyncHold, said: Signal | None) -> None:
    if said is not None and hold.held:
        await hold.tell(said, news=True)


class Relay:
    """The body of an answer that a thread reads."""

    def __init__(
        self, opening: Opening[Iterator[bytes]], source: Any, hold: Hold, late: type[Exception], ear: Ear
    ) -> None:
        self._opening, self._source, self._hold, self._late = opening, source, hold, late
        self._ear = ear

    def __iter__(self) -> Iterator[bytes]:
        yield from self._opening.head
        try:
            for part in self._opening.rest or ():
                _tell(self._hold, self._ear.hear(part))
                yield part
        except Exception as error:
            if isinstance(error, self._late):
                self._hold.tell(unanswered(error), news=True)
            self._hold.free(error)
            raise
        _tell(self._hold, self._ear.end())
        self._hold.settle(self._ear.used)
        self._hold.free()

    def close(self) -> None:
        try:
            self._source.close()
        finally:
            self._hold.free()

    def __del__(self) -> None:
        self._hold.lose()


class AsyncRelay:
    """The body of an answer that a task reads."""

    def __init__(
        self,
        opening: Opening[AsyncIterator[bytes]],
        source: Any,
        hold: AsyncHold,
        late: type[Exception],
        ear: Ear,
    ) -> None:
        self._opening, self._source, self._hold, self._late = opening, source, hold, late
        self._ear = ear

    async def __aiter__(self) -> AsyncIterator[bytes]:
        for part in self._opening.head:
            yield part
        try:
            if self._opening.rest is not None:
                async for part in self._opening.rest:
                    await _tell_async(self._hold, self._ear.hear(part))
                    yield part
        except Exception as error:
            if isinstance(error, self._late):
                await self._hold.tell(unanswered(error), news=True)
            await self._hold.free(error)
            raise
        await _tell_async(self._hold, self._ear.end())
        self._hold.settle(self._ear.used)
        await self._hold.free()

    async def aclose(self) -> None:
        try:
            await self._source.aclose()
        finally:
            await self._hold.free()

    def __del__(self) -> None:
        self._hold.lose()
