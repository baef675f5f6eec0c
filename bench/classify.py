"""Reading agents' output: megabytes a second, beside decoding every line of it.

A long stream is made from the recordings of each runtime: the first and the last line of a healthy run with
tools, and between them its other lines over and over, now and then with a large tool output as agents have
them. The reader is fed as ``flyball exec`` feeds it; the baseline splits the same bytes into lines and
decodes each with ``json.loads``.

The last figure is how many recordings are judged as they are labelled, beside a search for the usual words.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable
from dataclasses import dataclass

from bench.report import Figure, Progress, Section, Target, beside
from flyball.core.signals import End
from flyball.runtimes.registry import load
from flyball.testing.runtime_checks import WALL_S, read
from tests.runtimes.recorded import INDISTINGUISHABLE, recording, recordings

NAME = "classify"
TITLE = "reading what agents print"
_HEALTHY = {
    "claude": "claude/ok_tool",
    "codex": "codex/ok_tool",
    "gemini": "gemini/ok_tool",
    "opencode": "opencode/ok_tool_fails",
}
_PIECE_BYTES = 1 << 18
_LARGE_EVERY = 20
_LARGE = b"".join(b"src/module_%d.py:%d: a line of some tool's output\\n" % (i, i) for i in range(150))
_SEARCH = re.compile(rb"429|rate.?limit", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Sizes:
    rounds: int = 7
    megabytes: int = 50


FULL = Sizes()
QUICK = Sizes(rounds=3, megabytes=5)


def run(sizes: Sizes, progress: Progress) -> Section:
    figures = []
    for runtime, name in _HEALTHY.items():
        progress(f"{NAME}: {runtime}")
        stream = stream_of(name, sizes.megabytes * 10**6)
        pieces = [stream[at : at + _PIECE_BYTES] for at in range(0, len(stream), _PIECE_BYTES)]
        ours, theirs = [], []
        for _ in range(sizes.rounds):
            ours.append(_speed(len(stream), lambda: _read(runtime, pieces)))  # noqa: B023 - called at once
            theirs.append(_speed(len(stream), lambda: _decode(pieces)))  # noqa: B023 - called at once
        target = Target("value", 100.0, at_least=True)
        figures.append(
            beside(runtime, ours, theirs, unit="MB/s", name="json.loads of each line", target=target)
        )
    figures.append(_score())
    means = [f"{_mean_line(runtime):,} for {runtime}" for runtime in _HEALTHY]
    notes = (
        f"bytes of a line on average: {', '.join(means)}",
        f"cannot be told from a recording with another label: {', '.join(sorted(INDISTINGUISHABLE))}",
    )
    return Section(NAME, TITLE, tuple(figures), notes)


def stream_of(name: str, size: int) -> bytes:
    """A run as long as asked, from one that was recorded."""
    first, *middle, last = recording(name).stdout.splitlines(keepends=True)
    plain = b"".join(middle)
    large = b"".join(_with_large_output(line) for line in middle)
    block = plain * (_LARGE_EVERY - 1) + large
    return first + block * max(1, size // len(block)) + last


def _with_large_output(line: bytes) -> bytes:
    for output in (b'"content":"', b'"aggregated_output":"', b'"output":"'):
        if output in line and (b"tool" in line or b"command_execution" in line):
            return line.replace(output, output + _LARGE, 1)
    return line


def _read(runtime: str, pieces: list[bytes]) -> None:
    reader = load(runtime).reader()
    for piece in pieces:
        reader.feed(piece, wall_s=WALL_S)
    ending = reader.finish(0, wall_s=WALL_S)
    if ending.end is not End.FINISHED:
        raise RuntimeError(f"{runtime} was judged {ending.end.value}: {ending.reason}")


def _decode(pieces: list[bytes]) -> None:
    rest = b""
    for piece in pieces:
        *lines, rest = (rest + piece).split(b"\n")
        for line in lines:
            json.loads(line)


def _speed(size: int, work: Callable[[], None]) -> float:
    start = time.perf_counter()
    work()
    return size / 1e6 / (time.perf_counter() - start)


def _score() -> Figure:
    found = searched = 0
    for runtime, each in recordings():
        ending, _ = read(load(runtime), each)
        found += ending.end in each.right
        hit = _SEARCH.search(each.stdout + each.stderr) is not None
        searched += hit == (End.LIMITED in each.right)
    return Figure(
        what=f"of {len(recordings())} recordings judged as labelled",
        ours=found,
        unit="",
        beside="a search for 429 and rate limit, limited or not",
        theirs=searched,
        target=Target("value", len(recordings()) - len(INDISTINGUISHABLE), at_least=True),
    )


def _mean_line(runtime: str) -> int:
    stream = stream_of(_HEALTHY[runtime], 10**6)
    return len(stream) // stream.count(b"\n")
