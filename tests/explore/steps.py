"""The shipped functions over the model's tuples. They are pure, so each input is tried once, and kept."""

from __future__ import annotations

import math
from functools import cache
from typing import Any

from tests.explore.rule import Rule
from tests.explore.world import PLENTY, Answer, Hold, Request, Row, Scenario

SINCE_MAX = 4
"""Longer than a turn: how long somebody has waited is told apart no further."""


class Steps:
    def __init__(self, scenario: Scenario, rule: Rule) -> None:
        self.rule, self.scenario = rule, scenario
        self.terms = rule.terms.ShareTerms(
            heartbeat_s=scenario.ttl / 4,
            ttl_s=scenario.ttl,
            drift=max(one.drift for one in scenario.processes) / scenario.ttl,
            grace_s=scenario.grace,
        )
        self.fence = math.ceil(self.terms.fence_s)
        self._allot_rule = (
            rule.allotment.AllotRule.DEMAND if scenario.demand else rule.allotment.AllotRule.EVEN
        )
        self.turns = min(scenario.caps) < len(scenario.processes)
        self.send = cache(self._send)
        self.receive = cache(self._receive)
        self.renew = cache(self._renew)
        self.limit = cache(self._limit)
        self.fenced = cache(self._fenced)
        self.notice = cache(self._notice)
        self.leave = cache(self._leave)
        self.gone = cache(self._gone)
        self.plan = cache(self._plan)

    # --- what a holder does ---

    def _send(self, hold: Hold, in_flight: int, wants: int) -> tuple[Hold, Request]:
        after, renewal = self.rule.holding.send(self._holding(hold), now=0, in_flight=in_flight, wants=wants)
        return self._hold(after), Request(
            renewal.seq, renewal.holds, renewal.wants, int(renewal.fenced), int(renewal.leaving)
        )

    def _receive(self, hold: Hold, answer: Answer) -> Hold:
        reply = self.rule.renewal.Reply(**answer._asdict(), ttl_s=self.terms.ttl_s)
        return self._hold(self.rule.holding.receive(self._holding(hold), reply, now=0, terms=self.terms))

    def _limit(self, hold: Hold) -> int:
        return int(self.rule.holding.limit(self._holding(hold), now=0))

    def _fenced(self, hold: Hold) -> bool:
        return bool(self.rule.holding.fenced(self._holding(hold), now=0))

    def _notice(self, hold: Hold, target: int) -> Hold:
        return self._hold(self.rule.holding.notice(self._holding(hold), target=target))

    def _leave(self, hold: Hold) -> Hold:
        return self._hold(self.rule.holding.leave(self._holding(hold)))

    def _gone(self, hold: Hold, in_flight: int) -> bool:
        return bool(self.rule.holding.gone(self._holding(hold), in_flight=in_flight))

    # --- what the store does ---

    def _renew(
        self, row: Row | None, request: Request, cap: int, held: int, nodes: int, learning: int
    ) -> tuple[Row, Answer | None]:
        renewal = self.rule.renewal.Renewal(node="", incarnation="", in_flight=0, **request._asdict())
        pot = self.rule.renewal.Pot(
            cap=cap, held=held, nodes=nodes, learning_until=learning, terms=self.terms
        )
        done = self.rule.renewal.renew(self._lease(row) if row else None, renewal, pot, now=0)
        reply = done.reply
        answer = None if reply.stale else Answer(reply.seq, reply.slots, reply.gate)
        return self._row(done.lease), answer

    def _plan(self, rows: tuple[Row | None, ...], cap: int) -> tuple[Row | None, ...]:
        leases = [self._lease(row, node=str(index)) for index, row in enumerate(rows) if row]
        plan = self.rule.allotment.allot(leases, cap=cap, rule=self._allot_rule, terms=self.terms, now=0)
        targets = {lease.node: plan.targets[lease.name] for lease in leases}
        return tuple(row and row._replace(target=targets[str(index)]) for index, row in enumerate(rows))

    def learning(self) -> int:
        """How long a store learns that woke up in another life."""
        before = self.rule.renewal.Pot(cap=1, terms=self.terms)
        return int(max(0, self.rule.renewal.in_epoch(before, "another life", now=0).learning_until))

    # --- to and fro ---

    def _holding(self, hold: Hold) -> Any:
        return self.rule.holding.Holding(
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
        )

    def _hold(self, holding: Any) -> Hold:
        # The model's time is whole, so a fence between two ticks is reached at the second.
        fence = math.ceil(holding.fence_at) if holding.fence_at > 0 else 0
        return Hold(
            seq=holding.seq,
            pending=int(holding.pending),
            age=min(-holding.sent_at, self.fence) if holding.pending else 0,
            slots=holding.slots if holding.pending or holding.leaving else 0,
            gate=0 if self.rule.holding.fenced(holding, now=0) else holding.gate,
            fence=fence,
            early=int(holding.pending and holding.sent_at < holding.fence_at <= 0),
            leaving=int(holding.leaving),
            told=int(holding.told),
        )

    def _lease(self, row: Row, node: str = "") -> Any:
        return self.rule.renewal.ShareLease(
            node=node,
            incarnation="",
            seq=row.seq,
            slots=row.slots,
            owed=row.owed,
            target=row.target,
            draining=bool(row.draining),
            expires_at=row.expires,
            since=-row.since,
            wants=row.wants,
        )

    def _row(self, lease: Any) -> Row:
        return Row(
            seq=lease.seq,
            slots=lease.slots,
            owed=lease.owed,
            target=lease.target,
            draining=int(lease.draining),
            expires=max(0, int(lease.expires_at)),
            since=min(int(-lease.since), SINCE_MAX) if self.turns else 0,
            wants=lease.wants if self.scenario.demand else PLENTY,
        )
