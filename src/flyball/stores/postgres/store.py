"""The port on a PostgreSQL server, for as many machines as can reach it.

Every verb is that of the other stores (stores/verbs.py), run on rows of this server in one transaction under
its pool's lock (steps.py, step.py): identical traces give identical verdicts. A grant and an end that nothing
stands in the way of are one round trip each, in a function on the server that does the same
(002_short_way.sql).

Limits over all pools of one machine have no place here.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar, cast

from flyball.core.model import Ask, Holder, Outcome
from flyball.core.settings import (
    LEASE_BACKSTOP_S,
    MachineChanges,
    MachineSettings,
    PoolChanges,
    merge_machine,
)
from flyball.core.signals import Signal
from flyball.core.verdict import Verdict, free
from flyball.host.fork import survive_forks
from flyball.stores.columns import of_amounts, of_holder
from flyball.stores.desk import World
from flyball.stores.one_machine import refuse_machine, refuse_resources
from flyball.stores.port import After, Demand, Release
from flyball.stores.postgres import statements as sql
from flyball.stores.postgres.ailments import LONG_WAY
from flyball.stores.postgres.plain import storable
from flyball.stores.postgres.server import Server
from flyball.stores.postgres.step import ALL, Lock
from flyball.stores.postgres.steps import NeedsStepError, PostgresSteps
from flyball.stores.postgres.unheard import Unheard
from flyball.stores.verbs import Verbs, check_ask

if TYPE_CHECKING:
    from flyball.core.plan import Memory
    from flyball.core.renewal import Renewal, Reply
    from flyball.stores.port import Store
    from flyball.stores.postgres.ears import Ears
    from flyball.stores.seen import Miscount

T = TypeVar("T")
MANY = 10**9
"""Whoever asks for more slots than this goes the long way, and is refused there."""
ROUND_S = 0.2
HOSTS_KEPT = 256
"""Beyond this many, hosts that were silent for a day are forgotten."""


class PostgresStore(PostgresSteps):
    """Implements ``Store``. Safe to use from many threads, and after a fork."""

    def __init__(self, server: Server, world: World, *, server_time: bool = True) -> None:
        super().__init__(server, world, server_time=server_time)
        self._round: dict[str, tuple[int, float]] = {}
        """Pools that have just sent us the long way: how often running, and when last."""
        survive_forks(self)

    # -- asking -----------------------------------------------------------------------------------

    def admit(self, ask: Ask, *, park: bool) -> tuple[Verdict, After]:
        check_ask(ask)
        refuse_resources(ask)
        if self._may_go_shortly(ask):
            verdict = self._admit_shortly(ask)
            if verdict is not None:
                self._round.pop(ask.pool, None)
                return verdict, After()
            self._round[ask.pool] = (self._round.get(ask.pool, (0, 0.0))[0] + 1, time.monotonic())
        lock = Lock(ask.pool, ask.project)
        return self._step(lock, lambda: self._admit_in_step(ask, park=park), _second, asked_in=ask.pool)

    def _may_go_shortly(self, ask: Ask) -> bool:
        """Unless there is more to it. Who was sent the long way twice running need not try for a moment."""
        if self._owes or ask.key or ask.ttl_s is not None or ask.unread or ask.slots > MANY:
            return False
        times, at = self._round.get(ask.pool, (0, 0.0))
        return times < 2 or not self._server_time or time.monotonic() - at >= ROUND_S

    def _admit_shortly(self, ask: Ask) -> Verdict | None:
        """The grant that nothing stands in the way of, in one round trip. None: go the long way."""
        tag = self._tag()
        with self._server.lend(writing=True) as link:
            try:
                claim_id, in_use, cap, at = link.ask(sql.FAST_ADMIT, self._words_of(ask, tag))[0]
            except BaseException as error:
                self._note_unheard(error, Unheard(ask.pool, tag, link.backend))
                raise
        if self._server_time:
            # Where it came too late though we still wait for it, the server's clock was set.
            self._server.note_time(at)
        if not claim_id:
            return None
        return free(ask.pool, claim_id, asked_at=at, in_use=in_use, cap=cap)

    def _words_of(self, ask: Ask, tag: int) -> tuple[object, ...]:
        return (
            ask.pool,
            ask.project,
            ask.name,
            *of_holder(ask.holder),
            ask.slots,
            ask.priority,
            storable(ask.model),
            storable(ask.mailbox),
            of_amounts(ask.cost),
            tag,
            self._given_now(),
            self._server.deadline() if self._server_time else None,
        )

    def look(
        self, claim_id: int, *, advance: bool, asked_at: float | None = None
    ) -> tuple[Verdict | None, After]:
        if not advance:
            try:
                return super().look(claim_id, advance=False, asked_at=asked_at)
            except NeedsStepError:
                pass
        return self._step(
            Lock(claim_id=claim_id),
            lambda: Verbs.look(self, claim_id, advance=advance, asked_at=asked_at),
            _second,
        )

    def withdraw(self, claim_id: int, *, asked_at: float | None = None) -> After:
        return self.release(Release(claim_id, Outcome.ABANDONED, asked_at=asked_at))

    def release(self, release: Release) -> After:
        if not self._owes and _teaches_nothing(release) and self._end_shortly(release):
            return After()
        return self._step(Lock(claim_id=release.claim_id), lambda: Verbs.release(self, release), _all)

    def _end_shortly(self, release: Release) -> bool:
        """The end that teaches nothing special, in one round trip. False: go the long way."""
        with self._server.lend(writing=True) as link:
            try:
                told = link.ask(sql.FAST_END, _end_of(release, self._given_now()))
            except Exception as error:
                if getattr(error, "sqlstate", None) != LONG_WAY:
                    raise
                return False
            return told == [(True,)]

    # -- holders ----------------------------------------------------------------------------------

    def rebind(
        self, claim_id: int, holder: Holder, *, launcher_pid: int, asked_at: float | None = None
    ) -> tuple[bool, After]:
        return self._step(
            Lock(claim_id=claim_id),
            lambda: Verbs.rebind(self, claim_id, holder, launcher_pid=launcher_pid, asked_at=asked_at),
            _second,
        )

    def extend(self, claim_id: int, *, ttl_s: float, asked_at: float | None = None) -> bool:
        return self._step(
            Lock(claim_id=claim_id),
            lambda: Verbs.extend(self, claim_id, ttl_s=ttl_s, asked_at=asked_at),
            _nothing,
        )

    def note(self, name: str, fresh: str) -> str:
        with self._server.lend(writing=True) as link:
            return str(link.ask(sql.NOTE_ONCE, (name, storable(fresh)))[0][0])

    def set_note(self, name: str, text: str) -> None:
        with self._server.lend(writing=True) as link:
            link.execute(sql.PUT_NOTE, (name, storable(text)))

    def hold(self, ask: Ask) -> tuple[int, After]:
        check_ask(ask)
        refuse_resources(ask)
        return self._step(Lock(ask.pool, ask.project), lambda: Verbs.hold(self, ask), _second)

    def rest(self, ask: Ask, *, for_s: float, why: str) -> tuple[int, After]:
        check_ask(ask)
        return self._step(Lock(pool=ask.pool), lambda: Verbs.rest(self, ask, for_s=for_s, why=why), _second)

    def bury(
        self, claims: Sequence[tuple[int, Holder]], demands: Sequence[Demand] = (), *, why: str = ""
    ) -> After:
        return self._step(ALL, lambda: Verbs.bury(self, claims, demands, why=why), _all)

    def beat(self, pool: str, *, look_s: float) -> bool:
        """This host is there. True: it is this process's turn to look at the host's holders."""
        if self._owes:
            self._step(ALL, self._make_good, _all)
        here, now = self._world.here(), self._given_now()
        words = {"pool": pool, "host": here.host, "boot": here.boot, "pidns": here.pidns}
        with self._server.lend(writing=True) as link:
            due, heard_at = link.ask(sql.BEAT, {**words, "now": now, "look_s": look_s})[0]
            if due:
                link.execute(sql.SWEEP_HOSTS, (pool, heard_at - LEASE_BACKSTOP_S, pool, HOSTS_KEPT))
        if self._server_time:
            # Clocks drift apart over days; what is late is told by the server's.
            self._server.note_time(heard_at)
        return bool(due)

    def _make_good(self) -> After:
        with self._write() as rows:
            return self._carry(rows)

    # -- signals and demand -----------------------------------------------------------------------

    def report(
        self,
        pool: str,
        signal: Signal,
        *,
        project: str,
        name: str,
        claim_id: int | None,
        first: bool = False,
        asked_at: float | None = None,
    ) -> After:
        return self._step(
            Lock(pool=pool),
            lambda: Verbs.report(
                self,
                pool,
                signal,
                project=project,
                name=name,
                claim_id=claim_id,
                first=first,
                asked_at=asked_at,
            ),
            _all,
        )

    def renew(self, pool: str, renewal: Renewal) -> tuple[Reply, After]:
        return self._step(Lock(pool=pool), lambda: Verbs.renew(self, pool, renewal), _second)

    def demand(self, pool: str, project: str, holder: Holder, *, ttl_s: float) -> After:
        return self._step(
            Lock(pool=pool), lambda: Verbs.demand(self, pool, project, holder, ttl_s=ttl_s), _all
        )

    # -- what people set --------------------------------------------------------------------------

    def _set_pool(self, pool: str, changes: PoolChanges, learned: Memory | None) -> After:
        return self._step(Lock(pool=pool), lambda: Verbs._set_pool(self, pool, changes, learned), _all)

    def reset_pool(self, pool: str, *, settings: bool = False) -> After:
        return self._step(Lock(pool=pool), lambda: Verbs.reset_pool(self, pool, settings=settings), _all)

    def remove_pool(self, pool: str) -> After:
        return self._step(Lock(pool=pool), lambda: Verbs.remove_pool(self, pool), _all)

    def recount(self) -> tuple[list[Miscount], After]:
        return self._step(ALL, lambda: Verbs.recount(self), _second)

    def set_machine(self, machine: MachineSettings) -> After:
        refuse_machine(machine)
        return self._step(ALL, self._make_good, _all) if self._owes else After()

    def change_machine(self, changes: MachineChanges) -> After:
        return self.set_machine(merge_machine(MachineSettings(), changes))

    def machine(self) -> MachineSettings:
        return MachineSettings()

    # -- connections ------------------------------------------------------------------------------

    def listener(self) -> Ears:
        """A connection of its own that hears channels."""
        return self._server.listener()

    def close(self) -> None:
        self._server.close()


def listener_of(store: Store) -> Callable[[], Ears]:
    """What opens a connection that hears channels. The store may be wrapped, as in tests."""
    return cast("PostgresStore", store).listener


def _teaches_nothing(release: Release) -> bool:
    """A lease that just ended; nothing was said about it."""
    plain = not (release.rejected or release.used or release.buckets or release.words)
    return plain and release.outcome is Outcome.FINISHED and (release.oks or 0) <= MANY


def _end_of(release: Release, now: float | None) -> dict[str, object]:
    return {"id": release.claim_id, "asked_at": release.asked_at, "oks": release.oks, "now": now}


def _all(after: After) -> After:
    return after


def _nothing(_: object) -> After:
    return After()


def _second(done: tuple[Any, After]) -> After:
    return done[1]
