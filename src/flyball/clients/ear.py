"""Listens to the body of a good answer on its way to the caller, and never holds it up.

Only a stream of events is listened to: there an error can follow a 200 (``core/events.py``). What is encoded
with gzip or deflate is decoded for the ear alone, a bounded piece at a time; another encoding is not
understood, and nothing is heard.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Mapping
from typing import Protocol

from flyball.core.events import ErrorSpotter
from flyball.core.signals import Signal

_PLAIN = ("", "identity")
_ZIPPED = ("gzip", "x-gzip", "deflate")
_EITHER_HEADER = 32 + zlib.MAX_WBITS
_PIECE_BYTES = 64 * 1024


class Ear(Protocol):
    def hear(self, part: bytes) -> Signal | None:
        """An error that this part of the body tells of."""

    def end(self) -> Signal | None:
        """An error that the end of the body makes known."""


class _Deaf:
    def hear(self, part: bytes) -> Signal | None:  # noqa: ARG002
        return None

    def end(self) -> Signal | None:
        return None


class _Events:
    """One error is enough: the stream ends with it, and it is told once."""

    def __init__(self, *, zipped: bool) -> None:
        self._spotter: ErrorSpotter | None = ErrorSpotter()
        self._unzip = zlib.decompressobj(_EITHER_HEADER) if zipped else None

    def hear(self, part: bytes) -> Signal | None:
        for plain in self._plain(part):
            said = None if self._spotter is None else self._spotter.feed(plain)
            if said is not None:
                self._spotter = None
                return said
        return None

    def end(self) -> Signal | None:
        return None if self._spotter is None else self._spotter.end()

    def _plain(self, part: bytes) -> Iterator[bytes]:
        if self._unzip is None:
            yield part
            return
        try:
            while part and self._spotter is not None:
                yield self._unzip.decompress(part, _PIECE_BYTES)
                part = self._unzip.unconsumed_tail
        except zlib.error:
            self._spotter = None  # a raw deflate, or nonsense: the caller will find out


DEAF: Ear = _Deaf()


def ear_for(headers: Mapping[str, str]) -> Ear:
    """For the body of a good answer with these headers."""
    encoding = headers.get("content-encoding", "").strip().lower()
    if not headers.get("content-type", "").lower().startswith("text/event-stream"):
        return DEAF
    return _Events(zipped=encoding in _ZIPPED) if encoding in _PLAIN + _ZIPPED else DEAF
