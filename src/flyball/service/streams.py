"""Server-sent events: what each stream has not been told yet, and how it is written.

A stream that is read slowly costs a bounded amount: of states it has the newest only, of facts the last
``FACTS_HELD``. What it missed it sees in the ids, which count up by one.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, Iterable, Iterator
from contextlib import contextmanager

from flyball.service.problems import ProblemError

HEARTBEAT_S = 10.0
MOST_STREAMS = 2000
FACTS_HELD = 500
RETRY_MS = 2000
"""How long a browser waits before it comes back."""


def event(name: str, data: bytes, event_id: str = "") -> bytes:
    r"""One event as it goes over the wire; ``data`` is one line of JSON.

    >>> event("fact", b'{"pool": "anthropic"}', "a1-7")
    b'id: a1-7\nevent: fact\ndata: {"pool": "anthropic"}\n\n'
    """
    head = f"id: {event_id}\n" if event_id else ""
    return b"%sevent: %s\ndata: %s\n\n" % (head.encode(), name.encode(), data)


class Stream:
    """One client that watches."""

    def __init__(self, state: bytes, missed: Iterable[bytes] = ()) -> None:
        self._waiting: deque[bytes] = deque(missed, maxlen=FACTS_HELD)
        self._state: bytes | None = state
        self._last: bytes | None = None
        self._news = asyncio.Event()
        self._news.set()

    def tell(self, told: bytes) -> None:
        self._waiting.append(told)
        self._news.set()

    def tell_state(self, told: bytes) -> None:
        """Replaces one that has not gone out yet."""
        self._state = told
        self._news.set()

    def end(self, last: bytes) -> None:
        self._last = last
        self._news.set()

    async def chunks(self) -> AsyncGenerator[bytes, None]:
        """What to write, until the end; a comment where nothing happens for a while."""
        yield b"retry: %d\n\n" % RETRY_MS
        while True:
            try:
                async with asyncio.timeout(HEARTBEAT_S):
                    await self._news.wait()
            except TimeoutError:
                yield b": nothing new\n\n"
                continue
            self._news.clear()
            told = b"".join(self._waiting) + (self._state or b"")
            self._waiting.clear()
            self._state = None
            if told:
                yield told
            if self._last is not None:
                yield self._last
                return


class Streams:
    """All that are open. Used from the event loop only."""

    def __init__(self) -> None:
        self._open: set[Stream] = set()
        self._last: bytes | None = None

    def __len__(self) -> int:
        return len(self._open)

    def check_room(self) -> None:
        if len(self._open) >= MOST_STREAMS:
            words = f"{MOST_STREAMS} streams are open already; try again later"
            raise ProblemError(503, "too-many-streams", words, headers={"Retry-After": "10"})

    @contextmanager
    def open(self, state: bytes, missed: Iterable[bytes]) -> Iterator[Stream]:
        """A new one for as long as the block runs; it is told the state, and what it missed, at once."""
        stream = Stream(state, missed)
        if self._last is not None:
            stream.end(self._last)
        self._open.add(stream)
        try:
            yield stream
        finally:
            self._open.discard(stream)

    def tell(self, told: bytes) -> None:
        for stream in self._open:
            stream.tell(told)

    def tell_state(self, told: bytes) -> None:
        for stream in self._open:
            stream.tell_state(told)

    def end(self, last: bytes) -> None:
        """The last event for all open streams and all that still come."""
        self._last = last
        for stream in self._open:
            stream.end(last)
