"""What a command printed, passed on piece by piece: memory stays small, and nothing steers the terminal."""

from __future__ import annotations

import codecs
import io
from collections.abc import Iterator
from typing import BinaryIO

from flyball.cli.render import safe

PIECE_BYTES = 1 << 16


class Passage:
    """Text of a file that may still grow, from where the file stands, with one kind of line end."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._decoder = io.IncrementalNewlineDecoder(decoder, translate=True)
        self.last = ""
        """The last character that was passed on; empty before the first."""

    def new(self) -> Iterator[str]:
        """What has come since the last time."""
        while piece := self._file.read(PIECE_BYTES):
            yield self._passed(self._decoder.decode(piece))

    def rest(self) -> Iterator[str]:
        """The same, and half a character if it ends in one."""
        yield from self.new()
        yield self._passed(self._decoder.decode(b"", final=True))

    def _passed(self, text: str) -> str:
        self.last = text[-1:] or self.last
        return text

    def close(self) -> None:
        self._file.close()


def shown(text: str) -> str:
    """Safe for a terminal, with its lines and tabs.

    >>> shown("one\\ttwo\\x1b[2J\\n")
    'one\\ttwo\\\\x1b[2J\\n'
    """
    return "\n".join("\t".join(map(safe, line.split("\t"))) for line in text.split("\n"))
