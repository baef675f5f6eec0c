"""The port on a PostgreSQL server, for as many machines as can reach it.

Every verb is that of the other stores (stores/operations.py), run on rows of this server in one transaction
under its pool's lock (store.py, transaction.py): identical traces give identical verdicts. A grant and an end
that nothing stands in the way of are one round trip each, in a function on the server that does the same
(002_short_way.sql). Limits over all pools of one machine have no place here.

A verb is done in a step of its own, on a connection that is lent for it (``PostgresSteps``). It asks for rows
to write on (``_write``) and gets those of the step that was opened for it, with the right lock. Releases that
could not be written, and grants whose answer was lost (lost_replies.py), are made good first, inside the next
step of this process, which then locks all pools.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar, cast

from flyball.core.pool.holder import Holder
from flyball.core.pool.model import Ask, Outcome
from flyball.core.pool.settings import (
    LEASE_BACKSTOP_S,
    MachineChanges,
    MachineSettings,
    PoolChanges,
    check_ask,
    merge_machine,
)
from flyball.core.pool.verdict import Verdict, granted_verdict
from flyball.core.signals import Signal
from flyball.errors import StoreError, invariant
from flyball.host.fork import survive_forks
from flyball.stores.admin_operations import refuse_machine, refuse_resources
from flyball.stores.codec import WHO, dump_amounts, holder_values, names
from flyball.stores.memory_rows import MemoryRows
from flyball.stores.operations import StoreOperations
from flyball.stores.pool_session import Environment
from flyball.stores.port import AfterCommit, Demand, Release
from flyball.stores.postgres import queries as sql
from flyball.stores.postgres.connection import Connection
from flyball.stores.postgres.connection_pool import ConnectionPool
from flyball.stores.postgres.errors import AGAIN, LONG_WAY, maybe_done
from flyball.stores.postgres.lost_replies import LostReply, RequestTags, find_lost_claims
from flyball.stores.postgres.rows import PostgresRows, storable
from flyball.stores.postgres.transaction import (
    ALL,
    Lock,
    PostgresTransaction,
    perform,
    reading,
)
from flyball.stores.rows import HOSTS_KEPT, RowReader, Rows
from flyball.stores.transaction import merge_effects

if TYPE_CHECKING:
    from flyball.core.pool.plan import LearnedState
    from flyball.core.share_lease.renewal import Renewal, Reply
    from flyball.stores.port import Store
    from flyball.stores.postgres.notifications import NotificationListener
    from flyball.stores.recount import CountMismatch


R = TypeVar("R")
TRIES = 8
"""Steps do not stand in each other's way by design. If ever they do, each is tried so often."""
MANY = 10**9
"""An ask for more slots than this goes the long way, and is refused there."""
LONG_WAY_S = 0.2
"""A pool that has sent us the long way twice running is not tried the short way for so long."""


class _Open(threading.local):
    """The step of the current thread."""

    step: PostgresTransaction | None = None
    carries = False
    """It has all locks, and so may make good what failed before."""


class NeedsStepError(Exception):
    """A verb that began as a look has found something to write."""


class PostgresSteps(StoreOperations):
    """What every verb needs: steps, looks, and what is left to make good."""

    def __init__(self, server: ConnectionPool, world: Environment, *, server_time: bool = True) -> None:
        """``server_time``: False where time is the world's, as in tests."""
        super().__init__(world)
        self._server, self._server_time = server, server_time
        self._open = _Open()
        self._tag = RequestTags()
        self._lost_replies: list[LostReply] = []

    def now(self) -> float:
        return self._server.now() if self._server_time else self._world.clock()

    def _given_now(self) -> float | None:
        """The time, where it is not the server's to say."""
        return None if self._server_time else self._world.clock()

    def _epoch(self, link: Connection) -> str:
        return link.epoch if self._server_time else self._world.epoch()

    # -- writing ------------------------------------------------------------------------------------

    def _step(
        self,
        lock: Lock,
        verb: Callable[[], R],
        told: Callable[[R], AfterCommit],
        *,
        asked_in: str | None = None,
    ) -> R:
        """Do a verb in a step of its own.

        ``told``: what the verb leaves to do. ``asked_in``: it asks in this pool, and its answer matters.
        """
        tried = 0
        while True:
            tried += 1
            try:
                return self._once(ALL if self._owes else lock, verb, told, asked_in=asked_in)
            except StoreError as error:
                if getattr(error.__cause__, "sqlstate", None) not in AGAIN or tried == TRIES:
                    raise
            time.sleep(0.01 * tried * random.random())

    def _once(
        self, lock: Lock, verb: Callable[[], R], told: Callable[[R], AfterCommit], *, asked_in: str | None
    ) -> R:
        with self._server.lend(writing=True) as link:
            step = PostgresTransaction(link, tag=self._tag(), now=self._given_now(), epoch=self._epoch(link))
            self._open.step, self._open.carries = step, lock.is_all
            try:
                return perform(step, lock, verb, told)
            except BaseException as error:
                if step.committing and asked_in is not None:
                    self._note_lost_reply(error, LostReply(asked_in, step.tag, link.backend))
                raise
            finally:
                self._open.step = None

    def _note_lost_reply(self, error: BaseException, ask: LostReply) -> None:
        if maybe_done(error):
            with self._unwritten_lock:
                self._lost_replies.append(ask)

    @contextmanager
    def _write(self) -> Iterator[Rows]:
        """The rows of the step that this verb is done in; it is committed when the verb has returned."""
        if self._open.step is None:
            raise NeedsStepError
        yield self._open.step.rows

    # -- reading ------------------------------------------------------------------------------------

    @contextmanager
    def _read(self) -> Iterator[RowReader]:
        if self._open.step is not None:
            yield self._open.step.rows
            return
        with self._server.lend() as link:
            if link.layout:
                with reading(link, now=self._given_now(), epoch=self._epoch(link)) as rows:
                    yield rows
            else:
                yield self._nothing(link)

    @contextmanager
    def _peek(self) -> Iterator[RowReader]:
        if self._open.step is not None:
            yield self._open.step.rows
            return
        with self._server.lend() as link:
            yield PostgresRows(link, epoch="") if link.layout else self._nothing(link)

    def _nothing(self, link: Connection) -> Rows:
        """Reads make no tables: a space without any looks like this."""
        rows, now = MemoryRows(), self._given_now()
        rows.begin(float(link.ask(sql.CLOCK)[0][0]) if now is None else now, self._epoch(link))
        return rows

    # -- what could not be done before --------------------------------------------------------------

    @property
    def _owes(self) -> bool:
        return bool(self._unwritten or self._lost_replies)

    def _carry(self, rows: Rows) -> AfterCommit:
        """Make good what failed before. It stays kept if this step fails too."""
        if not self._open.carries:
            return AfterCommit()
        after = super()._carry(rows)
        step = self._open.step
        invariant(step is not None, "what failed before is made good in a step")
        with self._unwritten_lock:
            kept = list(self._lost_replies)
        if not kept or step is None:
            return after
        found = find_lost_claims(step.link, kept)
        for claim_id in found.claims:
            after = merge_effects(after, self._end_in(rows, Release(claim_id, Outcome.ABANDONED)))
        rows.on_commit(lambda: self._forget_lost_replies(found.over))
        return after

    def _forget_lost_replies(self, over: frozenset[LostReply]) -> None:
        with self._unwritten_lock:
            self._lost_replies = [ask for ask in self._lost_replies if ask not in over]

    # -- forking ------------------------------------------------------------------------------------

    def _before_fork(self) -> None:
        self._unwritten_lock.acquire()

    def _after_fork_in_parent(self) -> None:
        self._unwritten_lock.release()

    def _after_fork_in_child(self) -> None:
        """The connections are the parent's, and so is what it has to make good."""
        self._unwritten_lock = threading.RLock()
        self._unwritten, self._lost_replies = [], []
        self._open = _Open()
        self._tag = RequestTags()
        self._server.after_fork_in_child()


class PostgresStore(PostgresSteps):
    """Implements ``Store``. Safe to use from many threads, and after a fork."""

    def __init__(self, server: ConnectionPool, world: Environment, *, server_time: bool = True) -> None:
        super().__init__(server, world, server_time=server_time)
        self._detours: dict[str, tuple[int, float]] = {}
        """Pools that have just sent us the long way: how often running, and when last."""
        survive_forks(self)

    # -- asking -----------------------------------------------------------------------------------

    def admit(self, ask: Ask, *, park: bool) -> tuple[Verdict, AfterCommit]:
        check_ask(ask)
        refuse_resources(ask)
        if self._may_go_shortly(ask):
            verdict = self._admit_shortly(ask)
            if verdict is not None:
                self._detours.pop(ask.pool, None)
                return verdict, AfterCommit()
            self._detours[ask.pool] = (self._detours.get(ask.pool, (0, 0.0))[0] + 1, time.monotonic())
        lock = Lock(ask.pool, ask.project)
        return self._step(lock, lambda: self._admit_in_step(ask, park=park), _second, asked_in=ask.pool)

    def _may_go_shortly(self, ask: Ask) -> bool:
        """Unless there is more to it. Who was sent the long way twice running need not try for a moment."""
        if self._owes or ask.key or ask.ttl_s is not None or ask.unread or ask.slots > MANY:
            return False
        times, at = self._detours.get(ask.pool, (0, 0.0))
        return times < 2 or not self._server_time or time.monotonic() - at >= LONG_WAY_S

    def _admit_shortly(self, ask: Ask) -> Verdict | None:
        """The grant that nothing stands in the way of, in one round trip. None: go the long way."""
        tag = self._tag()
        with self._server.lend(writing=True) as link:
            try:
                claim_id, in_use, cap, at = link.ask(sql.FAST_ADMIT, self._ask_fields(ask, tag))[0]
            except BaseException as error:
                self._note_lost_reply(error, LostReply(ask.pool, tag, link.backend))
                raise
        if self._server_time:
            # Where it came too late though we still wait for it, the server's clock was set.
            self._server.note_time(at)
        if not claim_id:
            return None
        return granted_verdict(ask.pool, claim_id, asked_at=at, in_use=in_use, cap=cap)

    def _ask_fields(self, ask: Ask, tag: int) -> dict[str, object]:
        return {
            "pool": ask.pool,
            "project": ask.project,
            "name": ask.name,
            **dict(zip(names(WHO), holder_values(ask.holder), strict=True)),
            "slots": ask.slots,
            "priority": ask.priority,
            "model": storable(ask.model),
            "mailbox": storable(ask.mailbox),
            "cost": dump_amounts(ask.cost),
            "tag": tag,
            "at": self._given_now(),
            "deadline": self._server.deadline() if self._server_time else None,
        }

    def poll(
        self, claim_id: int, *, advance: bool, asked_at: float | None = None
    ) -> tuple[Verdict | None, AfterCommit]:
        if not advance:
            try:
                return super().poll(claim_id, advance=False, asked_at=asked_at)
            except NeedsStepError:
                pass
        return self._step(
            Lock(claim_id=claim_id),
            lambda: StoreOperations.poll(self, claim_id, advance=advance, asked_at=asked_at),
            _second,
        )

    def withdraw(self, claim_id: int, *, asked_at: float | None = None) -> AfterCommit:
        return self.release(Release(claim_id, Outcome.ABANDONED, asked_at=asked_at))

    def release(self, release: Release) -> AfterCommit:
        if not self._owes and _teaches_nothing(release) and self._end_shortly(release):
            return AfterCommit()
        return self._step(
            Lock(claim_id=release.claim_id), lambda: StoreOperations.release(self, release), _all
        )

    def _end_shortly(self, release: Release) -> bool:
        """The end that teaches nothing special, in one round trip. False: go the long way."""
        with self._server.lend(writing=True) as link:
            try:
                end = {"id": release.claim_id, "asked_at": release.asked_at, "oks": release.oks}
                told = link.ask(sql.FAST_END, {**end, "now": self._given_now()})
            except Exception as error:
                if getattr(error, "sqlstate", None) != LONG_WAY:
                    raise
                return False
            return told == [(True,)]

    # -- holders ----------------------------------------------------------------------------------

    def rebind(
        self, claim_id: int, holder: Holder, *, launcher_pid: int, asked_at: float | None = None
    ) -> tuple[bool, AfterCommit]:
        return self._step(
            Lock(claim_id=claim_id),
            lambda: StoreOperations.rebind(
                self, claim_id, holder, launcher_pid=launcher_pid, asked_at=asked_at
            ),
            _second,
        )

    def extend(self, claim_id: int, *, ttl_s: float, asked_at: float | None = None) -> bool:
        return self._step(
            Lock(claim_id=claim_id),
            lambda: StoreOperations.extend(self, claim_id, ttl_s=ttl_s, asked_at=asked_at),
            _nothing,
        )

    def note(self, name: str, fresh: str) -> str:
        with self._server.lend(writing=True) as link:
            return str(link.ask(sql.NOTE_ONCE, (name, storable(fresh)))[0][0])

    def set_note(self, name: str, text: str) -> None:
        with self._server.lend(writing=True) as link:
            link.execute(sql.PUT_NOTE, (name, storable(text)))

    def record_running(self, ask: Ask) -> tuple[int, AfterCommit]:
        check_ask(ask)
        refuse_resources(ask)
        return self._step(
            Lock(ask.pool, ask.project), lambda: StoreOperations.record_running(self, ask), _second
        )

    def pause(self, ask: Ask, *, for_s: float, why: str) -> tuple[int, AfterCommit]:
        check_ask(ask)
        return self._step(
            Lock(pool=ask.pool), lambda: StoreOperations.pause(self, ask, for_s=for_s, why=why), _second
        )

    def reclaim(
        self, claims: Sequence[tuple[int, Holder]], demands: Sequence[Demand] = (), *, why: str = ""
    ) -> AfterCommit:
        return self._step(ALL, lambda: StoreOperations.reclaim(self, claims, demands, why=why), _all)

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

    def _make_good(self) -> AfterCommit:
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
    ) -> AfterCommit:
        return self._step(
            Lock(pool=pool),
            lambda: StoreOperations.report(
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

    def renew(self, pool: str, renewal: Renewal) -> tuple[Reply, AfterCommit]:
        return self._step(Lock(pool=pool), lambda: StoreOperations.renew(self, pool, renewal), _second)

    def demand(self, pool: str, project: str, holder: Holder, *, ttl_s: float) -> AfterCommit:
        return self._step(
            Lock(pool=pool), lambda: StoreOperations.demand(self, pool, project, holder, ttl_s=ttl_s), _all
        )

    # -- what people set --------------------------------------------------------------------------

    def _set_pool(self, pool: str, changes: PoolChanges, learned: LearnedState | None) -> AfterCommit:
        return self._step(
            Lock(pool=pool), lambda: StoreOperations._set_pool(self, pool, changes, learned), _all
        )

    def reset_pool(self, pool: str, *, settings: bool = False) -> AfterCommit:
        return self._step(
            Lock(pool=pool), lambda: StoreOperations.reset_pool(self, pool, settings=settings), _all
        )

    def remove_pool(self, pool: str) -> AfterCommit:
        return self._step(Lock(pool=pool), lambda: StoreOperations.remove_pool(self, pool), _all)

    def recount(self) -> tuple[list[CountMismatch], AfterCommit]:
        return self._step(ALL, lambda: StoreOperations.recount(self), _second)

    def set_machine(self, machine: MachineSettings) -> AfterCommit:
        refuse_machine(machine)
        return self._step(ALL, self._make_good, _all) if self._owes else AfterCommit()

    def change_machine(self, changes: MachineChanges) -> AfterCommit:
        return self.set_machine(merge_machine(MachineSettings(), changes))

    def machine(self) -> MachineSettings:
        return MachineSettings()

    # -- connections ------------------------------------------------------------------------------

    def listener(self) -> NotificationListener:
        """A connection of its own that listens to channels."""
        return self._server.listener()

    def close(self) -> None:
        self._server.close()


def listener_factory(store: Store) -> Callable[[], NotificationListener]:
    """Opens a connection that listens to channels. The store may be wrapped, as in tests."""
    return cast("PostgresStore", store).listener


def _teaches_nothing(release: Release) -> bool:
    """A lease that just ended; nothing was said about it."""
    plain = not (release.rejected or release.used or release.buckets or release.words)
    return plain and release.outcome is Outcome.FINISHED and (release.oks or 0) <= MANY


def _all(after: AfterCommit) -> AfterCommit:
    return after


def _nothing(_: object) -> AfterCommit:
    return AfterCommit()


def _second(done: tuple[Any, AfterCommit]) -> AfterCommit:
    return done[1]
