"""Listens to the body of a good answer on its way to the caller, and never holds it up.

In a stream of events an error can follow a 200 (``core/provider/stream_events.py``), and a stream as well as
a whole JSON body says what the call used (``core/provider/stream_events.py``). What is encoded with gzip or
deflate is decoded for the listener alone, a bounded piece at a time; another encoding is not understood, and
nothing is heard.

An answer's body on its way to the caller, with a slot that is free when the body is over.

Over means read to the end, closed, broken, or dropped and collected, whichever is first. Bytes pass as they
come. A listener reads along; what it makes out is told before the caller, who gives up on an error, has it.
"""

from __future__ import annotations

import json
import re
import zlib
from collections.abc import AsyncIterator, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

from flyball.core.provider.stream_events import MARK, SseErrorScanner, TokenCounter
from flyball.core.signals import Signal
from flyball.integrations.held_slot import AsyncHold, Hold
from flyball.integrations.outcome import no_answer_signal

_PLAIN = ("", "identity")
_ZIPPED = ("gzip", "x-gzip", "deflate")
_EITHER_HEADER = 32 + zlib.MAX_WBITS
_PIECE_BYTES = 64 * 1024
_LAST_EVENT = re.compile(rb'^data: ?(?:\[DONE\]|\{"type": ?"message_stop")', re.MULTILINE)
"""The last events of OpenAI's chats and of Anthropic's messages. A text with these words has no line of its
own."""
_LAST_BYTES = 128
_BODY_BYTES = 4 * 1024 * 1024
"""A longer JSON body is not read: it is a file, and not an answer of a model."""


class ResponseListener(Protocol):
    """Reads the body of an answer along with its reader."""

    def hear(self, part: bytes) -> Signal | None:
        """An error that this part of the body tells of."""

    def end(self) -> Signal | None:
        """An error that the end of the body makes known."""

    @property
    def finished(self) -> bool:
        """The answer said that it is over."""

    @property
    def used(self) -> Mapping[str, float]:
        """What the answer says that it used of the windows, once it is over; empty: nothing was said."""


class _NullListener:
    """Listens to nothing: what comes is not the answer of a model."""

    used: Mapping[str, float] = {}
    finished = False

    def hear(self, part: bytes) -> Signal | None:  # noqa: ARG002
        return None

    def end(self) -> Signal | None:
        return None


class _Plain:
    """The bytes as they were before they were encoded."""

    def __init__(self, *, zipped: bool) -> None:
        self._unzip = zlib.decompressobj(_EITHER_HEADER) if zipped else None

    def pieces(self, part: bytes) -> Iterator[bytes]:
        """Ends early and raises ``zlib.error`` at a raw deflate, or nonsense: the caller will find out."""
        if self._unzip is None:
            yield part
            return
        while part:
            yield self._unzip.decompress(part, _PIECE_BYTES)
            part = self._unzip.unconsumed_tail


class _Events:
    """One error is enough: the stream ends with it, and it is told once."""

    def __init__(self, *, zipped: bool) -> None:
        self._plain, self._spotter = _Plain(zipped=zipped), SseErrorScanner()
        self._over = self.finished = False

    def hear(self, part: bytes) -> Signal | None:
        if self._over:
            return None
        try:
            for plain in self._plain.pieces(part):
                said = self._spotter.feed(plain)
                self.finished = self.finished or _LAST_EVENT.search(plain[-_LAST_BYTES:]) is not None
                if said is not None:
                    self._over = True
                    return said
        except zlib.error:
            self._over = True
        return None

    def end(self) -> Signal | None:
        return None if self._over else self._spotter.end()

    @property
    def used(self) -> Mapping[str, float]:
        return self._spotter.meter.used


class _BufferedListener:
    """A body that is understood once it is all there."""

    finished = False

    def __init__(self, *, zipped: bool) -> None:
        self._plain, self._meter = _Plain(zipped=zipped), TokenCounter()
        self._body: bytearray | None = bytearray()

    def hear(self, part: bytes) -> Signal | None:
        try:
            for plain in self._plain.pieces(part):
                if self._body is None:
                    break
                self._body += plain
                if len(self._body) > _BODY_BYTES:
                    self._body = None
        except zlib.error:
            self._body = None
        return None

    def end(self) -> Signal | None:
        body, self._body = self._body, None
        if body is not None and MARK in body:
            try:
                self._meter.note(json.loads(body))
            except (ValueError, RecursionError):
                return None
        return None

    @property
    def used(self) -> Mapping[str, float]:
        return self._meter.used


DEAF: ResponseListener = _NullListener()


def listener_for(headers: Mapping[str, str]) -> ResponseListener:
    """What listens to the body of a good answer with these headers."""
    encoding = headers.get("content-encoding", "").strip().lower()
    kind = headers.get("content-type", "").lower()
    if encoding not in _PLAIN + _ZIPPED:
        return DEAF
    if kind.startswith("text/event-stream"):
        return _Events(zipped=encoding in _ZIPPED)
    return _BufferedListener(zipped=encoding in _ZIPPED) if kind.startswith("application/json") else DEAF


I = TypeVar("I")  # noqa: E741


@dataclass(frozen=True, slots=True)
class StreamHead(Generic[I]):
    """The first part of a body, already read, and what is left of it; None: nothing."""

    head: tuple[bytes, ...]
    rest: I | None


def read_opening(stream: Any, limit: int) -> StreamHead[Iterator[bytes]]:
    """Read a body up to ``limit`` bytes or a little more, and close it if that was all."""
    head, size, parts = [], 0, iter(stream)
    for part in parts:
        head.append(part)
        size += len(part)
        if size >= limit:
            return StreamHead(tuple(head), parts)
    stream.close()
    return StreamHead(tuple(head), None)


async def read_opening_async(stream: Any, limit: int) -> StreamHead[AsyncIterator[bytes]]:
    """``read_opening`` for an event loop."""
    head, size, parts = [], 0, aiter(stream)
    async for part in parts:
        head.append(part)
        size += len(part)
        if size >= limit:
            return StreamHead(tuple(head), parts)
    await stream.aclose()
    return StreamHead(tuple(head), None)


def _tell(hold: Hold, said: Signal | None) -> None:
    if said is not None and hold.held:
        hold.tell(said, news=True)


async def _tell_async(hold: AsyncHold, said: Signal | None) -> None:
    if said is not None and hold.held:
        await hold.tell(said, news=True)


class Relay:
    """The body of an answer that a thread reads."""

    def __init__(
        self,
        opening: StreamHead[Iterator[bytes]],
        source: Any,
        hold: Hold,
        late: type[Exception],
        listener: ResponseListener,
        *,
        stops_at_last_event: bool = False,
    ) -> None:
        """``stops_at_last_event``: its reader does, and neither reads on nor closes it."""
        self._opening, self._source, self._hold, self._late = opening, source, hold, late
        self._listener, self._stops = listener, stops_at_last_event

    def __iter__(self) -> Iterator[bytes]:
        yield from self._opening.head
        try:
            for part in self._opening.rest or ():
                _tell(self._hold, self._listener.hear(part))
                if self._stops and self._listener.finished:
                    self._finish()
                yield part
        except Exception as error:
            if isinstance(error, self._late):
                self._hold.tell(no_answer_signal(error), news=True)
            self._hold.free(error)
            raise
        self._finish()

    def _finish(self) -> None:
        if self._hold.held:
            _tell(self._hold, self._listener.end())
            self._hold.settle(self._listener.used)
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
        opening: StreamHead[AsyncIterator[bytes]],
        source: Any,
        hold: AsyncHold,
        late: type[Exception],
        listener: ResponseListener,
        *,
        stops_at_last_event: bool = False,
    ) -> None:
        """``stops_at_last_event``: its reader does, and neither reads on nor closes it."""
        self._opening, self._source, self._hold, self._late = opening, source, hold, late
        self._listener, self._stops = listener, stops_at_last_event

    async def __aiter__(self) -> AsyncIterator[bytes]:
        for part in self._opening.head:
            yield part
        try:
            if self._opening.rest is not None:
                async for part in self._opening.rest:
                    await _tell_async(self._hold, self._listener.hear(part))
                    if self._stops and self._listener.finished:
                        await self._finish()
                    yield part
        except Exception as error:
            if isinstance(error, self._late):
                await self._hold.tell(no_answer_signal(error), news=True)
            await self._hold.free(error)
            raise
        await self._finish()

    async def _finish(self) -> None:
        if self._hold.held:
            await _tell_async(self._hold, self._listener.end())
            self._hold.settle(self._listener.used)
            await self._hold.free()

    async def aclose(self) -> None:
        try:
            await self._source.aclose()
        finally:
            await self._hold.free()

    def __del__(self) -> None:
        self._hold.lose()
