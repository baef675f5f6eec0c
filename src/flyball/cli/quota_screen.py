"""How an account's windows are shown. Every figure says how it is known."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from flyball.cli.render import Block, Column, Line, Piece, Style, Table, Words
from flyball.core.budget import Level, Thresholds, level_of
from flyball.core.estimate import Score, score
from flyball.core.standing import Figure, Standing
from flyball.core.verdict import span_words

if TYPE_CHECKING:
    from flyball.factory.usage.ledgers import Lessons
    from flyball.factory.usage.payer import Payer
    from flyball.factory.usage.sources import Seen

_STYLES = {Level.OK: Style.GOOD, Level.WARN: Style.WARN, Level.DRAIN: Style.BAD, Level.STOP: Style.BAD}
_MEANING = {
    Level.OK: "",
    Level.WARN: ", fewer agents at once",
    Level.DRAIN: ", nothing is started",
    Level.STOP: ", runs pause",
}


def quota_screen(
    payer: Payer,
    standings: Sequence[Standing],
    seen: Seen,
    thresholds: Thresholds,
    lessons: Lessons | None,
    now: float,
) -> Iterator[Block]:
    level = level_of(standings, thresholds)
    yield Line([Piece(payer.name, Style.STRONG), "  ", Piece(level.word + _MEANING[level], _STYLES[level])])
    columns = [Column("WINDOW"), Column("USED"), Column("SPENT"), Column("CEILING"), Column("ENDS IN")]
    yield Table([*columns, Column("", wraps=True)], [_row(each, thresholds, now) for each in standings])
    yield Line(seen.source, label="source", indent=2)
    for silent in seen.silent:
        yield Line(silent, label="not used", indent=2)
    if lessons is not None and lessons.costs:
        yield Line(_score_words(score(lessons.costs)), label="estimates", indent=2)
    open_ones = [each.name for each in standings if not each.enforced]
    if open_ones and not payer.unpriced:
        example = f"flyball quota calibrate --window {open_ones[0]} --used 62%"
        yield Line(f"{example} (what the provider's own usage page shows)", label="next", indent=2)


def _row(each: Standing, thresholds: Thresholds, now: float) -> list[Words]:
    level = thresholds.level(each.full)
    used: Words = _figure(each.fraction, "{:.0%}") if each.fraction is not None else "?"
    words = "not calibrated: shown for information, not enforced"
    if each.unmeasured:
        words = "cannot be measured: counts as full"
    elif each.enforced:
        words = level.word
    return [
        each.name,
        Piece(str(used), _STYLES[level] if each.enforced else Style.QUIET),
        _figure(each.spent, "${:.2f}") or "unknown",
        _figure(each.ceiling, "${:.2f}"),
        span_words(max(0.0, each.end - now)),
        words,
    ]


def _figure(figure: Figure | None, form: str) -> str:
    return f"{form.format(figure.value)} {figure.tag.value}" if figure is not None else ""


def _score_words(found: Score) -> str:
    within = f"{found.within_p90:.0%}" if found.within_p90 is not None else "?"
    error = f"{found.median_error:.0%}" if found.median_error is not None else "?"
    return f"{within} of {found.count} launches cost no more than their P90; P50 was off by {error} (median)"


def quota_record(
    payer: Payer,
    standings: Sequence[Standing],
    seen: Seen,
    thresholds: Thresholds,
    lessons: Lessons | None,
    now: float,
) -> dict[str, object]:
    return {
        "account": payer.name,
        "level": level_of(standings, thresholds).word,
        "source": seen.source,
        "silent": list(seen.silent),
        "windows": [_window_record(each, thresholds, now) for each in standings],
        "estimates": score(lessons.costs) if lessons is not None else None,
    }


def _window_record(each: Standing, thresholds: Thresholds, now: float) -> dict[str, object]:
    return {
        "name": each.name,
        "enforced": each.enforced,
        "level": thresholds.level(each.full).word if each.enforced else None,
        "used": _record(each.fraction),
        "spent_usd": _record(each.spent),
        "ceiling_usd": _record(each.ceiling),
        "unmeasured": each.unmeasured,
        "ends_in_s": round(max(0.0, each.end - now), 1),
    }


def _record(figure: Figure | None) -> dict[str, object] | None:
    return {"value": round(figure.value, 6), "tag": figure.tag.value} if figure is not None else None
