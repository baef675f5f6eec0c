"""The verbs that people use: set, reset and import a pool, limit the machine, count again.

What one machine counts by itself has no place in a store that many share: refused, with the way out.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from flyball.core.pool import plan as planning
from flyball.core.pool.control.registry import migrate_state
from flyball.core.pool.model import Ask, ProjectUse
from flyball.core.pool.rate_window import Source
from flyball.core.pool.settings import (
    MachineChanges,
    MachineSettings,
    PoolChanges,
    PoolSettings,
    check_name,
    merge_machine,
)
from flyball.core.pool.token_quota import Quota
from flyball.errors import PoolInUseError, UsageError
from flyball.stores import codec
from flyball.stores.handoff import hand_off
from flyball.stores.pool_session import PoolSession
from flyball.stores.port import AfterCommit
from flyball.stores.rows import Rows
from flyball.stores.transaction import Transactions, merge_effects, operation

if TYPE_CHECKING:
    from flyball.stores.recount import CountMismatch


class AdminOperations(Transactions):
    """The part of the port that changes what a person decided."""

    @operation
    def set_pool(self, pool: str, changes: PoolChanges) -> AfterCommit:
        return self._set_pool(pool, changes, None)

    def _set_pool(
        self, pool: str, changes: PoolChanges, learned: planning.LearnedState | None
    ) -> AfterCommit:
        from flyball.core.pool.setting_table import merge_changes

        check_name("pool", pool)
        with self._write() as rows:
            carried = self._carry(rows)
            session = self._session(rows, pool)
            before = session.settings
            settings = session.put_settings(merge_changes(codec.load_changes(rows.settings(pool)), changes))
            self._apply_to_projects(session, settings)
            memory = session.memory
            if learned is not None:
                memory = learned
            elif "cap" in changes or _starts_anew(before, settings):
                memory = planning.restart_from(memory, settings, session.now)
            elif before.controller != settings.controller:
                memory = replace(memory, cap=migrate_state(memory.cap, session.now), quota=Quota())
            if not settings.adaptive or settings.spacing_s == 0:
                session.row.meters.next_grant_at = 0.0
            session.refresh(memory)
            hand_off(session)
            return merge_effects(carried, session.finish())

    def _apply_to_projects(self, session: PoolSession, settings: PoolSettings) -> None:
        pool = session.row.name
        known = {use.name: use for use in session.rows.projects(pool)}
        for name in dict.fromkeys((*known, *settings.weights, *settings.maxima)):
            use, weight, maximum = known.get(name), settings.weights.get(name, 1.0), settings.maxima.get(name)
            # There may be thousands, and one call changes one of them.
            if use is None or (use.weight, use.maximum) != (weight, maximum):
                use = use or ProjectUse(name)
                use.weight, use.maximum = weight, maximum
                session.rows.put_project(pool, use)

    @operation
    def named_settings(self) -> dict[str, PoolChanges]:
        with self._read() as rows:
            return {name: codec.load_changes(rows.settings(name)) for name in rows.pools()}

    @operation
    def reset_pool(self, pool: str, *, settings: bool = False) -> AfterCommit:
        with self._write() as rows:
            carried = self._carry(rows)
            if rows.pool(pool) is None:
                raise UsageError(no_pool_words(pool))
            session = self._session(rows, pool)
            if settings:
                self._apply_to_projects(session, session.put_settings({}))
            meters = session.row.meters
            meters.trial_id, meters.next_grant_at, meters.bound_oks, meters.hold_mean_s = None, 0.0, 0, 0.0
            meters.high, meters.work, meters.work_tokens = 0, 0.0, 0.0
            # What was spent of a window that a person declared is a fact, not something learned.
            meters.windows = tuple(window for window in meters.windows if window.source is Source.DECLARED)
            session.refresh(planning.first_memory(session.settings, session.now))
            hand_off(session)
            return merge_effects(carried, session.finish())

    @operation
    def remove_pool(self, pool: str) -> AfterCommit:
        with self._write() as rows:
            if rows.pool(pool) is None:
                raise UsageError(no_pool_words(pool))
            ending = {release.claim_id for release in self._unwritten}
            claims = [claim for claim in rows.claims(pool) if claim.id not in ending]
            leases, waiting = sum(claim.held for claim in claims), sum(not claim.held for claim in claims)
            shares = sum(share.expires_at > rows.now for share in rows.shares(pool))
            if leases or waiting or shares:
                raise PoolInUseError(pool, leases=leases, waiting=waiting, shares=shares)
            carried = self._carry(rows)
            rows.drop_pool(pool)
            return carried

    @operation
    def import_pool(self, pool: str, changes: PoolChanges, memory: planning.LearnedState) -> AfterCommit:
        return self._set_pool(pool, changes, memory)

    @operation
    def set_machine(self, machine: MachineSettings) -> AfterCommit:
        with self._write() as rows:
            return merge_effects(self._carry(rows), self._put_machine(rows, machine))

    def _put_machine(self, rows: Rows, machine: MachineSettings) -> AfterCommit:
        rows.put_machine(machine)
        after = AfterCommit()
        for name in rows.pools():
            session = self._session(rows, name)
            hand_off(session)
            after = merge_effects(after, session.finish())
        return after

    @operation
    def change_machine(self, changes: MachineChanges) -> AfterCommit:
        with self._write() as rows:
            machine = merge_machine(rows.machine(), changes)
            return merge_effects(self._carry(rows), self._put_machine(rows, machine))

    @operation
    def machine(self) -> MachineSettings:
        with self._read() as rows:
            return rows.machine()

    # -- the doctor's ------------------------------------------------------------------------------

    @operation
    def miscounts(self) -> list[CountMismatch]:
        from flyball.stores import recount

        with self._read() as rows:
            return [wrong for pool in rows.pools() for wrong in recount.recount_pool(rows, pool).wrong]

    @operation
    def recount(self) -> tuple[list[CountMismatch], AfterCommit]:
        from flyball.stores import recount

        with self._write() as rows:
            found: list[CountMismatch] = []
            after = self._carry(rows)
            for pool in rows.pools():
                counted = recount.recount_pool(rows, pool)
                if counted.wrong:
                    found += counted.wrong
                    recount.write_counts(rows, counted)
                    session = self._session(rows, pool)
                    session.refresh()
                    hand_off(session)
                    after = merge_effects(after, session.finish())
            return found, after


def no_pool_words(pool: str) -> str:
    return f"there is no pool {pool!r}; `flyball status` lists the pools in use"


def _starts_anew(before: PoolSettings, after: PoolSettings) -> bool:
    """Another profile, or adapting from now on: what was learned under the old rules says nothing."""
    return before.profile != after.profile or (after.adaptive and not before.adaptive)


def refuse_resources(ask: Ask) -> None:
    if ask.resources:
        raise UsageError(
            "resources are counted by one machine, and this state is on a server that many share; "
            "leave them out, or ask with a FLYBALL_URL of this machine"
        )


def refuse_machine(machine: MachineSettings) -> None:
    if machine != MachineSettings():
        raise UsageError(
            "limits over all pools of one machine have no place on a server that many machines share; "
            "give each pool a cap (flyball pool set POOL --cap N), or set them under a FLYBALL_URL of "
            "this machine"
        )
