"""One step: a transaction that begins with the lock of its pool and ends with its commit.

Every step locks one pool, by its row; one that may touch several (reclaiming, recounting, making good what
failed before) locks all of them, in the order of their names. A pool that does not exist yet is made under
one lock for all of them, which the latter take first. So no step that holds a lock waits for one that comes
before it.

Who is to be woken is told inside the transaction: the server passes it on when that is committed, and never
otherwise.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TypeVar

import psycopg

from flyball.stores.port import AfterCommit
from flyball.stores.postgres import queries as sql
from flyball.stores.postgres.connection import Connection
from flyball.stores.postgres.rows import PostgresRows

R = TypeVar("R")
CHANNEL = "flyball:wake:"
"""Mailboxes that begin with this are channels: the step itself tells them."""
_PAYLOAD_LIMIT = 7000
"""Bytes of one message; the server takes less than 8000."""


@dataclass(frozen=True, slots=True)
class Lock:
    """What a step locks: a pool by its name, the pool of a claim, or (neither) all of them."""

    pool: str | None = None
    project: str | None = None
    """Of that pool: it will be asked about, so it is read in the same round trip."""
    claim_id: int | None = None

    @property
    def is_all(self) -> bool:
        return self.pool is None and self.claim_id is None


ALL = Lock()


class PostgresTransaction:
    """``begin``, work on ``rows``, ``commit``; or leave it, and it is undone."""

    def __init__(self, link: Connection, *, tag: int, now: float | None, epoch: str) -> None:
        """``now``: the time, where it is not the server's to say."""
        self.link, self.tag, self._now = link, tag, now
        self.rows = PostgresRows(link, epoch=epoch, tag=tag)
        self.committing = False
        """The commit was sent: from now on a failure may not mean that nothing was done."""

    def begin(self, lock: Lock) -> None:
        self.link.execute(sql.BEGIN)
        if lock.is_all:
            self.link.execute(sql.LOCK_NEW)
        if not self._lock_rows(lock) and lock.pool is not None:
            # It is made under a lock for all that are new; another step may have been faster.
            self.link.execute(sql.LOCK_NEW)
            self._lock_rows(lock)

    def _lock_rows(self, lock: Lock) -> bool:
        """Lock rows, and only then look at the clock: of two steps on a pool the later has the later time."""
        link, rows = self.link, self.rows
        if lock.pool is not None:
            pools = link.execute(sql.LOCK_POOL, (lock.pool,))
        elif lock.claim_id is not None:
            pools = link.execute(sql.LOCK_POOL_OF, (lock.claim_id,))
        else:
            pools = link.execute(sql.LOCK_ALL)
        use = link.execute(sql.PROJECT, (lock.pool, lock.project)) if lock.project is not None else None
        claim = link.execute(sql.BY_ID, (lock.claim_id,)) if lock.claim_id is not None else None
        now = float(link.ask(sql.CLOCK)[0][0])
        rows.now = now if self._now is None else self._now
        locked = pools.fetchall()
        for row in locked:
            rows.keep_pool(row)
        if use is not None and lock.pool is not None and lock.project is not None:
            rows.keep_project(lock.pool, lock.project, use.fetchall())
        if claim is not None and lock.claim_id is not None:
            rows.keep_claim(lock.claim_id, claim.fetchall())
        return bool(locked)

    def commit(self, after: AfterCommit) -> None:
        for channel, words in messages(after):
            self.link.execute(sql.NOTIFY, (channel, words))
        self.committing = True
        self.link.execute("COMMIT")


def messages(after: AfterCommit) -> list[tuple[str, str]]:
    """What to tell which channel: all that one process has to look at in one message. A mailbox without a
    claim looks at everything.

    >>> from flyball.core.pool.holder import Holder
    >>> from flyball.stores.port import WakeUp
    >>> who = Holder("h", "b", 1, 1, 1)
    >>> wakes = [WakeUp(f"flyball:wake:ab#{number}", id, who) for number, id in ((1, 7), (2, 8), (1, 9))]
    >>> messages(AfterCommit(wakes))
    [('flyball:wake:ab', '1 7,2 8,1 9')]
    """
    told: dict[str, list[str]] = {}
    wakes = [(wake.mailbox, f" {wake.claim_id}") for wake in after.wakes]
    for mailbox, claim in (*wakes, *((mailbox, "") for mailbox in after.notices)):
        if mailbox.startswith(CHANNEL):
            channel, _, number = mailbox.partition("#")
            told.setdefault(channel, []).append(f"{number}{claim}")
    return [(channel, words) for channel, said in told.items() for words in _pack_messages(said)]


def _pack_messages(said: Sequence[str]) -> list[str]:
    packed = [""]
    for words in dict.fromkeys(said):
        if packed[-1] and len(packed[-1]) + len(words) > _PAYLOAD_LIMIT:
            packed.append("")
        packed[-1] += f"{',' if packed[-1] else ''}{words}"
    return packed


def perform(
    step: PostgresTransaction, lock: Lock, work: Callable[[], R], told: Callable[[R], AfterCommit]
) -> R:
    """Begin, work, commit. What fails before the commit is undone and raised."""
    try:
        with step.link.batch():
            step.begin(lock)
            done = work()
            step.commit(told(done))
    except Exception:
        _undo(step.link)
        raise
    for action in step.rows.actions:
        action()
    return done


@contextmanager
def reading(link: Connection, *, now: float | None, epoch: str) -> Iterator[PostgresRows]:
    """Everything as it was at one moment; nothing can be written."""
    try:
        with link.batch():
            link.execute(sql.BEGIN_READING)
            clock = link.execute(sql.CLOCK)
            yield PostgresRows(link, now=now, clock=clock, epoch=epoch)
            link.execute("ROLLBACK")
    except Exception:
        _undo(link)
        raise


def _undo(link: Connection) -> None:
    """Where that fails, the connection is of no use, and the server undoes it by itself."""
    if link.closed:
        return
    try:
        link.execute("ROLLBACK")
    except psycopg.Error:
        link.close()
