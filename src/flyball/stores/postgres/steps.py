"""How a verb gets done: in a step of its own on a connection that is lent for it.

The verbs ask for rows to write on (``_write``) and get those of the step that was opened for them, with the
right lock. Releases that could not be written, and grants whose answer was never heard, are made good first,
inside the next step of this process, which then locks all pools.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

from flyball.core.model import Outcome
from flyball.errors import StoreError, invariant
from flyball.stores.desk import World
from flyball.stores.memory_rows import MemoryRows
from flyball.stores.port import After, Release
from flyball.stores.postgres import statements as sql
from flyball.stores.postgres import unheard as unanswered
from flyball.stores.postgres.ailments import AGAIN, maybe_done
from flyball.stores.postgres.link import Link
from flyball.stores.postgres.rows import PostgresRows
from flyball.stores.postgres.server import Server
from flyball.stores.postgres.step import ALL, Lock, Step, perform, reading
from flyball.stores.postgres.unheard import Tags, Unheard
from flyball.stores.rows import Rows
from flyball.stores.steps import joined
from flyball.stores.verbs import Verbs

R = TypeVar("R")
TRIES = 8
"""Steps do not stand in each other's way by design. If ever they do, each is tried so often."""


class _Open(threading.local):
    """The step of the current thread."""

    step: Step | None = None
    carries = False
    """It has all locks, and so may make good what failed before."""


class NeedsStepError(Exception):
    """A verb that began as a look has found something to write."""


class PostgresSteps(Verbs):
    """What every verb needs: steps, looks, and what is left to make good."""

    def __init__(self, server: Server, world: World, *, server_time: bool = True) -> None:
        """``server_time``: False where time is the world's, as in tests."""
        super().__init__(world)
        self._server, self._server_time = server, server_time
        self._open = _Open()
        self._tag = Tags()
        self._unheard: list[Unheard] = []

    def now(self) -> float:
        return self._server.now() if self._server_time else self._world.clock()

    def _given_now(self) -> float | None:
        """The time, where it is not the server's to say."""
        return None if self._server_time else self._world.clock()

    def _epoch(self, link: Link) -> str:
        return link.epoch if self._server_time else self._world.epoch()

    # -- writing ------------------------------------------------------------------------------------

    def _step(
        self, lock: Lock, verb: Callable[[], R], told: Callable[[R], After], *, asked_in: str | None = None
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
        self, lock: Lock, verb: Callable[[], R], told: Callable[[R], After], *, asked_in: str | None
    ) -> R:
        with self._server.lend(writing=True) as link:
            step = Step(link, tag=self._tag(), now=self._given_now(), epoch=self._epoch(link))
            self._open.step, self._open.carries = step, lock.is_all
            try:
                return perform(step, lock, verb, told)
            except BaseException as error:
                if step.committing and asked_in is not None:
                    self._note_unheard(error, Unheard(asked_in, step.tag, link.backend))
                raise
            finally:
                self._open.step = None

    def _note_unheard(self, error: BaseException, ask: Unheard) -> None:
        if maybe_done(error):
            with self._unwritten_lock:
                self._unheard.append(ask)

    @contextmanager
    def _write(self) -> Iterator[Rows]:
        """The rows of the step that this verb is done in; it is committed when the verb has returned."""
        if self._open.step is None:
            raise NeedsStepError
        yield self._open.step.rows

    # -- reading ------------------------------------------------------------------------------------

    @contextmanager
    def _read(self) -> Iterator[Rows]:
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
    def _peek(self) -> Iterator[Rows]:
        if self._open.step is not None:
            yield self._open.step.rows
            return
        with self._server.lend() as link:
            yield PostgresRows(link, epoch="") if link.layout else self._nothing(link)

    def _nothing(self, link: Link) -> Rows:
        """Looking makes no tables: what nobody has written yet looks like this."""
        rows, now = MemoryRows(), self._given_now()
        rows.begin(float(link.ask(sql.CLOCK)[0][0]) if now is None else now, self._epoch(link))
        return rows

    # -- what could not be done before --------------------------------------------------------------

    @property
    def _owes(self) -> bool:
        return bool(self._unwritten or self._unheard)

    def _carry(self, rows: Rows) -> After:
        """Make good what failed before. It stays kept if this step fails too."""
        if not self._open.carries:
            return After()
        after = super()._carry(rows)
        step = self._open.step
        invariant(step is not None, "what failed before is made good in a step")
        with self._unwritten_lock:
            kept = list(self._unheard)
        if not kept or step is None:
            return after
        found = unanswered.find(step.link, kept)
        for claim_id in found.claims:
            after = joined(after, self._end_in(rows, Release(claim_id, Outcome.ABANDONED)))
        rows.on_commit(lambda: self._forget_unheard(found.over))
        return after

    def _forget_unheard(self, over: frozenset[Unheard]) -> None:
        with self._unwritten_lock:
            self._unheard = [ask for ask in self._unheard if ask not in over]

    # -- forking ------------------------------------------------------------------------------------

    def before_fork(self) -> None:
        self._unwritten_lock.acquire()

    def after_fork_in_parent(self) -> None:
        self._unwritten_lock.release()

    def after_fork_in_child(self) -> None:
        """The connections are the parent's, and so is what it has to make good."""
        self._unwritten_lock = threading.RLock()
        self._unwritten, self._unheard = [], []
        self._open = _Open()
        self._tag = Tags()
        self._server.after_fork_in_child()
