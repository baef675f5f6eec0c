"""How far a long run has come, on stderr: one line that is written over on a terminal, a line now and then
anywhere else. What is over within a moment says nothing there."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TextIO

FIRST_S = 1.0
EVERY_S = 5.0
"""A log of a run of minutes gets some dozens of lines, whatever is told."""


class Progress:
    def __init__(self, stream: TextIO, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._stream, self._clock = stream, clock
        self._terminal, self._shown = stream.isatty(), False
        self._next_at = clock() + FIRST_S

    def tell(self, words: str) -> None:
        if self._terminal:
            self._shown = True
            self._write(f"\r\x1b[K{words}")
        elif self._clock() >= self._next_at:
            self._next_at = self._clock() + EVERY_S
            self._write(f"{words}\n")

    def clear(self) -> None:
        """A terminal's line is gone before the results are printed."""
        if self._shown:
            self._write("\r\x1b[K")

    def _write(self, text: str) -> None:
        self._stream.write(text)
        self._stream.flush()
