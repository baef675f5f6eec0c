"""The body of a request that no model answers, such as a file, on its way to the provider.

Files and batches are far longer than what a model is asked, so they are passed on as they come, and no more
than a bounded part of one is here at a time. Such a request is sent once: what it consisted of is gone.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator

BUFFER_BYTES = 256 * 1024
"""With this much of it here the client is read no further."""


class Upload:
    """Fed by the client's connection, and taken from by the call."""

    def __init__(self, transport: asyncio.Transport) -> None:
        self._client = transport
        self._parts, self._bytes = deque[bytes](), 0
        self._more = asyncio.Event()
        self.is_whole = self._is_broken = False

    def feed(self, part: bytes) -> None:
        self._parts.append(part)
        self._bytes += len(part)
        self._more.set()
        if self._bytes > BUFFER_BYTES:
            self._client.pause_reading()

    def end(self) -> None:
        self.is_whole = True
        self._more.set()

    def break_off(self) -> None:
        """The rest will not come."""
        self._is_broken = True
        self._more.set()

    async def parts(self) -> AsyncIterator[bytes]:
        """Raises ConnectionError where the rest does not come."""
        while True:
            while self._parts:
                part = self._parts.popleft()
                self._bytes -= len(part)
                if self._bytes <= BUFFER_BYTES and not self._client.is_closing():
                    self._client.resume_reading()
                yield part
            if self._is_broken:
                raise ConnectionError("the client's request broke off")
            if self.is_whole:
                return
            self._more.clear()
            await self._more.wait()
