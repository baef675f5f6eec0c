"""What the budget allows a run: how wide it may be, and which choice of tasks can be paid for."""

from __future__ import annotations

import time

from flyball.core.budget.limits import Refusal
from flyball.core.tasks.scheduler import Selection
from flyball.factory.project.registry import ProjectRegistry
from flyball.factory.run.choice import Chooser
from flyball.factory.run.context import RunContext
from flyball.factory.state.blocking_calls import run_in_thread
from flyball.governor.state_url import home


class BudgetStop:
    def __init__(self, context: RunContext) -> None:
        self._policy, self._project = context.policy, context.project
        self._budget, self._places = context.budget, context.places
        self.short: Refusal | None = None
        """Why something that is ready was not started: it could not be paid for."""

    async def look(self) -> None:
        """Narrow the run to what the money allows."""
        places = self._places
        await self._budget.refresh()
        allowed = self._budget.width(places.width)
        places.narrow(allowed if allowed < places.width else None)

    def beyond(self, patience_s: float) -> bool:
        """Is the reset that everything waits for further away than that?"""
        until = max((each.until or 0.0 for each in (self.short, self._budget.hold) if each), default=0.0)
        return until - time.time() > patience_s

    async def open(self) -> str:
        """Before anything is started: look, and leave a trace of what was allowed; says it loudly."""
        await self.look()
        key = self._budget.api_key
        if key.allowed:
            await run_in_thread(
                ProjectRegistry(home()).audit,
                "api spend allowed",
                account=self._budget.payer.name,
                project=self._project.id,
                run=self._project.ledger.run,
            )
        return key.words

    def choose(self, chooser: Chooser, room: int) -> Selection:
        """The choice among those that can be paid for."""
        choice, self.short = chooser.choose_paid(room, self._budget, self._policy)
        return choice
