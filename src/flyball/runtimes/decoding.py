"""JSON at the edge: one line into one small struct, or None. Nothing that is not asked for is built."""

from __future__ import annotations

from typing import Any, Generic, TypeVar

import msgspec

from flyball.core.spans import number

T = TypeVar("T")


class Event(Generic[T]):
    """Decodes lines of one shape. Fields that are not named in the shape are passed over."""

    def __init__(self, shape: type[T]) -> None:
        self._decode = msgspec.json.Decoder(shape, strict=False).decode

    def read(self, line: bytes) -> T | None:
        """None for anything that is not a JSON object of this shape."""
        try:
            return self._decode(line)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return None


def word(value: Any) -> str | None:
    return value if isinstance(value, str) and value else None


def status(value: Any) -> int | None:
    """An HTTP status in whatever a field held."""
    found = number(value)
    return int(found) if found is not None and 100 <= found <= 599 else None
