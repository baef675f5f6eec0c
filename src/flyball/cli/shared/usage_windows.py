"""The usage windows of an account around ``flyball exec``: whose they are, what is heard and said of them.

One line says so where a window is nearly full: as the agent starts, if that is known by then, else when
it has ended. An agent's own output is the measure; it reaches the pool as it is read.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from flyball.errors import FlyballError, StoreError
from flyball.governor.internals import internals

if TYPE_CHECKING:
    from flyball.core.budget.usage_windows import UsageReport
    from flyball.governor.account_windows import AccountWindowStatus
    from flyball.governor.governor import Governor
    from flyball.governor.status import PoolStatus

_LOGIN_FOLDERS = {"claude": ("CLAUDE_CONFIG_DIR", "~/.claude"), "codex": ("CODEX_HOME", "~/.codex")}
"""The variable that tells a runtime where its login is, and where it looks without it."""


def account_name(runtime: str, environ: Mapping[str, str], home: Path) -> str:
    """The account that an agent started here is logged in to, by the name that the factory knows it by.

    >>> account_name("claude", {}, Path("/nowhere"))
    'default:claude'
    """
    variable, usual = _LOGIN_FOLDERS.get(runtime, ("", ""))
    named = environ.get(variable, "") if variable else ""
    if not named or Path(named).expanduser() == Path(usual).expanduser():
        return f"default:{runtime}"
    from flyball.factory.accounts.profile import Profiles

    folder = Path(named).expanduser()
    with suppress(FlyballError, OSError):
        for profile in Profiles(home).list()[0]:
            if profile.runtime == runtime and profile.folder == folder:
                return profile.name
    return f"{runtime}:{folder.name}"


def pool_status(governor: Governor, pool: str) -> PoolStatus | None:
    return next((each for each in governor.status().pools if each.name == pool), None)


@dataclass(slots=True)
class WindowWatch:
    """Of one ``exec``."""

    governor: Governor
    pool: str
    account: str
    say: Callable[[str, dict[str, object]], None]
    """Prints one line, as words or as a record."""
    _told: tuple[UsageReport, ...] = field(default=())
    _warned: bool = False

    def hear(self, reports: tuple[UsageReport, ...]) -> None:
        """What the agent's output says. A state that cannot be written now does not stop the agent."""
        if reports != self._told:
            self._told = reports
            with suppress(StoreError):
                teller = internals(self.governor).windows
                teller.tell_reports(self.pool, self.account, reports, wall_s=time.time())

    def warn(self) -> None:
        """Say once which windows are nearly full."""
        if self._warned:
            return
        with suppress(StoreError):
            snapshot = internals(self.governor).store.snapshot()
            for pool in snapshot.pools:
                if pool.name == self.pool and pool.settings.usage_warn and pool.memory.windows:
                    from flyball.governor.account_windows import pool_windows

                    for each in pool_windows(pool, snapshot.now):
                        if each.used >= pool.settings.usage_warn:
                            self._say_full(each)

    def _say_full(self, each: AccountWindowStatus) -> None:
        self._warned = True
        whose = each.account or self.pool
        record = {"window": each.name, "account": whose, "used": each.used}
        self.say(f"{whose}: {each.words()}", {**record, "resets_in_s": each.resets_in_s})
