"""The shipped functions over the model's tuples. They are pure, so each input is tried once, and kept."""

from __future__ import annotations

import math
from functools import cache
from typing import Any

from tests.explore.rule import Rule
from tests.explore.world import PLENTY, Answer, Books, Hold, Request, Row, Scenario


class Steps:
    def __init__(self, scenario: Scenario, rule: Rule) -> None:
        self.rule, self.scenario = rule, scenario
        self.terms = {ttl: self._terms(ttl) for ttl in scenario.ttls}
        self.fence = max(math.ceil(terms.fence_s) for terms in self.terms.values())
        # The timer of a fence may fire a quarter beat late. No tick comes between, unless the margin is gone.
        self.late = max(_ticks(one.fence_s, one.heartbeat_s / 4) for one in self.terms.values())
        self._allot_rule = (
            rule.allotment.AllotRule.DEMAND if scenario.demand else rule.allotment.AllotRule.EVEN
        )
        self.turns = min(scenario.caps) < len(scenario.processes)
        self.turn = max(math.ceil(terms.turn_s) for terms in self.terms.values())
        self._nodes = [one.node or str(index) for index, one in enumerate(scenario.processes)]
        self.send = cache(self._send)
        self.receive = cache(self._receive)
        self.renew = cache(self._renew)
        self.limit = cache(self._limit)
        self.fenced = cache(self._fenced)
        self.notice = cache(self._notice)
        self.leave = cache(self._leave)
        self.gone = cache(self._gone)
        self.missed = cache(self._missed)
        self.due = cache(self._due)
        self.expired = cache(self._expired)
        self.plan = cache(self._plan)

    def _terms(self, ttl: int) -> Any:
        return self.rule.timing.ShareTiming(
            heartbeat_s=ttl / 4,
            ttl_s=ttl,
            drift=max(one.drift for one in self.scenario.processes) / ttl,
            grace_s=self.scenario.grace,
        )

    # --- what a holder does ---

    def _send(self, hold: Hold, in_flight: int, wants: int) -> tuple[Hold, Request]:
        after, renewal = self.rule.holder.send(self._holding(hold), now=0, in_flight=in_flight, wants=wants)
        return self.hold(after), Request(
            renewal.seq, renewal.holds, renewal.wants, renewal.beyond, int(renewal.leaving)
        )

    def _receive(self, hold: Hold, answer: Answer) -> Hold:
        reply = self.rule.renewal.Reply(
            seq=answer.seq, slots=answer.slots, gate=answer.gate, ttl_s=answer.ttl
        )
        terms = self.terms[answer.ttl]
        return self.hold(self.rule.holder.receive(self._holding(hold), reply, now=0, terms=terms))

    def _limit(self, hold: Hold) -> int:
        local, outage = self.scenario.local, self.rule.holder.OnOutage
        on_outage = outage.LOCAL if local else outage.REFUSE
        return int(self.rule.holder.limit(self._holding(hold), now=0, on_outage=on_outage, local=local))

    def _fenced(self, hold: Hold) -> bool:
        return bool(self.rule.holder.is_fenced(self._holding(hold), now=0))

    def _notice(self, hold: Hold, target: int) -> Hold:
        return self.hold(self.rule.holder.notice(self._holding(hold), target=target))

    def _leave(self, hold: Hold) -> Hold:
        return self.hold(self.rule.holder.leave(self._holding(hold)))

    def _gone(self, hold: Hold, in_flight: int) -> bool:
        return bool(self.rule.holder.has_left(self._holding(hold), in_flight=in_flight))

    def _missed(self, hold: Hold) -> Hold:
        return self.hold(self.rule.holder.on_missed(self._holding(hold), seq=hold.seq, now=0))

    def _due(self, hold: Hold, in_flight: int, wants: int, ttl: int) -> float:
        """Ticks until the next renewal."""
        holding, terms = self._holding(hold), self.terms[ttl]
        return float(
            self.rule.holder.next_renewal(holding, in_flight=in_flight, wants=wants, terms=terms, now=0).at
        )

    # --- what the store does ---

    def homes(self) -> tuple[int, ...]:
        """For each process the first one whose lease it would renew: itself, if leases have names enough."""
        name = self.rule.renewal.lease_name
        names = [name(node, str(index)) for index, node in enumerate(self._nodes)]
        return tuple(names.index(one) for one in names)

    def _expired(self, row: Row) -> bool:
        return bool(self.rule.renewal.is_expired(self._lease(row), now=0))

    def _renew(self, row: Row | None, request: Request, books: Books) -> tuple[Row, Answer | None]:
        renewal = self.rule.renewal.Renewal(node="", incarnation="", in_flight=0, **request._asdict())
        pot = self.rule.renewal.ShareBudget(
            cap=books.cap,
            held=books.held,
            nodes=books.nodes,
            learning_until=books.learning,
            terms=self.terms[books.ttl],
        )
        done = self.rule.renewal.renew(self._lease(row) if row else None, renewal, pot, now=0)
        reply = done.reply
        answer = None if reply.stale else Answer(reply.seq, reply.slots, reply.gate, books.ttl)
        return self.row(done.lease), answer

    def _plan(self, rows: tuple[Row | None, ...], cap: int, ttl: int) -> tuple[Row | None, ...]:
        leases = {index: self._lease(row, index) for index, row in enumerate(rows) if row}
        allot, rule = self.rule.allotment.allot, self._allot_rule
        targets = allot(list(leases.values()), cap=cap, rule=rule, terms=self.terms[ttl], now=0).targets
        return tuple(
            row and row._replace(target=targets[leases[index].name]) for index, row in enumerate(rows)
        )

    def learning(self, ttl: int) -> int:
        """How long a store learns that woke up in another life."""
        before = self.rule.renewal.ShareBudget(cap=1, terms=self.terms[ttl])
        return int(max(0, self.rule.renewal.enter_epoch(before, "another life", now=0).learning_until))

    # --- to and fro ---

    def _holding(self, hold: Hold) -> Any:
        return self.rule.holder.HolderState(
            node="",
            incarnation="",
            seq=hold.seq,
            pending=bool(hold.pending),
            sent_at=-hold.age,
            slots=hold.slots,
            gate=hold.gate,
            fence_at=hold.fence or (0 if hold.early else float("-inf")),
            leaving=bool(hold.leaving),
            told=bool(hold.told),
            misses=hold.failed,
        )

    def hold(self, holding: Any) -> Hold:
        # The model's time is whole, so a fence between two ticks is reached at the second.
        fence = math.ceil(holding.fence_at) if holding.fence_at > 0 else 0
        return Hold(
            seq=holding.seq,
            pending=int(holding.pending),
            age=min(-holding.sent_at, self.fence) if holding.pending else 0,
            slots=holding.slots if holding.pending or holding.leaving else 0,
            gate=0 if self.rule.holder.is_fenced(holding, now=0) else holding.gate,
            fence=fence,
            early=int(holding.pending and holding.sent_at < holding.fence_at <= 0),
            leaving=int(holding.leaving),
            told=int(holding.told),
            failed=int(holding.leaving and not holding.pending and holding.misses > 0),
        )

    def _lease(self, row: Row, index: int = 0) -> Any:
        return self.rule.renewal.ShareLease(
            node=self._nodes[index],
            incarnation=str(index),
            seq=row.seq,
            slots=row.slots,
            owed=row.owed,
            target=row.target,
            draining=bool(row.draining),
            expires_at=row.expires,
            since=-row.since,
            wants=row.wants,
        )

    def row(self, lease: Any) -> Row:
        return Row(
            seq=lease.seq,
            slots=lease.slots,
            owed=lease.owed,
            target=lease.target,
            draining=int(lease.draining),
            expires=max(0, int(lease.expires_at)),
            since=int(-lease.since) if self.turns else 0,
            wants=lease.wants if self.scenario.demand else PLENTY,
        )


def _ticks(begin: float, lasts: float) -> int:
    """The ticks that come in between."""
    return math.ceil(begin + lasts) - math.ceil(begin)
