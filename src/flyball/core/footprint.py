"""What a task touches: tokens it writes and tokens it only reads."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Footprint:
    write: tuple[str, ...] = ()
    read: tuple[str, ...] = ()
