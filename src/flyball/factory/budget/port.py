"""Whose money it is, and where its runtime keeps what it did.

Two accounts never mix: a profile with a folder of its own has its transcripts there, the personal one has
them where the runtime looks by itself.

A source of usage is asked now and then, in a thread, and may fail. The windows of an account are those that
were set and those that only the provider reports.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from flyball.core.budget.usage_windows import (
    DAY_S,
    HOUR_S,
    Spend,
    UsageReport,
    WindowTerms,
    WindowUsage,
    measure_window,
)
from flyball.errors import FlyballError
from flyball.factory.accounts.account import Account
from flyball.factory.accounts.environment import API_KEYS as API_KEYS
from flyball.factory.accounts.profile import CONFIG_DIRS
from flyball.runtimes.registry import COMMAND, NAMES, load

CLAUDE = "claude"
CONFIG_DIR = CONFIG_DIRS[CLAUDE]
DEFAULT = "default"


@dataclass(frozen=True, slots=True, kw_only=True)
class BillingAccount:
    """An account as something that is spent from."""

    name: str
    """The profile; ``default:<runtime>`` where a project names none."""
    runtime: str
    folder: Path | None = None
    """Where claude keeps its transcripts; None: it is another runtime, or not known."""
    key_env: str = ""
    """The variable with the API key that a person set aside for this account."""

    @property
    def unpriced(self) -> str:
        """Why nothing of it can be measured in dollars; empty where its runtime reports them.

        >>> BillingAccount(name="default:claude", runtime="claude").unpriced
        ''
        >>> BillingAccount(name="default:codex", runtime="codex").unpriced
        'codex does not report what its calls cost'
        """
        if self.runtime not in NAMES or load(self.runtime).reports_cost:
            return ""
        subject = "an agent of the runtime command" if self.runtime == COMMAND else self.runtime
        return f"{subject} does not report what its calls cost"


def billing_account(account: Account, *, environ: Mapping[str, str] | None = None) -> BillingAccount:
    """The account that pays for a project's agents."""
    config, profile = account.config, account.profile
    around = {} if profile is not None else os.environ if environ is None else environ
    named = config.agent.env.get(CONFIG_DIR)
    folder = Path(named).expanduser() if named else default_folder(around)
    if profile is not None and profile.folder is not None:
        folder = profile.folder
    return BillingAccount(
        name=profile.name if profile is not None else f"{DEFAULT}:{config.agent.runtime}",
        runtime=config.agent.runtime,
        folder=folder if config.agent.runtime == CLAUDE else None,
        key_env=profile.api_key_env if profile is not None else "",
    )


def default_folder(environ: Mapping[str, str] = os.environ) -> Path:
    """Where claude keeps what it did for the login that is there."""
    named = environ.get(CONFIG_DIR)
    return Path(os.path.expanduser(named or "~/.claude"))


class UsageUnknown(FlyballError):  # noqa: N818 - the normal no of a source, not a fault
    """This source cannot say; the next one may."""


class UsageSource(Protocol):
    name: str

    def look(self, now: float) -> Spend:
        """All that was spent in the last eight days and a bit; UsageUnknown where it cannot say."""
        ...


KEPT_S = 8 * 86400.0
"""The longest window that comes with us, and a day for the edges."""


_LENGTHS_S = {"5h": 5 * HOUR_S, "7d": 7 * DAY_S}


def measure_windows(
    terms: Sequence[WindowTerms], reports: Mapping[str, UsageReport], spend: Spend | None, now: float
) -> tuple[WindowUsage, ...]:
    known = {each.name for each in terms}
    reported = [
        _terms_from_report(each) for each in reports.values() if each.name not in known and each.holds(now)
    ]
    return tuple(measure_window(each, reports.get(each.name), spend, now) for each in (*terms, *reported))


def _terms_from_report(report: UsageReport) -> WindowTerms:
    """``7d opus`` is the seven days of that model; an unknown name is a window of a week."""
    length, _, model = report.name.partition(" ")
    known_s = _LENGTHS_S.get(length)
    return WindowTerms(name=report.name, length_s=known_s or 7 * DAY_S, model=model if known_s else "")
