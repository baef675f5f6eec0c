"""An account's usage windows in the state that all processes share: what others measured, and what we hear.

The pools keep them (governor/account_windows.py). A run tells its own pool what its agents hear, and reads
what an ``exec`` beside it, or a run of another project, measured of the same account.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING

from flyball.core.budget.usage_windows import UsageReport
from flyball.errors import StoreError
from flyball.governor.account_windows import account_windows, report_of
from flyball.governor.state_url import open_reader, resolve

if TYPE_CHECKING:
    from flyball.governor.governor import Governor
    from flyball.stores.snapshot import Snapshot


@dataclass(frozen=True, slots=True)
class SharedWindows:
    """Of one account, as one pool spends from it."""

    account: str
    pool: str
    snapshot: Callable[[], Snapshot]
    tell: Callable[[Iterable[UsageReport], float], None]
    """Tells the pool what was heard, and when by the wall clock."""

    def read(self, wall_s: float) -> list[UsageReport]:
        """The newest word on each window; nothing where the state cannot be read now."""
        try:
            found = account_windows(self.snapshot())
        except StoreError:
            return []
        ours = (
            each
            for each in found
            if each.account == self.account or (not each.account and each.pool == self.pool)
        )
        return [report_of(each, wall_s=wall_s) for each in ours]


def windows_of_governor(governor: Governor, pool: str, account: str) -> SharedWindows:
    """For a run, which hears of them itself."""
    from flyball.governor.internals import internals

    def tell(reports: Iterable[UsageReport], wall_s: float) -> None:
        internals(governor).windows.tell_reports(pool, account, reports, wall_s=wall_s)

    return SharedWindows(account, pool, lambda: internals(governor).store.snapshot(), tell)


def windows_to_read(pool: str, account: str) -> SharedWindows:
    """For those who look: nothing is written, and no state is made."""

    def snapshot() -> Snapshot:
        with closing(open_reader(resolve())) as reader:
            return reader.snapshot()

    return SharedWindows(account, pool, snapshot, lambda _reports, _wall_s: None)
