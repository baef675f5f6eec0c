"""All windows of an account now: those that were set, and those that only the provider speaks of."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from flyball.core.standing import DAY_S, HOUR_S, Report, Spend, Standing, Terms, stand

_LENGTHS_S = {"5h": 5 * HOUR_S, "7d": 7 * DAY_S}


def standings_of(
    terms: Sequence[Terms], reports: Mapping[str, Report], spend: Spend | None, now: float
) -> tuple[Standing, ...]:
    known = {each.name for each in terms}
    reported = [_reported(each) for each in reports.values() if each.name not in known and each.holds(now)]
    return tuple(stand(each, reports.get(each.name), spend, now) for each in (*terms, *reported))


def _reported(report: Report) -> Terms:
    """``7d opus`` is the seven days of that model; a name nobody knows is a window of a week."""
    length, _, model = report.name.partition(" ")
    known_s = _LENGTHS_S.get(length)
    return Terms(name=report.name, length_s=known_s or 7 * DAY_S, model=model if known_s else "")
