"""The windows of an account as people set them: ``FLYBALL_HOME/registry/quotas/<account>.json``.

Kept like the projects: an atomic write, a line of audit and a commit, under the registry's lock. A file that
cannot be understood is an error with a way out, never "no limits": a ceiling that was set was meant.
"""

from __future__ import annotations

import json
import math
import shlex
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from flyball.core.budget.usage_windows import BUILT_IN, DAY_S, WindowTerms, ceiling_from
from flyball.core.durations import moment_s
from flyball.core.suggestions import did_you_mean
from flyball.core.tasks.task import check_id
from flyball.errors import StoreError, StoreUnreadableError, UsageError
from flyball.factory.project.registry_history import RegistryHistory, now_text
from flyball.host.atomic_file import replace_file

QUOTAS = "quotas"
_LARGEST = 1 << 16
DECLARED = "declared"
DECLARED_FROM = 0.0
"""A window of a person's own is what we say it is: whole lengths since 1970, UTC, so a day is a day there."""
A_PERSON = "a person"
"""Read from the provider's own page: no source here has to know of it."""
WHOLE = frozenset({"ccusage", "transcripts"})
"""Sources that see all spending from this machine, not only that of our agents."""
LENGTHS_S = (60.0, 31 * DAY_S)


@dataclass(frozen=True, slots=True, kw_only=True)
class AccountQuota:
    """A window that a person said something about."""

    name: str
    length_s: float
    ceiling_usd: float
    set_by: str
    """``declared``, or ``calibrated`` from what the provider's page showed."""
    at: str
    """Wall clock, for people."""
    used: float | None = None
    spent_usd: float | None = None
    """What was shown and what was measured then, where it was calibrated."""
    source: str = ""
    """Who measured it."""
    begins_at: float | None = None
    """A moment at which one such window begins or ends, in seconds since 1970."""


class QuotaBook:
    """Of one account. Safe to use from many processes at once."""

    def __init__(self, home: Path, account: str) -> None:
        self.account = account
        self.folder = home / "registry"
        self.file = self.folder / QUOTAS / f"{account}.json"
        self._history = RegistryHistory(self.folder, kind=QUOTAS)

    # -- reading --------------------------------------------------------------------------------------

    def quotas(self) -> tuple[AccountQuota, ...]:
        try:
            with self.file.open("rb") as opened:
                found = json.loads(opened.read(_LARGEST))
            return tuple(_quota(each) for each in found["windows"])
        except FileNotFoundError:
            return ()
        except OSError as error:
            raise StoreError(f"cannot read {self.file} ({error.strerror})") from error
        except (ValueError, TypeError, KeyError, RecursionError) as error:
            restore = ["git", "-C", str(self.folder), "checkout", "--", f"{QUOTAS}/{self.file.name}"]
            way_out = f"bring it back with {shlex.join(restore)}, or remove it"
            raise StoreUnreadableError(f"cannot understand {self.file} ({error}); {way_out}") from error

    def terms(self) -> tuple[WindowTerms, ...]:
        """Every window: those that come with us, with what was set for them, and those declared."""
        set_here = {quota.name: quota for quota in self.quotas()}
        built_in = [_terms(set_here[each.name]) if each.name in set_here else each for each in BUILT_IN]
        named = {each.name for each in BUILT_IN}
        return (*built_in, *(_terms(each) for each in set_here.values() if each.name not in named))

    def window(self, name: str) -> WindowTerms:
        terms = self.terms()
        for each in terms:
            if each.name == name:
                return each
        names = [each.name for each in terms]
        hint = did_you_mean(name, names) or f"there are {', '.join(names)}"
        raise UsageError(f"{self.account} has no window {name!r}; {hint}; flyball quota declare adds one")

    # -- changing -------------------------------------------------------------------------------------

    def calibrate(
        self, name: str, *, used: float, spent_usd: float, source: str, resets_at: float | None = None
    ) -> AccountQuota:
        """The ceiling of a window from the part that the provider shows and what ``source`` measured."""
        terms = self.window(name)
        quota = AccountQuota(
            name=name,
            length_s=terms.length_s,
            ceiling_usd=ceiling_from(spent_usd, used),
            set_by="calibrated",
            at=now_text(),
            used=used,
            spent_usd=spent_usd,
            source=source,
            begins_at=resets_at,
        )
        self._change("calibrate", name, lambda quotas: [*_without(quotas, name), quota])
        return quota

    def declare(self, name: str, *, usd: float, length_s: float | None = None) -> AccountQuota:
        known = {each.name: each.length_s for each in self.terms()}
        if name in (each.name for each in BUILT_IN) and length_s not in (None, known[name]):
            raise UsageError(f"the window {name} is as long as it is called; give another one another name")
        length = length_s or known.get(name)
        if length is None:
            raise UsageError(f"how long is {name!r}? for example: flyball quota declare {name} --length 1d")
        if not LENGTHS_S[0] <= length <= LENGTHS_S[1]:
            raise UsageError(
                f"a window is between a minute and 31 days long; choose another --length for {name!r}"
            )
        quota = AccountQuota(
            name=check_id(name, "a window's name"),
            length_s=length,
            ceiling_usd=usd,
            set_by=DECLARED,
            at=now_text(),
        )
        self._change("declare", name, lambda quotas: [*_without(quotas, name), quota])
        return quota

    def forget(self, name: str | None) -> list[str]:
        """Take back what was set for one window, or for all; their names."""
        gone = [quota.name for quota in self.quotas() if name in (None, quota.name)]
        if name is not None and not gone:
            self.window(name)
            raise UsageError(f"nothing was set for {name}; it is not calibrated")
        if gone:
            self._change("forget", ", ".join(gone), lambda quotas: [q for q in quotas if q.name not in gone])
        return gone

    def _change(
        self, what: str, name: str, change: Callable[[Sequence[AccountQuota]], list[AccountQuota]]
    ) -> None:
        with self._history.changing():
            quotas = [
                {key: value for key, value in asdict(quota).items() if value is not None}
                for quota in change(self.quotas())
            ]
            record = {"account": self.account, "windows": quotas}
            replace_file(self.file, (json.dumps(record, indent=2, ensure_ascii=False) + "\n").encode())
            message = f"quota {what} {self.account} {name}"
            self._history.record(f"quota {what}", message, account=self.account, window=name)


def _terms(quota: AccountQuota) -> WindowTerms:
    seen = quota.spent_usd if quota.source == A_PERSON else None
    return WindowTerms(
        name=quota.name,
        length_s=quota.length_s,
        ceiling_usd=quota.ceiling_usd,
        whole=quota.source in WHOLE,
        seen_usd=seen or 0.0,
        seen_at=moment_s(quota.at) if seen else None,
        anchor=quota.begins_at if quota.set_by != DECLARED else DECLARED_FROM,
    )


def _without(quotas: Sequence[AccountQuota], name: str) -> list[AccountQuota]:
    return [quota for quota in quotas if quota.name != name]


def _quota(record: dict[str, object]) -> AccountQuota:
    quota = AccountQuota(**record)  # type: ignore[arg-type]
    values: tuple[object, ...] = (quota.length_s, quota.ceiling_usd)
    for value in values:
        if not isinstance(value, int | float) or isinstance(value, bool) or not 0 < value < math.inf:
            raise ValueError(f"{quota.name} has no length or no ceiling")
    return quota
