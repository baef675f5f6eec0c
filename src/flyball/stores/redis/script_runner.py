"""Runs the script of an operation, gives it a plan or an answer where it asks for one, and reads what it did.

Releases that could not be written, and grants whose answer was lost, are made good before anything new.

What a script cannot decide goes through ``core/pool/plan`` here, the slow tempo of a pool on a server.

A script that meets a stale plan, or puts something into the pool's inbox, returns what a plan is made from.
``make_plan`` folds it and says what changed; the script is run again with that, and swaps it in if the plan's
version has not moved. The caller that loses goes on with the winner's plan, which has folded the whole
inbox. So nothing is lost, and no lock is held.

Meters that grants move meanwhile stay as they are unless the plan itself changed them, and then what was
added meanwhile stays added.
"""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from itertools import count
from typing import Any

from flyball.core.pool.holder import Holder
from flyball.core.pool.model import Claim, Fact, Outcome
from flyball.core.signals import Signal, SignalKind
from flyball.errors import StoreBusyError, invariant
from flyball.stores.handoff import end_trial
from flyball.stores.pool_session import Environment, PoolSession
from flyball.stores.port import AfterCommit, Release, WakeUp
from flyball.stores.redis import records
from flyball.stores.redis.connection import RedisConnections
from flyball.stores.redis.id_blocks import SPACE, IdBlocks
from flyball.stores.redis.pool_image import ImageChanges, PoolImage, PoolState
from flyball.stores.redis.scripts import ID_BLOCK, script


def make_plan(state: PoolState, world: Environment) -> ImageChanges:
    """A fresh plan, with everything in the inbox folded in."""
    image = PoolImage(state.now)
    image.load(state)
    fold_inbox(image, state, world)
    return image.changes()


def fold_inbox(image: PoolImage, state: PoolState, world: Environment) -> None:
    """Fold what the inbox holds, and divide the budget where that was asked for."""
    # Opening a session makes a pool that is new, and plans anew where time has passed.
    session = PoolSession(image, state.pool, world)
    for event in state.events:
        kind, _, rest = event.partition("\t")
        _FOLD_EVENT[kind](session, rest)
    if state.divide:
        from flyball.stores import shares

        shares.divide(session)
    image.notices += session.finish().notices


def _fold_arrival(session: PoolSession, project: str) -> None:
    session.refresh(arriving=project)


def _fold_refresh(session: PoolSession, _: str) -> None:
    session.refresh()


def _fold_signal(session: PoolSession, rest: str) -> None:
    import msgspec

    event, _, line = rest.partition("\t")
    signal, project, name, claim_id = msgspec.json.decode(event, type=tuple[Signal, str, str, int | None])
    claim = records.parse_claim(session.row.name, claim_id, line) if line and claim_id is not None else None
    session.fold(signal, project=project, name=name, claim_id=claim_id, claim=claim)


def _fold_throttled(session: PoolSession, rest: str) -> None:
    claim_id, _, line = rest.partition("\t")
    claim: Claim = records.parse_claim(session.row.name, int(claim_id), line)
    signal = Signal(SignalKind.THROTTLED, detail="released as throttled")
    session.fold(signal, project=claim.project, name=claim.name, claim_id=claim.id, claim=claim)


def _fold_refused(session: PoolSession, rest: str) -> None:
    from flyball.stores import shares

    kind, times, age_s, node = rest.split("\t")
    shares.fold_refusals(session, SignalKind(kind), int(times), node=node, age_s=records.parse_float(age_s))


def _fold_trial_end(session: PoolSession, outcome: str) -> None:
    end_trial(session, Outcome(outcome))


_FOLD_EVENT: dict[str, Callable[[PoolSession, str], None]] = {
    "arrived": _fold_arrival,
    "left": _fold_refresh,
    "refresh": _fold_refresh,
    "refused": _fold_refused,
    "signal": _fold_signal,
    "throttled": _fold_throttled,
    "trial ended": _fold_trial_end,
}


def signal_event(signal: Signal, *, project: str, name: str, claim_id: int | None) -> str:
    """A signal as the inbox keeps it: one field."""
    import msgspec

    return msgspec.json.encode([signal, project, name, claim_id]).decode()


def payload(changes: ImageChanges) -> str:
    """What the script swaps in."""
    invariant(changes.pool or changes.divided, "a plan changes at least its version")
    return json.dumps(
        {
            "version": changes.version,
            "planned": changes.planned,
            "divided": changes.divided,
            "heard": changes.heard,
            "pool": dict(changes.pool),
            "read": dict(changes.read),
            "projects": dict(changes.projects),
            "facts": [records.fact_line(fact) for fact in changes.facts],
            "targets": [part for name, target in changes.targets.items() for part in (name, str(target))],
            "short": [part for name in changes.short for part in ("0", name)],
            "served": changes.served,
            "gone": changes.gone,
            "notices": [records.escape(mailbox) for mailbox in changes.notices],
        },
        ensure_ascii=False,
    )


def with_next_id(changes: ImageChanges, next_id: int) -> ImageChanges:
    """The changes that make a pool, with the ids it may use."""
    return replace(changes, pool={**changes.pool, "next_id": str(next_id)})


def block_payload(next_id: int) -> str:
    return json.dumps({"block": str(next_id)})


PATIENCE = 64
"""So often a script may ask for a plan; another process made one each time, and that ends soon."""


@dataclass(frozen=True, slots=True)
class LostAsk:
    """An ask that was sent and never answered: it may have become a claim that no process knows of."""

    pool: str
    tag: str
    until: float
    """On our monotonic clock; afterwards the server no longer takes it."""


class RedisSteps:
    """What every verb needs: scripts, plans, and what is left to make good."""

    def __init__(
        self,
        server: RedisConnections,
        world: Environment,
        *,
        server_time: bool = True,
        id_block: int = ID_BLOCK,
        space: str = SPACE,
    ) -> None:
        self._server, self._world, self._server_time = server, world, server_time
        self._script = partial(script, id_block=id_block)
        self._registry = IdBlocks(server, lambda: self._script("register"), id_block=id_block, space=space)
        server.space, server.on_open = space, self._registry.check
        self._unwritten: list[Release] = []
        self._lost_asks: list[LostAsk] = []
        self._kept_lock = threading.Lock()
        self._chance = ""
        """The next one, until a script says that it was used."""
        self._here: Holder | None = None
        self._here_line = ""
        self._tag = _Tags()

    def now(self) -> float:
        return self._server.now() if self._server_time else self._world.clock()

    # -- scripts --------------------------------------------------------------------------------------

    def _context(self) -> str:
        """When, how long we wait for it, a chance, which life it is, who and where we are.

        Time and life are the server's own to say, but for tests.
        """
        self._registry.look_for_a_newer_layout()
        if not self._chance:
            self._chance = repr(self._world.chance())
        here = self._world.here()
        if here is not self._here:
            self._here, self._here_line = here, f"{here.pid}\t{records.here_line(here)}"
        if self._server_time:
            return f"\t{self._server.deadline():.6f}\t{self._chance}\t\t{self._here_line}"
        return f"{self._world.clock()!r}\t\t{self._chance}\t{self._world.epoch()}\t{self._here_line}"

    def _run(self, name: str, pool: str, *arguments: str) -> Any:
        return self._server.run(self._script(name), self._registry.pool_key(pool), *arguments)

    def _run_once(self, name: str, pool: str, argument: str) -> Any:
        """Run a script that has a clock and needs no plan; its text, or the values of its reply by name."""
        while True:
            reply = self._run(name, pool, self._context(), argument)
            if isinstance(reply, str):
                return reply
            found = records.pairs(reply)
            if found["kind"] != "late":
                return found
            self._server.note_time(float(found["now"]))

    def _run_until_done(
        self,
        name: str,
        pool: str,
        argument: str,
        after: AfterCommit,
        *,
        swap: ImageChanges | None = None,
        patience: int = PATIENCE,
    ) -> str:
        """Run a verb's script to its end; the first line of what it says.

        It is given a plan where it asks for one, and told which waiters of this host are stopped.

        ``swap``: changes it begins with. Empty where ``patience`` ends: another process was always faster.
        """
        runs, key, head = self._script(name), self._registry.pool_key(pool), ""
        resume: tuple[str, ...] = ()
        facts: tuple[Fact, ...] = ()
        stopped = ""
        if swap is not None:
            resume, facts = ("", self._payload(pool, swap), stopped), swap.facts
        rounds = 0
        while rounds < patience:
            reply = self._server.run(runs, key, self._context(), argument, *resume)
            rounds += 1
            if isinstance(reply, str):
                first, _, lines = reply.partition("\n")
                self._collect_effects(pool, lines, after, facts)
                return head or first
            found = records.pairs(reply)
            self._collect_effects(pool, found.get("effects", ""), after, facts)
            head = head or found.get("head", "")
            match found["kind"]:
                case "late":
                    # We still wait for it, so it is not late: the server's clock was set.
                    self._server.note_time(float(found["now"]))
                case "block":
                    block = block_payload(self._registry.take_block(pool))
                    resume = (resume[0] if resume else "", block, stopped)
                case "stopped":
                    stopped += self._stopped_answers(found["questions"])
                    resume = (found["resume"], "", stopped)
                    # No other process was faster: it goes on with what it did not know before.
                    rounds -= 1
                case _:
                    changes = make_plan(parse_state(pool, found), self._world)
                    resume, facts = (found["resume"], self._payload(pool, changes), stopped), changes.facts
        if patience < PATIENCE:
            return head
        raise StoreBusyError(f"pool {pool!r} is planned anew all the time; try again")

    def _stopped_answers(self, questions: list[str]) -> str:
        """Which of these waiters could not use a slot. A script cannot see the processes of a host."""
        answers = ""
        for question in questions:
            claim_id, *holder = question.split("\t")
            answers += f"{claim_id}:{int(self._world.stands_still(records.parse_holder(holder)))},"
        return answers

    def _payload(self, pool: str, changes: ImageChanges) -> str:
        if changes.version:
            return payload(changes)
        # A pool that is new gets ids only now: what fails on the way leaves no trace.
        return payload(with_next_id(changes, self._registry.take_block(pool)))

    def _collect_effects(self, pool: str, lines: str, after: AfterCommit, planned: tuple[Fact, ...]) -> None:
        for line in lines.split("\n") if lines else ():
            kind, *rest = line.split("\t")
            if kind == "w":
                holder = records.parse_holder(rest[2:7])
                told = WakeUp(records.unescape(rest[0]), int(rest[1]), holder, granted=rest[7] == "1")
                after.wakes.append(told)
            elif kind == "f":
                after.facts.append(records.parse_fact(pool, rest))
            elif kind == "n":
                after.notices.append(records.unescape(rest[0]))
            elif kind == "i":
                after.facts.extend(planned)
            else:
                invariant(kind == "c", f"a script says {kind!r}")
                self._chance = ""

    # -- what could not be done before ------------------------------------------------------------------

    def remember(self, release: Release) -> None:
        with self._kept_lock:
            self._unwritten.append(release)

    def _carry(self, after: AfterCommit) -> None:
        """Make good what failed before. It stays kept if it fails again."""
        if not self._unwritten and not self._lost_asks:
            return
        with self._kept_lock:
            releases, lost = list(self._unwritten), list(self._lost_asks)
        for release in releases:
            self._end(release, after)
            with self._kept_lock:
                if release in self._unwritten:
                    self._unwritten.remove(release)
        for pool in {ask.pool for ask in lost}:
            self._withdraw_lost_asks(pool, [ask for ask in lost if ask.pool == pool], after)

    def _withdraw_lost_asks(self, pool: str, lost: list[LostAsk], after: AfterCommit) -> None:
        """Give back what became of asks that were never answered."""
        # Looked for after its time it cannot come any more; before, it may still.
        over = {ask for ask in lost if time.monotonic() > ask.until}
        for claim_id, tag in records.pairs(
            self._run("read_tagged", pool, *(ask.tag for ask in lost))
        ).items():
            self._end(Release(int(claim_id), Outcome.ABANDONED), after)
            over |= {ask for ask in lost if ask.tag == tag}
        with self._kept_lock:
            self._lost_asks = [ask for ask in self._lost_asks if ask not in over]

    def _end(self, release: Release, after: AfterCommit) -> None:
        pool = self._registry.find_pool(release.claim_id)
        if pool is None:
            return
        argument = "\t".join(
            (
                str(release.claim_id),
                release.outcome.value,
                records.dump_number(release.oks),
                "1" if release.rejected else "",
                records.amounts_line(release.used),
                records.buckets_line(release.buckets),
                records.dump_number(release.asked_at),
                records.escape(release.words),
            )
        )
        self._run_until_done("do_end", pool, argument, after)

    # -- forking ----------------------------------------------------------------------------------------

    def _before_fork(self) -> None:
        self._kept_lock.acquire()

    def _after_fork_in_parent(self) -> None:
        self._kept_lock.release()

    def _after_fork_in_child(self) -> None:
        """The sockets are the parent's, and so is what it has to make good."""
        self._kept_lock = threading.Lock()
        self._unwritten, self._lost_asks = [], []
        self._tag = _Tags()
        self._server.after_fork_in_child()


class _Tags:
    """Names for asks that no other process will ever use."""

    def __init__(self) -> None:
        self._begin, self._numbers = os.urandom(6).hex(), count()

    def __call__(self) -> str:
        return f"{self._begin}{next(self._numbers):x}"


def parse_state(pool: str, reply: Mapping[str, Any]) -> PoolState:
    """From a reply of the kind ``plan``, which may leave things out, or ``pool``, which has everything."""
    fields, projects = records.split_uses(records.pairs(reply["pool"]))
    shares_known = reply["kind"] == "pool" or reply["epoch"]
    claims = records.pairs(reply.get("claims", ()))
    return PoolState(
        pool=pool,
        now=float(reply["now"]),
        fields=fields,
        events=reply["inbox"],
        projects=projects,
        demands=records.pairs(reply["demands"]),
        claims={int(claim_id): line for claim_id, line in claims.items()},
        trial_live=bool(reply.get("trial_live")),
        hosts=records.pairs(reply.get("hosts", ())),
        shares=records.parse_shares(reply["shares"], reply["targets"]) if shares_known else None,
        epoch=reply["epoch"],
        divide=bool(reply.get("divide")),
    )
