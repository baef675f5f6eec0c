"""What a bench returns and how it is shown: figures, tables, result files.

A figure is our value beside another one, with the target it is judged by. A bench that cannot measure
something says so in a note instead of leaving it out.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from statistics import median

Progress = Callable[[str], None]
COLUMNS = ("what", "flyball", "beside it", "ratio", "target", "result")


@dataclass(frozen=True, slots=True)
class Target:
    """``of`` says which number must keep to the limit: the ratio, our own value, or ours minus theirs."""

    of: str
    limit: float
    at_least: bool = False

    def number(self, ours: float, theirs: float | None) -> float:
        if self.of == "value" or theirs is None:
            return ours
        return ours - theirs if self.of == "beyond" else ratio_of(ours, theirs)

    def met_by(self, number: float) -> bool:
        return number >= self.limit if self.at_least else number <= self.limit

    def words(self, unit: str) -> str:
        sign = ">=" if self.at_least else "<="
        if self.of == "ratio":
            return f"{sign} {self.limit:g} x"
        return f"{sign} {shown(self.limit, unit)}{' beyond' if self.of == 'beyond' else ''}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    what: str
    ours: float
    unit: str
    beside: str = ""
    theirs: float | None = None
    spread: tuple[float, float] | None = None
    """The smallest and the largest ratio of any one round."""
    target: Target | None = None

    @property
    def ratio(self) -> float | None:
        return ratio_of(self.ours, self.theirs) if self.theirs else None

    @property
    def met(self) -> bool | None:
        return None if self.target is None else self.target.met_by(self.target.number(self.ours, self.theirs))

    def cells(self) -> tuple[str, ...]:
        beside = "" if self.theirs is None else f"{shown(self.theirs, self.unit)} ({self.beside})"
        ratio = "" if self.ratio is None else f"{_times(self.ratio)} x"
        if self.spread is not None and ratio:
            ratio += f" ({_times(self.spread[0])}-{_times(self.spread[1])})"
        target = self.target.words(self.unit) if self.target else ""
        return self.what, shown(self.ours, self.unit), beside, ratio, target, self._result()

    def _result(self) -> str:
        if self.target is None:
            return ""
        word = "pass" if self.met else "short"
        if self.target.of != "beyond":
            return word
        return f"{word}, {shown(self.target.number(self.ours, self.theirs), self.unit)} beyond"

    def record(self) -> dict[str, object]:
        return {**asdict(self), "ratio": self.ratio, "met": self.met}


@dataclass(frozen=True, slots=True)
class Section:
    """The outcome of one bench."""

    name: str
    title: str
    figures: tuple[Figure, ...]
    notes: tuple[str, ...] = ()


def beside(
    what: str,
    ours: Sequence[float],
    theirs: Sequence[float],
    *,
    unit: str,
    name: str,
    target: Target | None = None,
) -> Figure:
    """A figure from rounds measured in turn: medians, and how far the ratio moved between rounds.

    A round in which theirs is nothing has no ratio, and then there is no spread either.
    """
    rounds = [ratio_of(a, b) for a, b in zip(ours, theirs, strict=True)]
    return Figure(
        what=what,
        ours=median(ours),
        unit=unit,
        beside=name,
        theirs=median(theirs),
        spread=(min(rounds), max(rounds)) if all(theirs) else None,
        target=target,
    )


def ratio_of(ours: float, theirs: float) -> float:
    return ours / theirs if theirs else math.inf


def _times(ratio: float) -> str:
    """
    >>> _times(1.5), _times(0.0021)
    ('1.50', '0.0021')
    """
    return f"{ratio:.2f}" if ratio >= 0.01 else f"{ratio:.4f}"


def percentile(values: Sequence[float], percent: float) -> float:
    """The smallest value that at least ``percent`` of the values do not exceed."""
    ordered = sorted(values)
    return ordered[max(0, math.ceil(len(ordered) * percent / 100) - 1)]


def shown(value: float, unit: str) -> str:
    """Three digits that matter, never an exponent."""
    if not math.isfinite(value):
        return str(value)
    digits = 0 if abs(value) >= 100 or value == int(value) else 1 if abs(value) >= 10 else 2
    return f"{value:,.{digits}f} {unit}".strip()


def caps_over_time(looks: Iterable[tuple[float, int]]) -> str:
    """Each cap with the second it was first seen at.

    >>> caps_over_time([(0.2, 8), (0.5, 8), (0.7, 4)])
    '0.2 s: 8, 0.7 s: 4'
    """
    words: list[str] = []
    seen: int | None = None
    for at_s, cap in looks:
        if cap != seen:
            words.append(f"{at_s:.1f} s: {cap}")
            seen = cap
    return ", ".join(words)


# -- showing ----------------------------------------------------------------------------------------


def as_text(section: Section) -> str:
    rows = [COLUMNS, *(figure.cells() for figure in section.figures)]
    widths = [max(len(row[i]) for row in rows) for i in range(len(COLUMNS))]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) for row in rows]
    lines.insert(1, "  ".join("-" * width for width in widths))
    notes = [f"  {note}" for note in section.notes]
    return "\n".join([f"{section.name}: {section.title}", *(line.rstrip() for line in lines), *notes])


def as_markdown(sections: Sequence[Section], machine: dict[str, object]) -> str:
    lines = [
        "# Figures on one machine",
        "",
        "Written by `make bench`; do not edit. Medians of rounds that take turns (ABAB...); the range after",
        "a ratio is the smallest and the largest of any one round.",
        "",
        f"Measured {machine['date']} on {machine['cores']} cores ({machine['cpu']}), {machine['system']}, "
        f"Python {machine['python']}, SQLite {machine['sqlite']}, load {machine['load']} before the run.",
    ]
    for section in sections:
        lines += ["", f"## {section.name}: {section.title}", ""]
        lines += [_row(COLUMNS), _row(["---"] * len(COLUMNS))]
        lines += [_row(figure.cells()) for figure in section.figures]
        if section.notes:
            lines += ["", *(f"- {note}" for note in section.notes)]
    return "\n".join(lines) + "\n"


def as_record(sections: Sequence[Section], machine: dict[str, object]) -> dict[str, object]:
    return {
        "machine": machine,
        "benches": {
            section.name: {
                "title": section.title,
                "figures": [figure.record() for figure in section.figures],
                "notes": list(section.notes),
            }
            for section in sections
        },
    }


def _row(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cells) + " |"
