"""What providers reported about an account's windows: ``FLYBALL_HOME/usage/<account>.json``.

Learned, not set: a file that is removed is made again with the next answer. A window only fills, so of
two reports about one window the fuller counts, in whatever order they come. Which window held a run up is
kept beside them: the run after its reset starts slowly.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from flyball.core.budget.usage_windows import UsageReport, is_believable
from flyball.host.atomic_file import replace_file

FOLDER = "usage"
_SAME_RESET_S = 120.0
"""Resets are told in whole seconds or minutes, and counted from one answer to the next."""
_LARGEST = 1 << 16


@dataclass(slots=True)
class ProviderReport:
    """The latest report about each window."""

    reports: dict[str, UsageReport] = field(default_factory=dict)
    held_until: float = 0.0
    """The end of the window that a run was held up by; 0: none was."""

    def record(self, reports: Iterable[UsageReport]) -> bool:
        """Take note; True if anything is new."""
        changed = False
        for report in reports:
            if _newer(report, self.reports.get(report.name)):
                self.reports[report.name] = report
                changed = True
        return changed


def _newer(report: UsageReport, known: UsageReport | None) -> bool:
    if known is None or known == report:
        return known is None
    if report.resets_at is None or known.resets_at is None:
        return report.at > known.at
    ahead_s = report.resets_at - known.resets_at
    if abs(ahead_s) <= _SAME_RESET_S:
        return report.fraction > known.fraction
    return ahead_s > 0


class ProviderReports:
    def __init__(self, home: Path, account: str) -> None:
        self._path = home / FOLDER / f"{account}.json"

    def read(self, now: float) -> ProviderReport:
        """Nothing where there is nothing, or nothing that can be understood: it is told again soon."""
        told = ProviderReport()
        with suppress(OSError, ValueError, TypeError, KeyError, AttributeError, RecursionError):
            with self._path.open("rb") as file:
                found = json.loads(file.read(_LARGEST))
            told.held_until = float(found.get("held_until", 0.0))
            told.record(_believable_reports(found["windows"], now))
        return told

    def write(self, told: ProviderReport, now: float) -> None:
        """What another run has heard meanwhile is kept. A full disk loses nothing that counts."""
        known = self.read(now)
        known.record(told.reports.values())
        record = {"held_until": told.held_until, "windows": [asdict(each) for each in known.reports.values()]}
        with suppress(OSError):
            self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            replace_file(self._path, (json.dumps(record, indent=2) + "\n").encode())


def _believable_reports(records: Iterable[dict[str, Any]], now: float) -> Iterable[UsageReport]:
    for record in records:
        report = UsageReport(**record)
        # A clock that was set back makes a report of the future; it would hold for as long as that is away.
        if is_believable(float(report.fraction), report.resets_at, now) and report.at <= now + _SAME_RESET_S:
            yield report
