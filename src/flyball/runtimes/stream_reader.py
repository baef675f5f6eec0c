"""What every reader of lines shares: splitting, episodes, the words of an ending.

A runtime's own reader says what one line means (``_line``, ``_stderr_line``) and how it all ended
(``_judge``); it calls ``_note_signal`` for every provider's error it is told of and ``_note_work`` for every
sign of work.

An episode begins with the first limiting signal and ends with the first sign of work. Within it a kind is
told once, and a plain throttle is not told at all once something more precise was: runtimes follow "your
five-hour window is used up" with a bare 429 about the same call.

Bytes into lines, in bounded memory.

A line is held until its newline comes. One that grows beyond ``LINE_LIMIT`` is let go and passed over up to
its newline: events that matter are small, and what is large (a tool's output, a picture) is never judged.
Lines are bytes: a character cut in two by the end of a piece is whole again by the end of its line.

JSON at the edge: one line into one small struct, or None. Nothing that is not asked for is built.
"""

from __future__ import annotations

from dataclasses import replace
from signal import Signals
from typing import Any, Generic, NamedTuple, TypeVar

import msgspec

from flyball.core.budget.usage_windows import UsageReport
from flyball.core.durations import number, sensible_s
from flyball.core.signals import LIMITING, End, Signal, SignalKind
from flyball.runtimes import error_text
from flyball.runtimes.port import Ending, Progress, Tokens

LINE_LIMIT = 1 << 20
_STEP = 1 << 18
"""Pieces larger than this are cut, so that splitting never doubles a large one."""


class LineSplitter:
    """Feed pieces, get whole lines without their newlines."""

    __slots__ = ("_held", "_held_size", "_limit", "_passing", "passed_over")

    def __init__(self, limit: int = LINE_LIMIT) -> None:
        self._limit = limit
        self._held: list[bytes] = []
        self._held_size = 0
        self._passing = False
        self.passed_over = 0
        """How many lines were too long to keep."""

    def feed(self, chunk: bytes) -> list[bytes]:
        """
        >>> lines = LineSplitter()
        >>> lines.feed(b"on"), lines.feed(b"e\\ntwo\\nth"), lines.rest()
        ([], [b'one', b'two'], [b'th'])
        """
        if len(chunk) <= _STEP:
            return self._feed(chunk)
        found = []
        for start in range(0, len(chunk), _STEP):
            found += self._feed(chunk[start : start + _STEP])
        return found

    def _feed(self, chunk: bytes) -> list[bytes]:
        whole = chunk.split(b"\n")
        tail = whole.pop()
        if whole and (self._held or self._passing):
            first = self._first(whole[0])
            whole[:1] = [] if first is None else [first]
        if tail:
            self._hold(tail)
        return whole

    def rest(self) -> list[bytes]:
        """The last line, if its newline never came."""
        last = self._first(b"")
        return [last] if last else []

    def _first(self, end: bytes) -> bytes | None:
        """The line that ends here, or None if it was too long."""
        passing, line = self._passing, b"".join([*self._held, end])
        self._held, self._held_size, self._passing = [], 0, False
        return None if passing else line

    def _hold(self, piece: bytes) -> None:
        if self._passing:
            return
        self._held.append(piece)
        self._held_size += len(piece)
        if self._held_size > self._limit:
            self._held, self._held_size, self._passing = [], 0, True
            self.passed_over += 1
        elif len(self._held) > 256:
            # Byte by byte, the list would weigh more than what is in it.
            self._held = [b"".join(self._held)]


_PRECISE = frozenset({SignalKind.WINDOW_USED_UP, SignalKind.CREDIT_GONE})
_LIVE = LIMITING | {SignalKind.NEAR_LIMIT}
"""Kinds a pool does something with; the others only explain an ending."""
_DENIALS_KEPT, _DENIAL_CHARACTERS = 20, 200
_SHELL_SIGNAL = 128
_ENDING_SIGNALS = frozenset({1, 2, 3, 6, 9, 15})
"""What a shell's 128 + n is believed for: hangup, interrupt, quit, abort, kill, terminate."""

_REASONS = {
    SignalKind.THROTTLED: "the provider throttled it (429)",
    SignalKind.OVERLOADED: "the provider is overloaded",
    SignalKind.WINDOW_USED_UP: "the usage window is used up",
    SignalKind.CREDIT_GONE: "the credit is used up; only a person can change that",
}


class Told(NamedTuple):
    signal: Signal
    at: float
    live: bool
    """Handed out while the run was read, not first found at its end."""


class LineReader:
    """The base of the readers. Implements ``Reader`` but for the three methods at the end."""

    def __init__(self) -> None:
        self._out, self._err = LineSplitter(), LineSplitter()
        self._session: str | None = None
        self._model: str | None = None
        self._tokens: Tokens | None = None
        self._cost_usd: float | None = None
        self._turns: int | None = None
        self._windows: dict[str, UsageReport] = {}
        self._denials: dict[str, None] = {}
        self._activity = ""
        self._active_at: float | None = None
        self._wall_s = 0.0
        self._episode: dict[SignalKind, Told] = {}
        self._signals: list[Signal] = []
        self._ended = False

    # -- Reader -----------------------------------------------------------------------------------

    def feed(self, chunk: bytes, *, wall_s: float) -> list[Signal]:
        self._see(chunk, wall_s)
        line_of = self._line
        for line in self._out.feed(chunk):
            if line:
                line_of(line)
        return self._take_signals()

    def feed_stderr(self, chunk: bytes, *, wall_s: float) -> list[Signal]:
        self._see(chunk, wall_s)
        for line in self._err.feed(chunk):
            self._stderr_line(line)
        return self._take_signals()

    def progress(self) -> Progress:
        return Progress(
            session=self._session,
            model=self._model,
            tokens=self._tokens,
            cost_usd=self._cost_usd,
            turns=self._turns,
            activity=self._activity,
            active_at=self._active_at,
            windows=tuple(self._windows.values()),
            denials=tuple(self._denials),
        )

    def finish(self, exit_code: int | None, *, wall_s: float) -> Ending:
        self._wall_s, self._ended = wall_s, True
        for line in self._out.rest():
            self._line(line)
        for line in self._err.rest():
            self._stderr_line(line)
        silent = self._active_at is None
        ending = self._judge_exit(exit_code) if silent else self._judge(exit_code)
        reason = ending.reason
        if ending.end is End.KILLED and not LIMITING.isdisjoint(self._episode):
            reason += " while the provider held it up"
        return replace(ending, reason=reason, progress=self.progress())

    # -- for the runtimes -------------------------------------------------------------------------

    def _note_signal(self, signal: Signal) -> None:
        """The provider said no. Passes it on if this episode has not told it yet."""
        kind = signal.kind
        if kind not in _LIVE:
            return
        known = self._episode.get(kind)
        if known is not None:
            if signal.retry_after_s is not None and self._left_s(known) is None:
                self._episode[kind] = known._replace(signal=signal, at=self._wall_s)
            return
        if kind is SignalKind.THROTTLED and self._precise() is not None:
            return
        self._episode[kind] = Told(signal, self._wall_s, not self._ended)
        self._signals.append(signal)

    def _note_work(self, activity: str) -> None:
        """A sign of work: whatever throttled it is over. That a limit is near stays true."""
        self._activity = activity
        if self._episode:
            near = self._episode.get(SignalKind.NEAR_LIMIT)
            self._episode = {SignalKind.NEAR_LIMIT: near} if near else {}

    def _note_denial(self, words: str) -> None:
        """It was not permitted to do something. The first ones are kept: an agent may try for ever."""
        if len(self._denials) < _DENIALS_KEPT:
            self._denials[" ".join(words.split())[:_DENIAL_CHARACTERS]] = None

    def _count_turn(self) -> None:
        self._turns = (self._turns or 0) + 1

    def _by_signal(self, signal: Signal, *, message: str = "") -> Ending:
        """The ending of a run that a provider's error ended."""
        precise = self._precise()
        if precise is not None and signal.kind is SignalKind.THROTTLED:
            signal = precise.signal
        if signal.kind not in LIMITING:
            meant = signal if signal.kind is not SignalKind.UNKNOWN else None
            return failed_ending(
                error_text.detail(message, None) or signal.detail or "it reported an error", meant
            )
        known = self._episode.get(signal.kind)
        if known is not None and known.signal.retry_after_s is not None:
            signal = replace(signal, retry_after_s=self._left_s(known))
        told = known is not None and known.live
        return Ending(end=End.LIMITED, reason=limited_words(signal), signal=signal, told=told)

    def _left_s(self, told: Told) -> float | None:
        """What is left of a wait that was told a while ago."""
        wait_s = told.signal.retry_after_s
        return None if wait_s is None else sensible_s(wait_s - (self._wall_s - told.at))

    def _precise(self) -> Told | None:
        return next((told for kind, told in self._episode.items() if kind in _PRECISE), None)

    def _see(self, chunk: bytes, wall_s: float) -> None:
        self._wall_s = wall_s
        if chunk:
            self._active_at = wall_s

    def _take_signals(self) -> list[Signal]:
        signals, self._signals = self._signals, []
        return signals

    # -- what a runtime says ----------------------------------------------------------------------

    def _line(self, line: bytes) -> None:
        raise NotImplementedError

    def _stderr_line(self, line: bytes) -> None:
        """Most runtimes say nothing of meaning there."""

    def _judge(self, exit_code: int | None) -> Ending:
        raise NotImplementedError

    def _judge_exit(self, exit_code: int | None) -> Ending:
        """The ending of a run whose output was not read."""
        return by_exit(exit_code)


def by_exit(exit_code: int | None) -> Ending:
    """An ending judged by its exit status alone."""
    if exit_code is None:
        return unknown_ending("nothing it said tells, and its exit status is not known")
    number = killed_by(exit_code)
    if number is not None:
        return killed_ending(number)
    if exit_code == 0:
        return Ending(end=End.FINISHED, reason="it exited with status 0")
    return failed_ending(f"it exited with status {exit_code}")


def killed_by(exit_code: int | None) -> int | None:
    """The signal that ended a process: a negative code, or a shell's 128 + n."""
    if exit_code is None:
        return None
    if exit_code < 0:
        return -exit_code
    number = exit_code - _SHELL_SIGNAL
    return number if number in _ENDING_SIGNALS else None


def finished_ending() -> Ending:
    return Ending(end=End.FINISHED, reason="it said it is done")


def failed_ending(reason: str, signal: Signal | None = None) -> Ending:
    return Ending(end=End.FAILED, reason=reason, signal=signal)


def session_gone_ending(reason: str) -> Ending:
    return Ending(end=End.FAILED, reason=reason, session_gone=True)


def unknown_ending(reason: str) -> Ending:
    return Ending(end=End.UNKNOWN, reason=reason)


def killed_ending(number: int | None) -> Ending:
    """``number`` is None where only the missing end tells of it."""
    if number is None:
        return Ending(end=End.KILLED, reason="it stopped in the middle of its work, as if interrupted")
    try:
        name = Signals(number).name
    except ValueError:
        name = f"signal {number}"
    return Ending(end=End.KILLED, reason=f"{name} ended it")


def limited_words(signal: Signal) -> str:
    if signal.kind is SignalKind.WINDOW_USED_UP and signal.scope:
        return f"the usage window ({signal.scope}) is used up"
    return _REASONS[signal.kind]


def text_of(line: bytes, limit: int = 8192) -> str:
    """A bounded beginning of a line as text, whatever it is made of."""
    return line[:limit].decode("utf-8", "replace").rstrip("\r")


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
