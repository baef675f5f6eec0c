"""How far a long run has come, on stderr, and what a command printed, passed on piece by piece.

Progress is one line that is written over on a terminal, and a line now and then anywhere else; what is over
within a moment says nothing there. Passing output on keeps memory small, and nothing steers the terminal.
"""

from __future__ import annotations

import codecs
import io
import time
from collections.abc import Callable, Iterator
from typing import TextIO

from flyball.cli.ui.render import safe
from flyball.host.growing_file import GrowingFile

FIRST_S = 1.0
EVERY_S = 5.0
"""A log of a run of minutes gets some dozens of lines, whatever is told."""


class ProgressLine:
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


class StreamCopy:
    """Text of a file that may still grow, with one kind of line end."""

    def __init__(self, file: GrowingFile) -> None:
        self._file = file
        decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._decoder = io.IncrementalNewlineDecoder(decoder, translate=True)
        self.last = ""
        """The last character that was passed on; empty before the first."""

    def new(self) -> Iterator[str]:
        """What has come since the last time."""
        while piece := self._file.read():
            yield self._note_last(self._decoder.decode(piece))

    def rest(self) -> Iterator[str]:
        """The same, and half a character if it ends in one."""
        yield from self.new()
        yield self._note_last(self._decoder.decode(b"", final=True))

    def _note_last(self, text: str) -> str:
        self.last = text[-1:] or self.last
        return text

    def close(self) -> None:
        self._file.close()


def safe_text(text: str) -> str:
    """Safe for a terminal, with its lines and tabs.

    >>> safe_text("one\\ttwo\\x1b[2J\\n")
    'one\\ttwo\\\\x1b[2J\\n'
    """
    return "\n".join("\t".join(map(safe, line.split("\t"))) for line in text.split("\n"))
