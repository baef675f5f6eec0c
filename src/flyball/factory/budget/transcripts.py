"""claude's own transcripts: ``projects/**/*.jsonl`` under its folder, one line per event.

A message is written once per block, and again in every session that goes on from another, so each is counted
once, by its id and its request's, with the most that was said of it. Lines of many megabytes are normal
(pictures, files), and lines that cannot be read are passed over.

A look is cheap because nothing is read twice: of every file we know how far we are. A line without its end is
left for the next look. What is kept is a sum per minute, and the ids of the last days.

Where a line gives tokens and no cost, they are priced by list prices per tier. A window's ceiling is
calibrated with the same prices, so what counts is how the models and kinds of tokens compare, not the last
cent; the figure is tagged an estimate.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import msgspec

from flyball.core.budget.usage_windows import Spend, UsageCertainty, UsageItem
from flyball.core.durations import moment_s, number
from flyball.factory.budget.port import KEPT_S, UsageUnknown

_LONGEST_LINE = 256 << 20
_MINUTE_S = 60.0
_MOST_USD = 1000.0
"""No single answer costs more."""


class _Usage(msgspec.Struct):
    input_tokens: int = 0
    cache_creation_input_tokens: int = 0
    cache_read_input_tokens: int = 0
    output_tokens: int = 0


class _Message(msgspec.Struct):
    usage: _Usage
    id: str = ""
    model: str = ""


class _Line(msgspec.Struct):
    message: _Message
    timestamp: str
    requestId: str | None = None  # noqa: N815 - as it is spelled there
    costUSD: float | None = None  # noqa: N815


_decode = msgspec.json.Decoder(_Line).decode


@dataclass(slots=True)
class _Place:
    """How far a file has been read."""

    inode: int
    offset: int = 0


class Transcripts:
    """Remembers between looks. One look at a time."""

    name = "transcripts"

    def __init__(self, folder: Path) -> None:
        self._folder = folder / "projects"
        self._places: dict[str, _Place] = {}
        self._seen: dict[tuple[str, str], tuple[float, int]] = {}
        """What each message was counted with, and in which minute."""
        self._minutes: dict[int, float] = {}
        self._priced = True
        """Every cost so far was told, not worked out."""

    def look(self, now: float) -> Spend:
        if not self._folder.is_dir():
            raise UsageUnknown(f"there are no transcripts in {self._folder}")
        oldest = now - KEPT_S
        first = int(oldest // _MINUTE_S)
        if any(minute < first for minute in self._minutes):
            self._minutes = {minute: usd for minute, usd in self._minutes.items() if minute >= first}
            self._seen = {key: seen for key, seen in self._seen.items() if seen[1] >= first}
        for path, status in _files(self._folder):
            if status.st_mtime >= oldest:
                self._read(path, status)
        pieces = [
            UsageItem(minute * _MINUTE_S, minute * _MINUTE_S, usd)
            for minute, usd in self._minutes.items()
            if usd
        ]
        return Spend(self.name, pieces, UsageCertainty.MEASURED if self._priced else UsageCertainty.ESTIMATED)

    def _read(self, path: str, status: os.stat_result) -> None:
        place = self._places.get(path)
        if place is None or place.inode != status.st_ino or status.st_size < place.offset:
            # New, or written anew. What was counted before is known by its ids.
            place = self._places[path] = _Place(status.st_ino)
        if status.st_size == place.offset:
            return
        try:
            with open(path, "rb") as file:
                file.seek(place.offset)
                # Whole lines only. One that is longer than anything meant ends the reading of this file.
                while (line := file.readline(_LONGEST_LINE)).endswith(b"\n"):
                    self._count(line)
                    place.offset += len(line)
        except OSError:
            # Gone, or not ours to read; the others still count.
            return

    def _count(self, line: bytes) -> None:
        if b'"usage"' not in line:
            return
        try:
            found = _decode(line)
        except (msgspec.MsgspecError, RecursionError):
            return
        at, cost = moment_s(found.timestamp), self._cost(found)
        if at is None or cost is None:
            return
        key = (found.message.id, found.requestId or "")
        before, first = self._seen.get(key, (0.0, int(at // _MINUTE_S)))
        if cost > before or key not in self._seen:
            self._minutes[first] = self._minutes.get(first, 0.0) + cost - before
            if any(key):
                self._seen[key] = (cost, first)

    def _cost(self, line: _Line) -> float | None:
        told, usage = number(line.costUSD), line.message.usage
        if told is not None:
            return told if 0 <= told <= _MOST_USD else None
        counts = (
            usage.input_tokens,
            usage.cache_creation_input_tokens,
            usage.cache_read_input_tokens,
            usage.output_tokens,
        )
        if min(counts) < 0:
            return None
        sent, written, read, answered = counts
        worth = cost_usd(line.message.model, sent=sent, written=written, read=read, answered=answered)
        self._priced = self._priced and not worth
        return worth if worth <= _MOST_USD else None


def _files(folder: Path) -> Iterator[tuple[str, os.stat_result]]:
    for root, _, names in os.walk(folder):
        for name in names:
            if name.endswith(".jsonl"):
                path = os.path.join(root, name)
                try:
                    yield path, os.stat(path)
                except OSError:
                    continue


class Price(NamedTuple):
    """Dollars per million tokens."""

    sent: float
    answered: float


_WRITE, _READ = 1.25, 0.1
"""Writing to the cache costs a quarter more than sending, reading from it a tenth."""
_TIERS = {"haiku": Price(1.0, 5.0), "sonnet": Price(3.0, 15.0), "opus": Price(15.0, 75.0)}
_UNKNOWN = _TIERS["sonnet"]


def model_price(model: str) -> Price:
    """
    >>> model_price("claude-haiku-4-5"), model_price("something-new")
    (Price(sent=1.0, answered=5.0), Price(sent=3.0, answered=15.0))
    """
    named = next((price for tier, price in _TIERS.items() if tier in model), None)
    if named is None and "fable" in model:
        return _TIERS["opus"]
    return named or _UNKNOWN


def cost_usd(model: str, *, sent: int, written: int, read: int, answered: int) -> float:
    """
    >>> round(cost_usd("claude-sonnet-4-5", sent=1000, written=0, read=0, answered=1000), 6)
    0.018
    """
    price = model_price(model)
    millionths = price.sent * (sent + _WRITE * written + _READ * read) + price.answered * answered
    return millionths / 1e6
