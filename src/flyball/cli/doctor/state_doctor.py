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
from flyball.errors import StoreError, StoreFullError, StoreUnreadableError
from flyball.governor.governor import Governor
from flyball.governor.state_url import mail_home, on_server, open_reader, path_of, resolve, shown
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
        found = [*state_checks.of_environment(path), *state_checks.of_folder(path.parent, used=exists)]
        reasons = [*state_checks.of_disk(path), *state_checks.of_files(path)]
        found += reasons
        if not exists:
            return Checkup(str(path), False, tuple(found))
        seen = examine(path)
        found += [
            *state_checks.of_permissions(path),
            *state_checks.of_lock(path),
            *state_checks.of_sockets(mail_home(self.address)),
        ]
        # Why a file could not be opened is said once, with what to do about it.
        if not reasons or seen.ailment is not Diagnosis.BARRED:
            found += state_checks.of_file(path, seen)
        found += [*state_checks.of_emptiness(path), *state_checks.of_clock(seen.clock)]
        if seen.ailment is None:
            found += self._of_state()
        return Checkup(str(path), True, tuple(found))

    def _of_state(self) -> list[DoctorFinding]:
        try:
            reader = open_reader(self.address)
            try:
                census, now, wrong = reader.census(), reader.now(), reader.miscounts()
                status = self._status(reader, miscounted=bool(wrong))
            finally:
                reader.close()
        except StoreUnreadableError as error:
            return [*self._of_damage(error)]
        except StoreError as error:
            return [self._of_failure(error)]
        pools, dead = status.pools if status is not None else (), pool_checks.dead_in(census, now)
        hindering = pool_checks.in_the_way(dead, census, status)
        found = [*pool_checks.of_the_dead(dead, now, in_the_way=hindering), *pool_checks.of_counts(wrong)]
        found += pool_checks.of_the_unknown(census, now)
        found += [*pool_checks.of_pools(pools), *pool_checks.of_fleet(pools)]
        return [*found, *pool_checks.of_the_future(census, now)]

    def _status(self, reader: Store, *, miscounted: bool) -> Status | None:
        """None where rows are missing: pools cannot be judged before they are counted again."""
        try:
            return status_from(reader.snapshot(), self.address)
        except LookupError:
            if not miscounted:
                raise
            return None

    def _of_damage(self, error: StoreUnreadableError) -> Iterable[DoctorFinding]:
        return state_checks.of_file(self.path, Examination(Diagnosis.DAMAGED, str(error)))

    def _of_failure(self, error: StoreError | OSError) -> DoctorFinding:
        full = isinstance(error, StoreFullError)
        return state_checks.disk_full(str(error)) if full else state_checks.unusable(str(error))

    # -- mending ----------------------------------------------------------------------------------

    def mend(self, before: Checkup) -> Checkup:
        """Repair what ``before`` found and can be repaired; what is gone afterwards is fixed."""
        trouble: list[DoctorFinding] = []
        for kinds, repair in self._repairs():
            if any(f.fixable and f.kind in kinds for f in before.found):
                try:
                    repair()
                except (StoreError, OSError) as error:
                    trouble.append(self._of_failure(error))
        after = self.check()
        remaining = {f.key for f in after.found}
        fixed = [self._told(f) for f in before.found if f.fixable and f.key not in remaining]
        unsaid = [finding for finding in trouble if finding.key not in remaining]
        return Checkup(after.location, after.exists, (*fixed, *after.found, *unsaid))

    def _told(self, finding: DoctorFinding) -> DoctorFinding:
        if finding.kind == "damaged" and self._aside is not None:
            return state_checks.set_aside_as(finding, self.path, self._aside)
        return replace(finding, fixed=True)

    def _repairs(self) -> Sequence[tuple[tuple[str, ...], Callable[[], None]]]:
        """In this order: a file must be there and private before anything in it is touched."""
        return (
            (("permissions",), partial(state_checks.make_private, self.path)),
            (("barred",), partial(state_checks.make_usable, self.path)),
            (("damaged",), self._set_aside),
            (("old-layout", "other-boot"), self._open),
            (("dead-lease", "dead-ask", "stale-demand"), self._bury),
            (("miscount",), self._recount),
            (("sockets",), self._sweep),
        )

    def _set_aside(self) -> None:
        self._aside = set_aside(self.path, still_bad=self._is_damaged)
        self._open()

    def _is_damaged(self) -> bool:
        seen = examine(self.path)
        found = [*state_checks.of_file(self.path, seen)] if seen.ailment else self._of_state()
        return any(f.kind == "damaged" for f in found)

    def _open(self) -> None:
        """Opening for writing makes, upgrades and goes on."""
        with closing(Governor(self.address)) as governor:
            governor.store.now()

    def _bury(self) -> None:
        with closing(Governor(self.address)) as governor:
            dead = pool_checks.dead_in(governor.store.census(), governor.store.now())
            governor.bury([(c.id, c.holder) for c in dead.claims], dead.demands)

    def _recount(self) -> None:
        with closing(Governor(self.address)) as governor:
            governor.recount()

    def _sweep(self) -> None:
        sweep(folder_for(mail_home(self.address)))


class ServerPatient(StateDoctor):
    """State on a server: what its pools say; files, clocks and sockets are not ours to judge."""

    def __init__(self, address: str) -> None:
        super().__init__(address, Path())

    def check(self) -> Checkup:
        return Checkup(shown(self.address), True, tuple(self._of_state()))

    def _of_damage(self, error: StoreUnreadableError) -> Iterable[DoctorFinding]:
        return [self._of_failure(error)]

    def _of_failure(self, error: StoreError | OSError) -> DoctorFinding:
        return state_checks.unreachable(str(error))


def patient() -> StateDoctor | None:
    """Whoever the environment points at; None where the state lives in memory only."""
    address = resolve()
    if on_server(address):
        return ServerPatient(address)
    path = path_of(address)
    return StateDoctor(address, path) if path is not None else None
