"""Examining and mending one place of state, also one that cannot be opened."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from flyball.cli.doctor import pool_checks, state_checks
from flyball.cli.doctor.pool_checks import DoctorFinding, Severity
from flyball.core.server_url import redacted
from flyball.errors import StoreError, StoreFullError, StoreUnreadableError
from flyball.governor.governor import Governor
from flyball.governor.internals import internals
from flyball.governor.state_url import mail_home, on_server, open_reader, path_of, resolve
from flyball.governor.status import Status, status_from
from flyball.stores.port import Store
from flyball.stores.sqlite.schema import Diagnosis, Examination, examine, set_aside
from flyball.wake.mailbox import folder_for, sweep


@dataclass(frozen=True, slots=True)
class Checkup:
    location: str
    exists: bool
    found: tuple[DoctorFinding, ...]

    @property
    def healthy(self) -> bool:
        return not any(f.severity is Severity.PROBLEM and not f.fixed for f in self.found)


class StateDoctor:
    """One file of state. ``check`` looks; ``mend`` repairs what is safe to repair."""

    def __init__(self, address: str, path: Path) -> None:
        self.address, self.path = address, path
        self._aside: Path | None = None

    def check(self) -> Checkup:
        path = self.path
        exists = os.path.exists(path)
        found = [*state_checks.check_environment(path), *state_checks.check_folder(path.parent, used=exists)]
        reasons = [*state_checks.check_disk(path), *state_checks.check_files(path)]
        found += reasons
        if not exists:
            return Checkup(str(path), False, tuple(found))
        seen = examine(path)
        found += [
            *state_checks.check_permissions(path),
            *state_checks.check_lock(path),
            *state_checks.check_sockets(mail_home(self.address)),
        ]
        # Why a file could not be opened is said once, with what to do about it.
        if not reasons or seen.diagnosis is not Diagnosis.BARRED:
            found += state_checks.check_file(path, seen)
        found += [*state_checks.check_emptiness(path), *state_checks.check_clock(seen.clock)]
        if seen.diagnosis is None:
            found += self._check_state()
        return Checkup(str(path), True, tuple(found))

    def _check_state(self) -> list[DoctorFinding]:
        try:
            reader = open_reader(self.address)
            try:
                census, now, wrong = reader.census(), reader.now(), reader.miscounts()
                status = self._status(reader, miscounted=bool(wrong))
            finally:
                reader.close()
        except StoreUnreadableError as error:
            return [*self._damage_findings(error)]
        except StoreError as error:
            return [self._failure_finding(error)]
        pools, dead = status.pools if status is not None else (), pool_checks.find_dead(census, now)
        blocking = pool_checks.blocking_pools(dead, census, status)
        found = [*pool_checks.check_dead(dead, now, blocking=blocking), *pool_checks.check_counts(wrong)]
        found += pool_checks.check_unchecked(census, now)
        found += pool_checks.check_deadlock(census, status)
        found += [*pool_checks.check_pools(pools), *pool_checks.check_fleet(pools)]
        return [*found, *pool_checks.check_times(census, now)]

    def _status(self, reader: Store, *, miscounted: bool) -> Status | None:
        """None where rows are missing: pools cannot be judged before they are counted again."""
        try:
            return status_from(reader.snapshot(), self.address)
        except LookupError:
            if not miscounted:
                raise
            return None

    def _damage_findings(self, error: StoreUnreadableError) -> Iterable[DoctorFinding]:
        return state_checks.check_file(self.path, Examination(Diagnosis.DAMAGED, str(error)))

    def _failure_finding(self, error: StoreError | OSError) -> DoctorFinding:
        if isinstance(error, StoreFullError):
            return state_checks.disk_full_finding(str(error))
        return state_checks.unusable_finding(str(error))

    # -- mending ----------------------------------------------------------------------------------

    def mend(self, before: Checkup) -> Checkup:
        """Repair what ``before`` found and can be repaired; what is gone afterwards is fixed."""
        trouble: list[DoctorFinding] = []
        for kinds, repair in self._repairs():
            if any(f.fixable and f.kind in kinds for f in before.found):
                try:
                    repair()
                except (StoreError, OSError) as error:
                    trouble.append(self._failure_finding(error))
        after = self.check()
        remaining = {f.key for f in after.found}
        fixed = [
            state_checks.set_aside_finding(finding, self.path, self._aside)
            if finding.kind == "damaged" and self._aside is not None
            else replace(finding, fixed=True)
            for finding in before.found
            if finding.fixable and finding.key not in remaining
        ]
        unsaid = [finding for finding in trouble if finding.key not in remaining]
        return Checkup(after.location, after.exists, (*fixed, *after.found, *unsaid))

    def _repairs(self) -> Sequence[tuple[tuple[str, ...], Callable[[], object]]]:
        """In this order: a file must be there and private before anything in it is touched."""
        return (
            (("permissions",), partial(state_checks.make_private, self.path)),
            (("barred",), partial(state_checks.make_usable, self.path)),
            (("damaged",), self._set_aside),
            (("old-layout", "other-boot"), self._open),
            (("dead-lease", "dead-ask", "stale-demand"), self._reclaim_dead),
            (("miscount",), self._recount),
            (("sockets",), lambda: sweep(folder_for(mail_home(self.address)))),
        )

    def _set_aside(self) -> None:
        self._aside = set_aside(self.path, still_bad=self._is_damaged)
        self._open()

    def _is_damaged(self) -> bool:
        seen = examine(self.path)
        found = [*state_checks.check_file(self.path, seen)] if seen.diagnosis else self._check_state()
        return any(f.kind == "damaged" for f in found)

    def _open(self) -> None:
        """Opening for writing makes, upgrades and goes on."""
        with closing(Governor(self.address)) as governor:
            internals(governor).store.now()

    def _reclaim_dead(self) -> None:
        with closing(Governor(self.address)) as governor:
            governor.reap()  # what a command works inside passes to that
            dead = pool_checks.find_dead(internals(governor).store.census(), internals(governor).store.now())
            internals(governor).reclaim([(c.id, c.holder) for c in dead.claims], dead.demands)

    def _recount(self) -> None:
        with closing(Governor(self.address)) as governor:
            internals(governor).recount()


class ServerStateDoctor(StateDoctor):
    """State on a server: what its pools say; files, clocks and sockets are not ours to judge."""

    def __init__(self, address: str) -> None:
        super().__init__(address, Path())

    def check(self) -> Checkup:
        return Checkup(redacted(self.address), True, tuple(self._check_state()))

    def _damage_findings(self, error: StoreUnreadableError) -> Iterable[DoctorFinding]:
        return [self._failure_finding(error)]

    def _failure_finding(self, error: StoreError | OSError) -> DoctorFinding:
        return state_checks.unreachable_finding(str(error))


def state_doctor() -> StateDoctor | None:
    """For the state that the environment names; None where it lives in memory only."""
    address = resolve()
    if on_server(address):
        return ServerStateDoctor(address)
    path = path_of(address)
    return StateDoctor(address, path) if path is not None else None
