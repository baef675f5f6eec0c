"""Listens to the body of a good answer on its way to the caller, and never holds it up.

In a stream of events an error can follow a 200 (``core/events.py``), and a stream as well as a whole JSON
body says what the call used (``core/used.py``). What is encoded with gzip or deflate is decoded for the ear
alone, a bounded piece at a time; another encoding is not understood, and nothing is heard.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterator, Mapping
from typing import Protocol

from flyball.core.events import ErrorSpotter
from flyball.core.signals import Signal
from flyball.core.used import MARK, Meter

_PLAIN = ("", "identity")
_ZIPPED = ("gzip", "x-gzip", "deflate")
_EITHER_HEADER = 32 + zlib.MAX_WBITS
_PIECE_BYTES = 64 * 1024
_BODY_BYTES = 4 * 1024 * 1024
"""Of a JSON body that is longer nothing is heard: somebody's file, no answer of a model."""


class Ear(Protocol):
    def hear(self, part: bytes) -> Signal | None:
        """An error that this part of the body tells of."""

    def end(self) -> Signal | None:
        """An error that the end of the body makes known."""

    @property
    def used(self) -> Mapping[str, float]:
        """What the answer says that it used of the windows, once it is over; empty: nothing was said."""


class _Deaf:
    used: Mapping[str, float] = {}

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
        self._plain, self._spotter = _Plain(zipped=zipped), ErrorSpotter()
        self._over = False

    def hear(self, part: bytes) -> Signal | None:
        if self._over:
            return None
        try:
            for plain in self._plain.pieces(part):
                said = self._spotter.feed(plain)
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


class _Whole:
    """A body that is understood once it is all there."""

    def __init__(self, *, zipped: bool) -> None:
        self._plain, self._meter = _Plain(zipped=zipped), Meter()
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


DEAF: Ear = _Deaf()


def ear_for(headers: Mapping[str, str]) -> Ear:
    """For the body of a good answer with these headers."""
    encoding = headers.get("content-encoding", "").strip().lower()
    kind = headers.get("content-type", "").lower()
    if encoding not in _PLAIN + _ZIPPED:
        return DEAF
    if kind.startswith("text/event-stream"):
        return _Events(zipped=encoding in _ZIPPED)
    return _Whole(zipped=encoding in _ZIPPED) if kind.startswith("application/json") else DEAF
