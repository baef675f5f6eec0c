"""Between a run and its purse: what agents cost goes in, what may start comes out, with its words.

A task that cannot be paid for now is no task without room: it is told apart, because the run must neither
end over it nor start it. Others that can be paid for go first meanwhile.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from flyball.core.budget.limits import Refusal
from flyball.core.tasks.model_routing import Route
from flyball.core.tasks.readiness import Deferral, DeferReason
from flyball.core.tasks.scheduler import Selection
from flyball.core.tasks.task import Task
from flyball.errors import UsageError
from flyball.factory.budget.guard import BudgetGuard
from flyball.factory.project.registry import ProjectRegistry
from flyball.factory.run.context import RunContext
from flyball.factory.state.threads import off_loop
from flyball.governor.state_url import home

_ROUNDS = 8
"""So often others are looked for in the place of those that cannot be paid for."""


class BudgetStop:
    def __init__(self, shop: RunContext) -> None:
        self._shop = shop
        self.short: Refusal | None = None
        """Why something that is ready was not started: it could not be paid for."""

    async def look(self) -> None:
        """Narrow the run to what the money allows."""
        purse, places = self._shop.purse, self._shop.places
        await purse.look()
        allowed = purse.width(places.width)
        places.narrow(allowed if allowed < places.width else None)

    def beyond(self, patience_s: float) -> bool:
        """Is the reset that everything waits for further away than that?"""
        until = max((each.until or 0.0 for each in (self.short, self._shop.purse.hold) if each), default=0.0)
        return until - time.time() > patience_s

    async def open(self) -> str:
        """Before anything is started: look, and leave a trace of what was allowed; says it loudly."""
        await self.look()
        key = self._shop.purse.api_key
        if key.allowed:
            await off_loop(
                ProjectRegistry(home()).audit,
                "api spend allowed",
                account=self._shop.purse.payer.name,
                project=self._shop.project,
                run=self._shop.ledger.run,
            )
        return key.words

    def choose(self, choose: Callable[[int, Mapping[str, str]], Selection], room: int) -> Selection:
        """The choice among those that can be paid for."""
        choice, self.short = paid_choice(choose, room, self._shop.purse, self._shop.route_for)
        return choice


def paid_choice(
    choose: Callable[[int, Mapping[str, str]], Selection],
    room: int,
    purse: BudgetGuard,
    route_for: Callable[[Task], Route],
) -> tuple[Selection, Refusal | None]:
    """The choice among those that can be paid for; why something that is ready is not, if so."""
    hold = purse.hold if room else None
    if hold is not None:
        choice = _without_room(choose(0, {}), hold)
        held = any(each.reason is DeferReason.BUDGET for each in choice.deferrals)
        return choice, hold if held else None
    unpaid: dict[str, str] = {}
    short: Refusal | None = None
    for _ in range(_ROUNDS):
        choice = choose(room, unpaid)
        refused = _refused([item.task for item in choice.items], purse, route_for)
        if not refused:
            break
        short = next(iter(refused.values()))
        unpaid |= {task: why.words for task, why in refused.items()}
    kept = tuple(item for item in choice.items if item.task.id not in unpaid)
    return _told_apart(replace(choice, items=kept), unpaid), short


def _refused(
    tasks: Sequence[Task], purse: BudgetGuard, route_for: Callable[[Task], Route]
) -> dict[str, Refusal]:
    """Those that do not fit beside the ones before them."""
    beside_usd, refused = 0.0, {}
    for task in tasks if purse.enforces else ():
        try:
            model = route_for(task).model
        except UsageError:
            # Its trip says what is wrong with it.
            continue
        why = purse.refusal(task.id, task.type, model, beside_usd=beside_usd)
        if why is None:
            beside_usd += purse.estimate(task.type, model).cost_usd.p50
        else:
            refused[task.id] = why
    return refused


def _without_room(choice: Selection, hold: Refusal) -> Selection:
    budget = DeferReason.BUDGET
    deferrals = (
        each._replace(reason=budget, words=hold.words) if each.reason is DeferReason.ROOM else each
        for each in choice.deferrals
    )
    return replace(choice, deferrals=tuple(deferrals))


def _told_apart(choice: Selection, unpaid: Mapping[str, str]) -> Selection:
    if not unpaid:
        return choice
    return replace(choice, deferrals=tuple(_worded(each, unpaid) for each in choice.deferrals))


def _worded(deferral: Deferral, unpaid: Mapping[str, str]) -> Deferral:
    held = deferral.reason is DeferReason.HELD and deferral.task_id in unpaid
    return deferral._replace(reason=DeferReason.BUDGET) if held else deferral
