"""The port on a Redis or Valkey server, for as many machines as can reach it.

Every verb that is called often is one script and one round trip. Where a script needs a new plan it says so,
is given one and goes on (script_runner.py). Before a slot goes to another process of the caller's host, it
asks in the same way whether that is stopped. The verbs that people use, and looking, work on an image of the
pool with the code that the other stores run (``AdminReads``, pool_image.py).

All keys of a pool share one hash tag, so a cluster keeps them together; no script touches two pools. Limits
over all pools of one machine therefore have no place here.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING, cast

from flyball.core.pool.holder import Holder
from flyball.core.pool.model import Ask, Claim, Fact, Outcome
from flyball.core.pool.settings import (
    MachineChanges,
    MachineSettings,
    PoolChanges,
    check_ask,
    check_demand,
    check_name,
    check_ttl,
    merge_machine,
)
from flyball.core.pool.verdict import Verdict
from flyball.core.signals import Signal
from flyball.errors import PoolInUseError, StoreBusyError, StoreError, UsageError, invariant
from flyball.host.fork import survive_forks
from flyball.stores import codec
from flyball.stores.admin_operations import no_pool_words, refuse_machine, refuse_resources
from flyball.stores.operations import StoreOperations
from flyball.stores.pool_session import Environment
from flyball.stores.port import AfterCommit, Demand, HolderCensus, Release
from flyball.stores.redis import records, script_runner
from flyball.stores.redis.connection import RedisConnections, RedisListener, split_space
from flyball.stores.redis.id_blocks import SPACE
from flyball.stores.redis.pool_image import PoolImage, PoolState
from flyball.stores.redis.script_runner import LostAsk, RedisSteps, parse_state
from flyball.stores.rows import RowReader, Rows

ROUNDS = 16


class ImageTransaction(StoreOperations):
    """The verbs of the other stores. What they write stays in the image."""

    def __init__(self, world: Environment, image: PoolImage) -> None:
        super().__init__(world)
        self._image = image

    @contextmanager
    def _write(self) -> Iterator[Rows]:
        yield self._image

    def _read(self) -> AbstractContextManager[RowReader]:
        return self._write()

    def _peek(self) -> AbstractContextManager[RowReader]:
        return self._write()

    def close(self) -> None:
        return None


class AdminReads(RedisSteps):
    """Reads of whole pools, and changes that are made in an image and swapped in."""

    def _image(self, *pools: str) -> PoolImage:
        """Some pools as they are now."""
        states = [
            state
            for pool in pools
            if (state := parse_state(pool, self._run_once("read_pool", pool, ""))).fields
        ]
        image = PoolImage(max((state.now for state in states), default=0.0) or self.now())
        for state in states:
            image.load(state)
        return image

    def _image_of_all(self) -> ImageTransaction:
        return ImageTransaction(self._world, self._image(*self._registry.pools()))

    @contextmanager
    def _peek(self) -> Iterator[RowReader]:
        yield self._image(*self._registry.pools())

    def _change(self, pool: str, work: Callable[[ImageTransaction], AfterCommit]) -> AfterCommit:
        """Let ``work`` change a pool as on any store, and swap that in."""
        after = AfterCommit()
        if self._unwritten or self._lost_asks:
            # What makes no sense is refused before anything is made good.
            work(ImageTransaction(self._world, self._image_with_inbox(self._read_state(pool))))
            self._carry(after)
        for _ in range(ROUNDS):
            image = self._image_with_inbox(self._read_state(pool))
            image.notices += work(ImageTransaction(self._world, image)).notices
            if self._run_until_done("do_swap_in", pool, "", after, swap=image.changes()) != "moved":
                return after
        raise StoreBusyError(f"pool {pool!r} changes all the time; try again")

    def _image_with_inbox(self, state: PoolState) -> PoolImage:
        """An image into which the pool's inbox is folded."""
        image = PoolImage(state.now)
        image.load(state)
        if state.events:
            script_runner.fold_inbox(image, state, self._world)
        return image

    def _read_state(self, pool: str) -> PoolState:
        reply = self._run_once("do_swap_in", pool, "state")
        invariant(reply["kind"] == "plan", "asked for its state, a pool tells it")
        return parse_state(pool, reply)

    def facts(self, *, limit: int) -> list[Fact]:
        """The newest of all pools: of one pool in the order in which they happened, between pools by time."""
        lists = [
            (pool, f"{self._registry.pool_key(pool)}{kind}-facts")
            for pool in self._registry.pools()
            for kind in ("ask", "pool")
        ]
        answers = self._server.ask_all([("LRANGE", key, 0, limit - 1) for _, key in lists])
        found: list[tuple[float, int, Fact]] = []
        for (pool, _), lines in zip(lists, answers, strict=True):
            for line in lines:
                number, *rest = line.split("\t")
                fact = records.parse_fact(pool, rest)
                found.append((fact.at, int(number), fact))
        newest = sorted(found, key=lambda entry: entry[:2], reverse=True)
        return [fact for _, _, fact in newest[:limit]]


if TYPE_CHECKING:
    from typing import TypedDict, Unpack

    from flyball.core.pool.plan import LearnedState
    from flyball.core.share_lease.renewal import Renewal, Reply
    from flyball.stores.port import Store
    from flyball.stores.recount import CountMismatch
    from flyball.stores.snapshot import Snapshot

    class Terms(TypedDict, total=False):
        server_time: bool
        """False: time is the world's, as in tests."""
        id_block: int
        space: str


REPORT_ROUNDS = 16


class RedisStore(AdminReads):
    """Implements ``Store``. Safe to use from many threads, and after a fork."""

    def __init__(self, server: RedisConnections, world: Environment, **terms: Unpack[Terms]) -> None:
        super().__init__(server, world, **terms)
        survive_forks(self)

    # -- asking -----------------------------------------------------------------------------------

    def admit(self, ask: Ask, *, park: bool) -> tuple[Verdict, AfterCommit]:
        check_ask(ask)
        refuse_resources(ask)
        after = AfterCommit()
        self._carry(after)
        tag = self._tag()
        how = ("1" if park else "") + ("u" if ask.unread else "")
        argument = (
            f"{how}\t{ask.project}\t{ask.name}\t{ask.holder.pid}\t{ask.slots}\t"
            f"{ask.priority}\t{records.amounts_line(ask.cost)}\t{tag}\t{records.ask_line(ask)}"
        )
        script = "do_admit"
        if ask.key or ask.ttl_s is not None:
            script = "do_admit_remote"
            argument = (
                f"{records.dump_number(ask.ttl_s)}\t{ask.key}\t{records.escape(ask.fingerprint)}\t{argument}"
            )
        try:
            verdict = records.parse_verdict(ask.pool, self._run_until_done(script, ask.pool, argument, after))
        except StoreError as error:
            if error.maybe_done and not ask.key:
                # The answer was lost, perhaps not the question.
                until = time.monotonic() + 2 * self._server.answer_s
                with self._kept_lock:
                    self._lost_asks.append(LostAsk(ask.pool, tag, until))
            raise
        if verdict.claim_id:
            self._registry.note_owner(verdict.claim_id, ask.pool)
        return verdict, after

    def poll(
        self, claim_id: int, *, advance: bool, asked_at: float | None = None
    ) -> tuple[Verdict | None, AfterCommit]:
        after = AfterCommit()
        if advance:
            self._carry(after)
        pool = self._registry.find_pool(claim_id)
        if pool is None:
            return None, after
        named = f"{claim_id}\t{records.dump_number(asked_at)}"
        if not advance:
            head = str(self._run_once("do_poll", pool, f"{named}\t"))
            if head == "project":
                on_image = ImageTransaction(self._world, self._image(pool))
                return on_image.poll(claim_id, advance=False, asked_at=asked_at)
            if head != "write":
                return records.parse_verdict_or_none(pool, head), after
            self._carry(after)
        head = self._run_until_done("do_poll", pool, f"{named}\t1", after)
        return records.parse_verdict_or_none(pool, head), after

    def extend(self, claim_id: int, *, ttl_s: float, asked_at: float | None = None) -> bool:
        check_ttl(ttl_s)
        pool = self._registry.find_pool(claim_id)
        if pool is None:
            return False
        argument = f"{claim_id}\t{records.dump_number(asked_at)}\t{ttl_s!r}"
        return bool(self._run_once("do_extend", pool, argument) == "1")

    def note(self, name: str, fresh: str) -> str:
        return self._registry.note(name, fresh)

    def set_note(self, name: str, text: str) -> None:
        self._registry.set_note(name, text)

    def notes(self, prefix: str) -> dict[str, str]:
        return self._registry.notes(prefix)

    def withdraw(self, claim_id: int, *, asked_at: float | None = None) -> AfterCommit:
        return self.release(Release(claim_id, Outcome.ABANDONED, asked_at=asked_at))

    def release(self, release: Release) -> AfterCommit:
        after = AfterCommit()
        self._carry(after)
        self._end(release, after)
        return after

    # -- holders ----------------------------------------------------------------------------------

    def rebind(
        self, claim_id: int, holder: Holder, *, launcher_pid: int, asked_at: float | None = None
    ) -> tuple[bool, AfterCommit]:
        after = AfterCommit()
        self._carry(after)
        pool = self._registry.find_pool(claim_id)
        if pool is None:
            return False, after
        argument = (
            f"{claim_id}\t{records.holder_line(holder)}\t{launcher_pid}\t{records.dump_number(asked_at)}"
        )
        return self._run_until_done("do_rebind", pool, argument, after) == "1", after

    def record_running(self, ask: Ask) -> tuple[int, AfterCommit]:
        check_ask(ask)
        after = AfterCommit()
        self._carry(after)
        argument = f"{records.ask_line(ask)}\t{records.amounts_line(ask.cost)}"
        claim_id = int(self._run_until_done("do_record_running", ask.pool, argument, after))
        self._registry.note_owner(claim_id, ask.pool)
        return claim_id, after

    def pause(self, ask: Ask, *, for_s: float, why: str) -> tuple[int, AfterCommit]:
        check_ask(ask)
        after = AfterCommit()
        self._carry(after)
        argument = f"{records.ask_line(ask)}\t\t{for_s!r}\t{records.escape(why)}"
        claim_id = int(self._run_until_done("do_pause", ask.pool, argument, after))
        self._registry.note_owner(claim_id, ask.pool)
        return claim_id, after

    def granted_ids(self, mailbox: str) -> list[int]:
        found = (claim for pool in self._registry.pools() for claim in self.pool_census(pool).claims)
        return sorted(claim.id for claim in found if claim.held and claim.mailbox == mailbox)

    def claim(self, claim_id: int) -> Claim | None:
        pool = self._registry.find_pool(claim_id)
        line = (
            self._server.ask("HGET", f"{self._registry.pool_key(pool)}claims", str(claim_id))
            if pool is not None
            else None
        )
        return records.parse_claim(pool, claim_id, line) if pool is not None and line is not None else None

    def beat(self, pool: str, *, look_s: float) -> bool:
        """This host is there. True: it is this process's turn to look at the host's holders."""
        self._carry(AfterCommit())
        due, _, now = str(self._run_once("do_heartbeat", pool, repr(look_s))).partition("\t")
        if self._server_time:
            # Clocks drift apart over days; what is late is told by the server's.
            self._server.note_time(float(now))
        return due == "1"

    def holders(self, pool: str) -> list[Holder]:
        census = self.pool_census(pool)
        return [*{claim.holder for claim in census.claims}, *(demand.holder for demand in census.demands)]

    def pool_census(self, pool: str) -> HolderCensus:
        reply = records.pairs(self._run("read_watched", pool))
        hosts = records.pairs(reply["hosts"])
        found = [
            records.parse_claim(pool, int(claim_id), line, hosts)
            for claim_id, line in records.pairs(reply["claims"]).items()
        ]
        demanding = [
            records.parse_demand(pool, *demand) for demand in records.pairs(reply["demands"]).items()
        ]
        return HolderCensus(
            tuple(sorted(found, key=lambda claim: claim.id)),
            tuple(sorted(demanding, key=lambda demand: (demand.project, demand.holder.pid))),
        )

    def census(self) -> HolderCensus:
        return self._image_of_all().census()

    def reclaim(
        self, claims: Sequence[tuple[int, Holder]], demands: Sequence[Demand] = (), *, why: str = ""
    ) -> AfterCommit:
        after = AfterCommit()
        self._carry(after)
        lines: dict[str, list[str]] = {pool: [] for pool in self._pools_with_expired()}
        for demand in demands:
            lines.setdefault(demand.pool, []).append(f"d\t{records.demand_member(demand)}")
        for claim_id, holder in claims:
            pool = self._registry.find_pool(claim_id)
            if pool is not None:
                words = records.escape(why)
                lines.setdefault(pool, []).append(f"c\t{claim_id}\t{words}\t{records.holder_line(holder)}")
        for pool, dead in lines.items():
            self._run_until_done("do_reclaim", pool, "\n".join(dead), after)
        return after

    def _pools_with_expired(self) -> list[str]:
        """Pools with leases whose holders should have shown by now that they live."""
        pools, now = self._registry.pools(), self.now()
        keys = [f"{self._registry.pool_key(pool)}expiring" for pool in pools]
        counts = self._server.ask_all([("ZCOUNT", key, "-inf", repr(now)) for key in keys])
        return [pool for pool, number in zip(pools, counts, strict=True) if int(number)]

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
        check_name("pool", pool)
        after = AfterCommit()
        self._carry(after)
        event = script_runner.signal_event(signal, project=project, name=name, claim_id=claim_id)
        answered = claim_id if first and claim_id is not None else ""
        # It is in the inbox after the first step: the next plan folds it, if we never get to.
        argument = f"{answered}\t{records.dump_number(asked_at)}\t{event}"
        self._run_until_done("do_report", pool, argument, after, patience=REPORT_ROUNDS)
        return after

    def renew(self, pool: str, renewal: Renewal) -> tuple[Reply, AfterCommit]:
        from flyball.stores.shares import check_renewal

        check_renewal(renewal)
        check_name("pool", pool)
        after = AfterCommit()
        self._carry(after)
        head = self._run_until_done("do_renew", pool, records.renewal_line(renewal), after)
        return records.parse_reply(head), after

    def demand(self, pool: str, project: str, holder: Holder, *, ttl_s: float) -> AfterCommit:
        check_demand(project, ttl_s)
        check_name("pool", pool)
        after = AfterCommit()
        self._carry(after)
        member = records.demand_member(Demand(pool, project, holder, 0.0))
        self._run_until_done("do_demand", pool, f"{ttl_s!r}\t{member}", after)
        return after

    # -- seeing -----------------------------------------------------------------------------------

    def snapshot(self) -> Snapshot:
        return self._image_of_all().snapshot()

    def miscounts(self) -> list[CountMismatch]:
        return self._image_of_all().miscounts()

    # -- what people set --------------------------------------------------------------------------

    def named_settings(self) -> dict[str, PoolChanges]:
        pools = self._registry.pools()
        texts = self._server.ask_all(
            [("HGET", f"{self._registry.pool_key(pool)}pool", "settings") for pool in pools]
        )
        return {
            pool: codec.load_changes(text)
            for pool, text in zip(pools, texts, strict=True)
            if text is not None
        }

    def set_pool(self, pool: str, changes: PoolChanges) -> AfterCommit:
        check_name("pool", pool)
        return self._change(pool, lambda verbs: verbs.set_pool(pool, changes))

    def reset_pool(self, pool: str, *, settings: bool = False) -> AfterCommit:
        return self._change(pool, lambda verbs: verbs.reset_pool(pool, settings=settings))

    def remove_pool(self, pool: str) -> AfterCommit:
        after = AfterCommit()
        if self._unwritten or self._lost_asks:
            # What is refused is refused before anything is made good.
            self._remove(pool, "check", *(str(release.claim_id) for release in self._unwritten))
            self._carry(after)
        blocks = self._registry.find_blocks(pool)
        self._remove(pool, "remove")
        self._registry.forget(blocks)
        return after

    def _remove(self, pool: str, *words: str) -> None:
        said, *counts = self._run_once("do_remove_pool", pool, "\t".join(words)).split("\t")
        if said == "in use":
            leases, waiting, shares = map(int, counts)
            raise PoolInUseError(pool, leases=leases, waiting=waiting, shares=shares)
        if said == "none":
            raise UsageError(no_pool_words(pool))

    def import_pool(self, pool: str, changes: PoolChanges, memory: LearnedState) -> AfterCommit:
        check_name("pool", pool)
        return self._change(pool, lambda verbs: verbs.import_pool(pool, changes, memory))

    def recount(self) -> tuple[list[CountMismatch], AfterCommit]:
        after = AfterCommit()
        self._carry(after)
        wrong = self.miscounts()
        for pool in sorted({miscount.pool for miscount in wrong}):
            self._run_until_done("do_recount", pool, "", after)
        return wrong, after

    def set_machine(self, machine: MachineSettings) -> AfterCommit:
        refuse_machine(machine)
        after = AfterCommit()
        self._carry(after)
        return after

    def change_machine(self, changes: MachineChanges) -> AfterCommit:
        return self.set_machine(merge_machine(MachineSettings(), changes))

    def machine(self) -> MachineSettings:
        return MachineSettings()

    @property
    def channels(self) -> str:
        """What all channels of this space begin with."""
        return self._registry.channels

    def listener(self) -> RedisListener:
        """A connection of its own that listens to channels."""
        return self._server.listener()

    def close(self) -> None:
        """Close permanently. What is still to be made good is tried once more."""
        if not self._server.closed:
            with contextlib.suppress(StoreError):
                self._carry(AfterCommit())
        self._server.close()


def open_redis(
    url: str,
    *,
    chance: Callable[[], float],
    here: Callable[[], Holder],
    stands_still: Callable[[Holder], bool],
) -> RedisStore:
    """The store behind an address. ``?space=`` keeps several apart on one server."""
    address, space = split_space(url)
    server = RedisConnections(address)
    world = Environment(server.now, chance, lambda: None, here, stands_still=stands_still)
    return RedisStore(server, world, space=space or SPACE)


def channel_prefix(store: Store) -> str:
    """What the channels of its space begin with. The store may be wrapped, as in tests."""
    return cast("RedisStore", store).channels


def listener_factory(store: Store) -> Callable[[], RedisListener]:
    """Opens a connection that listens to channels. The store may be wrapped, as in tests."""
    return cast("RedisStore", store).listener
