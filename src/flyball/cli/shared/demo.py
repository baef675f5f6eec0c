"""What the demo shows, the table while it runs and the card at the end, and ``flyball demo --here``.

Every number is measured, and the card says by what. Where the governor was not the better one the card says
that as plainly as where it was.

``--here`` is the governed run alone, in the user's own state, seen from other terminals. The pool ``demo`` is
set up for it and stays, with what it learned; no other pool is touched. Slots of processes that are stopped
half way are given back.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from operator import attrgetter
from pathlib import Path

from flyball.cli.ui.render import (
    BLANK,
    NARROW,
    Block,
    Column,
    Line,
    Piece,
    Style,
    Table,
    Words,
    print_json,
    show,
)
from flyball.cli.ui.units import counted
from flyball.errors import UsageError
from flyball.governor.governor import Governor
from flyball.governor.state_url import resolve
from flyball.sim.demo.score import Sample, Standing, TrialScore, score
from flyball.sim.demo.trial_run import Setup, TrialRun

TRACK_EVERY_S = 0.5
TRACK_WIDTH = 66
"""What is left of 80 columns beside the label."""
BAR_WIDTH = 14
SLACK = 0.02
"""Differences below 2 % are called the same."""

NAMES = {False: "without flyball", True: "with flyball"}
WAYS = {
    False: "every process waits and retries on its own, as the SDKs do",
    True: "every call asks for a slot first, and reports what came back",
}


@dataclass(frozen=True, slots=True)
class Glyphs:
    """What bars are drawn with, by what the terminal can show."""

    full: str
    empty: str


BLOCKS = Glyphs("█", "░")
ASCII = Glyphs("#", ".")


def glyphs_for(encoding: str | None) -> Glyphs:
    return BLOCKS if (encoding or "").lower().replace("-", "").startswith("utf") else ASCII


def intro(setup: Setup) -> list[Block]:
    workload = setup.workload
    return [
        Line(
            f"{workload.workers} processes of {len(workload.teams)} projects share one provider, "
            f"{counted(workload.calls_each, 'call')} a project."
        ),
        Line(f"It serves {setup.capacity.words()} calls at once, does not say so, and answers 429 beyond."),
    ]


# -- while it runs --------------------------------------------------------------------------------


def frame(
    standing: Standing, before: TrialScore | None, *, glyphs: Glyphs, width: int = NARROW
) -> list[Block]:
    """The live table; on a narrow terminal without what can be spared."""
    number = 2 if standing.governed else 1
    blocks: list[Block] = [
        Line([Piece(f"{number}/2 {NAMES[standing.governed]}", Style.STRONG), f"  {standing.t_s:5.1f} s"]),
        Line(Piece(WAYS[standing.governed], Style.QUIET)),
        BLANK,
        _projects(standing, glyphs, wide=width >= NARROW),
        BLANK,
        *_tracks(standing),
    ]
    if before is not None:
        blocks += [BLANK, Line(Piece(score_words(before), Style.QUIET), label="without")]
    return blocks


def _projects(standing: Standing, glyphs: Glyphs, *, wide: bool) -> Table:
    columns = [Column("PROJECT"), *([Column("PROCESSES", right=True)] * wide), Column("RUNNING", right=True)]
    columns += [Column("WAITING", right=True), Column("429s", right=True), Column("DONE", right=True)]
    rows: list[list[Words]] = []
    for row in standing.rows:
        full = BAR_WIDTH * row.done // row.calls
        bar = [
            Piece(glyphs.full * full, Style.GOOD),
            Piece(glyphs.empty * (BAR_WIDTH - full), Style.QUIET),
        ]
        cells: list[Words] = [row.project, *([str(row.processes)] * wide), str(row.running), str(row.waiting)]
        cells += [Piece(str(row.throttles), Style.BAD if row.throttles else Style.QUIET)]
        cells += [f"{row.done}/{row.calls}", *([bar] * wide)]
        rows.append(cells)
    return Table([*columns, *([Column("")] * wide)], rows)


def _tracks(standing: Standing) -> Iterator[Block]:
    samples = standing.samples
    if not samples:
        return
    last = samples[-1]
    yield Line(Piece(track(samples, _capacity), Style.QUIET), label="capacity", indent=2)
    if standing.governed:
        yield Line(coloured_track(samples, _cap), label="cap", indent=2)
        state = f", {last.state}" if last.state else ""
        now = f"cap {last.cap}, {last.in_use} in use{state}; the provider would serve {last.capacity}"
    else:
        yield Line(coloured_track(samples, _open), label="at once", indent=2)
        now = f"{counted(last.open, 'request')} at once; the provider serves {last.capacity}"
    yield Line(now, label="now", indent=2)


def progress(standing: Standing) -> str:
    """The same in one line, for a file.

    without  4.0 s  31/90 done   22 x 429   6 running 10 waiting  capacity 6
    """
    rows = standing.rows
    done, calls = sum(row.done for row in rows), sum(row.calls for row in rows)
    words = (
        f"{'with' if standing.governed else 'without':<8}{standing.t_s:4.1f} s {done:3}/{calls} done  "
        f"{sum(row.throttles for row in rows):3} x 429  {sum(row.running for row in rows):2} running "
        f"{sum(row.waiting for row in rows):2} waiting"
    )
    if not standing.samples:
        return words
    last = standing.samples[-1]
    return f"{words}  capacity {last.capacity}" + (f"  cap {last.cap}" if last.cap is not None else "")


# -- tracks: one digit per half second -------------------------------------------------------------


_capacity, _open = attrgetter("capacity"), attrgetter("open")


def _cap(sample: Sample) -> int:
    return sample.cap or 0


def _ticks(samples: Sequence[Sample], every_s: float) -> list[Sample]:
    """The last sample of each tick; the newest ticks where there are more than fit."""
    ticks: dict[int, Sample] = {int(sample.t_s / every_s): sample for sample in samples}
    return list(ticks.values())[-TRACK_WIDTH:]


def _digit(value: int) -> str:
    return str(value) if value < 10 else "+"


def track(samples: Sequence[Sample], pick: Callable[[Sample], int], every_s: float = TRACK_EVERY_S) -> str:
    return "".join(_digit(pick(sample)) for sample in _ticks(samples, every_s))


def coloured_track(
    samples: Sequence[Sample], pick: Callable[[Sample], int], every_s: float = TRACK_EVERY_S
) -> list[Piece]:
    """A track that is red where it is above the capacity of that moment."""
    return [
        Piece(_digit(pick(sample)), Style.BAD if pick(sample) > sample.capacity else Style.GOOD)
        for sample in _ticks(samples, every_s)
    ]


# -- the card ---------------------------------------------------------------------------------------


def score_words(score: TrialScore) -> str:
    stopped = ", stopped at the time limit" if score.stopped else ""
    return f"{counted(score.calls_done, 'call')} in {score.wall_s:.1f} s, {score.throttles} x 429{stopped}"


def card(
    without: TrialScore, governed: TrialScore, tracks: tuple[Sequence[Sample], Sequence[Sample]], *, note: str
) -> list[Block]:
    """Before and after, side by side."""
    columns = [Column(""), Column("WITHOUT", right=True), Column("WITH FLYBALL", right=True)]
    columns += [Column("CHANGE"), Column("MEASURED BY")]
    longest_s = max((samples[-1].t_s for samples in tracks if samples), default=0.0)
    # Half a second, or as many halves as make the longest run fit on a line.
    every_s = TRACK_EVERY_S * max(1, -(-int(longest_s / TRACK_EVERY_S + 1) // TRACK_WIDTH))
    before, after = tracks
    longer = max(tracks, key=lambda samples: samples[-1].t_s if samples else 0.0)
    blocks: list[Block] = [
        Line(
            [Piece("The same calls, without and with the governor", Style.STRONG), ", all numbers measured"]
        ),
        BLANK,
        Table(columns, list(_card_rows(without, governed))),
        BLANK,
        Line(
            Piece(
                f"every {every_s:g} s: requests at once without, the cap with (+ is 10 or more)", Style.QUIET
            )
        ),
        Line(Piece(track(longer, _capacity, every_s), Style.QUIET), label="capacity", indent=2),
        Line(coloured_track(before, _open, every_s), label="without", indent=2),
        Line(coloured_track(after, _cap, every_s), label="with", indent=2),
        BLANK,
        Line(Piece(note, Style.QUIET)),
    ]
    if governed.stopped or without.stopped:
        words = "A run hit its time limit: its numbers are of the part that was done."
        blocks.append(Line(Piece(words, Style.WARN)))
    elif governed.wall_s > without.wall_s * (1 + SLACK):
        words = "Slower here: the governor starts low and backs off when it touches the limit."
        blocks.append(Line(Piece(words, Style.WARN)))
    return blocks


def _card_rows(a: TrialScore, b: TrialScore) -> Iterator[list[Words]]:
    same: Words = "the same" if a.calls_done == b.calls_done else Piece("not the same", Style.BAD)
    yield ["calls done", str(a.calls_done), str(b.calls_done), same, "workers"]
    yield ["429s answered", str(a.throttles), str(b.throttles), fewer(a.throttles, b.throttles), "provider"]
    yield ["wasted per 100 done", _number(a.wasted_per_100), _number(b.wasted_per_100), "", "provider"]
    yield ["wall time", f"{a.wall_s:.1f} s", f"{b.wall_s:.1f} s", faster(a.wall_s, b.wall_s), "clock"]
    yield ["fairness (Jain, 1 is even)", _index(a), _index(b), _fairer(a, b), "workers"]
    yield ["  done at first finish", _counts(a), _counts(b), "", "workers"]
    yield ["most at once / capacity", _peak(a), _peak(b), "", "provider"]


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.1f}"


def _index(score: TrialScore) -> str:
    return "-" if score.fairness is None else f"{score.fairness:.2f}"


def _counts(score: TrialScore) -> str:
    return " ".join(str(count) for count in score.done_by_first_finish)


def _peak(score: TrialScore) -> str:
    return f"{score.peak_open} / {score.capacity}"


def fewer(a: int, b: int) -> Words:
    """
    >>> fewer(60, 4).text, fewer(3, 0).text, fewer(2, 5).text
    ('15x fewer', 'none', '2.5x more')
    """
    if a == b:
        return "the same"
    if b == 0:
        return Piece("none", Style.GOOD)
    if b < a:
        return Piece(f"{a / b:.2g}x fewer", Style.GOOD)
    return Piece(f"{b / a:.2g}x more" if a else "more", Style.BAD)


def faster(a: float, b: float) -> Words:
    """
    >>> faster(20.0, 18.0).text, faster(20.0, 22.0).text, faster(20.0, 20.1)
    ('10% faster', '10% slower', 'the same')
    """
    change = (b - a) / a if a else 0.0
    if abs(change) < SLACK:
        return "the same"
    return Piece(
        f"{abs(change):.0%} {'slower' if change > 0 else 'faster'}", Style.BAD if change > 0 else Style.GOOD
    )


def _fairer(a: TrialScore, b: TrialScore) -> Words:
    if a.fairness is None or b.fairness is None or abs(a.fairness - b.fairness) < SLACK:
        return "the same" if a.fairness is not None else ""
    return Piece("fairer", Style.GOOD) if b.fairness > a.fairness else Piece("less fair", Style.BAD)


POOL = "demo"
FRAME_S, LINE_EVERY_S = 0.125, 2.0


def run(setup: Setup, *, as_json: bool, result: Callable[[TrialRun], dict[str, object]]) -> None:
    address = resolve()
    if address == "memory:":
        raise UsageError("memory: is what one process keeps for itself; unset FLYBALL_URL to see --here")
    if not as_json:
        watch: list[Block] = [
            Line(f"Governed by the pool {POOL} of {Governor(address).place}."),
            Line("flyball serve --open           shows it on a page, live", label="watch"),
            Line(f"flyball status {POOL} --watch    shows it here", label=" "),
        ]
        show([*intro(setup), *watch, BLANK])
        sys.stdout.flush()
    trial = _run(setup, address, quiet=as_json)
    if as_json:
        print_json({"tag": "measured", "pool": setup.pool, "with": {**result(trial), "facts": trial.story}})
    else:
        then = f"flyball status {POOL}   how it stands now; the pool stays as it is"
        show([BLANK, Line(score_words(score(trial.record)), label="with"), Line(then, label="next")])


def _run(setup: Setup, address: str, *, quiet: bool) -> TrialRun:
    next_line_s = 0.0
    with (
        tempfile.TemporaryDirectory(prefix="flyball-demo-", ignore_cleanup_errors=True) as folder,
        TrialRun(setup, governed=True, folder=Path(folder), address=address) as trial,
    ):
        while not trial.over:
            trial.step(FRAME_S)
            standing = trial.standing()
            if not quiet and standing.t_s >= next_line_s:
                next_line_s += LINE_EVERY_S
                print(progress(standing), flush=True)
    return trial
