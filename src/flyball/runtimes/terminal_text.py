"""An agent's output as a terminal gets it: coloured, and often stdout and stderr in one stream.

``TerminalReader`` stands before a runtime's own reader. Colours and the like are taken out. A mixed stream is
read as both. Where the agent prints events, a line that is not an event came from stderr, and is believed
like one. In plain text the model's own words are among such lines: then nothing is believed while it runs,
and of its ending what the exit status bears out.
"""

from __future__ import annotations

import re
from dataclasses import replace

from flyball.core.signals import Signal, SignalKind
from flyball.runtimes.port import Ending, Progress, Reader

_ESCAPE = re.compile(
    rb"\x1b(?:"
    rb"\[[0-?]*[ -/]*[@-~]"  # colours, places, modes
    rb"|\][^\x07\x1b]*(?:\x07|\x1b\\)"  # titles, links
    rb"|[PX^_][^\x1b]*\x1b\\"
    rb"|[ -/]*[0-OQ-WYZ\\`-~])"
)
_HELD_BYTES = 4096
"""A sequence that is longer is none."""


class PlainText:
    """Takes the control sequences out of a stream that comes in pieces, cut anywhere."""

    def __init__(self) -> None:
        self._held = b""

    def feed(self, chunk: bytes) -> bytes:
        """
        >>> text = PlainText()
        >>> text.feed(b"\\x1b[1m\\x1b[31mERR"), text.feed(b"OR:\\x1b["), text.feed(b"0m no\\r\\n")
        (b'ERR', b'OR:', b' no\\n')
        """
        chunk, self._held = self._held + chunk, b""
        if b"\x1b" in chunk:
            chunk = self._without_last_part(_ESCAPE.sub(b"", chunk))
        # A line that is drawn again is one more line.
        return chunk.replace(b"\r\n", b"\n").replace(b"\r", b"\n") if b"\r" in chunk else chunk

    def _without_last_part(self, chunk: bytes) -> bytes:
        """Keep the beginning of a sequence for the next piece."""
        at = chunk.find(b"\x1b", max(0, len(chunk) - _HELD_BYTES))
        if at >= 0:
            chunk, self._held = chunk[:at], chunk[at:]
        return chunk


class TerminalReader:
    """Reads what went to a terminal, or to one place, by a runtime's own reader."""

    def __init__(self, reader: Reader, *, mixed: bool, events: bool) -> None:
        """``events``: it was told to print events, not text."""
        self._reader, self._mixed, self._events = reader, mixed, events
        self._out, self._err = PlainText(), PlainText()
        self._held: set[SignalKind] = set()
        """Read in text, and not passed on."""

    def feed(self, chunk: bytes, *, wall_s: float) -> list[Signal]:
        plain = self._out.feed(chunk)
        signals = self._reader.feed(plain, wall_s=wall_s)
        more = self._reader.feed_stderr(plain, wall_s=wall_s) if self._mixed else []
        if self._events:
            return [*signals, *more]
        self._held = (self._held - {signal.kind for signal in signals}) | {signal.kind for signal in more}
        return signals

    def feed_stderr(self, chunk: bytes, *, wall_s: float) -> list[Signal]:
        return self._reader.feed_stderr(self._err.feed(chunk), wall_s=wall_s)

    def progress(self) -> Progress:
        return self._reader.progress()

    def finish(self, exit_code: int | None, *, wall_s: float) -> Ending:
        ending = self._reader.finish(exit_code, wall_s=wall_s)
        held = ending.signal is not None and ending.signal.kind in self._held
        return replace(ending, told=False) if held else ending
