"""What claude's ``rate_limit_event`` says about the account's usage windows.

It comes with an answer of the provider, so it is the provider's own word: for every window the part that is
used and the moment at which it opens again. Older ones name one window only, and that only near its end.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from flyball.core.spans import number
from flyball.core.standing import Report, believable

SCOPES = {"five_hour": "5h", "seven_day": "7d", "seven_day_opus": "7d opus", "seven_day_sonnet": "7d sonnet"}


def reports_in(info: Mapping[str, Any], *, wall_s: float) -> dict[str, Report]:
    """By the window's name; nothing that cannot be believed."""
    found = {report.name: report for report in _named(info, wall_s)}
    several = info.get("unifiedWindows")
    for name, window in several.items() if isinstance(several, Mapping) else ():
        if isinstance(window, Mapping) and (report := _report(name, window, wall_s)) is not None:
            found[report.name] = report
    return found


def _named(info: Mapping[str, Any], wall_s: float) -> Iterator[Report]:
    name = info.get("rateLimitType")
    if isinstance(name, str) and (report := _report(name, info, wall_s)) is not None:
        yield report


def _report(name: object, window: Mapping[str, Any], wall_s: float) -> Report | None:
    fraction, resets_at = number(window.get("utilization")), number(window.get("resetsAt"))
    if window.get("status") == "rejected":
        fraction = max(1.0, fraction or 0.0)
    if not isinstance(name, str) or fraction is None or not believable(fraction, resets_at, wall_s):
        return None
    return Report(name=SCOPES.get(name, name[:40]), fraction=fraction, at=wall_s, resets_at=resets_at)
