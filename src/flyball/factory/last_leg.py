"""The last leg of a trip: finished work is looked at, and lands.

    check: its stages, its review -> land: as a person said, or as the policy does
                                       merge   into the default branch, behind the gate
                                       pr      pushed, and opened as a pull request
                                       manual  it waits for a person

Where reviews are on, work lands by itself only as it was when it passed. What a person says to land, lands
whatever a review said, and comes back to them whatever comes of it.
"""

from __future__ import annotations

from collections.abc import Awaitable
from dataclasses import dataclass, field, replace
from pathlib import Path

from flyball.core.labels import MANUAL
from flyball.core.recovery import NO_RETRIES, Move, Next, after_landing, pull_words
from flyball.core.slotrun import Mark, SlotRun, Step
from flyball.core.task import Task
from flyball.errors import GitError
from flyball.factory import runs
from flyball.factory.checking import Checking
from flyball.factory.errand import Cut, Errands
from flyball.factory.landed import Landed, Result
from flyball.factory.review import Reviewing, still_reviewed
from flyball.factory.threads import off_loop
from flyball.factory.waits import Waits
from flyball.factory.workshop import Workshop


@dataclass(slots=True, kw_only=True)
class LastLeg:
    shop: Workshop
    task: Task
    errands: Errands
    waits: Waits
    how: str = ""
    """What a person said to do with it, whatever the policy: ``merge``; ``pr``, open a pull request;
    ``approved`` or ``unapproved``, land the one that is open, if people approved it or not; ``review`` it."""
    notes: list[str] = field(default_factory=list)
    result: str | None = None
    """What its landing came to."""

    @property
    def slot(self) -> SlotRun:
        return self.shop.ledger.slots[self.task.id]

    @property
    def by_hand(self) -> bool:
        return bool(self.how)

    async def check(self) -> Next:
        """Its stages and its review."""
        checking = Checking(shop=self.shop, task=self.task, errands=self.errands)
        try:
            return await checking.check()
        finally:
            self.waits.give_place_back()
            self.notes += checking.notes

    async def land(self) -> Next:
        if self.how == "review":
            return await self._review_pull()
        on = self.shop.config.review.on and not self.by_hand
        if on and (why := await off_loop(still_reviewed, self.shop, self.slot)):
            return Next(move=Move.PARK, why=why)
        policy = self.shop.policy_for(self.task)
        if policy.name == MANUAL and not self.by_hand:
            doubt = f"the label {policy.unknown} names no policy, so " if policy.unknown else ""
            why = f"{doubt}finished work waits for you: flyball merge {self.task.id}"
            return Next(move=Move.PARK, why=why)
        self.waits.say("")
        return await self._landed(self._landing())

    async def land_on(self) -> Next:
        """A landing that was cut short. Who began it without a review was told to by a person."""
        landing, slot = self.shop.landing, self.slot
        bound = slot.passed and not self.by_hand and not await off_loop(landing.has_advanced, slot)
        if bound and (why := await off_loop(still_reviewed, self.shop, slot)):
            await landing.gate.end_leftover(slot)
            return Next(move=Move.PARK, why=why)
        return await self._landed(landing.go_on(self.task, slot, self._landing))

    def _landing(self) -> Awaitable[Landed]:
        """As a person said, or the policy does."""
        task, folder, pulls, say = self.task, self._folder(), self.shop.pulls, self.waits.say
        how = self.how or self.shop.policy_for(task).name
        if how == "pr":
            return pulls.open(task, folder, say)
        if how in ("approved", "unapproved"):
            return pulls.land(task, folder, say, unapproved=how == "unapproved")
        return self.shop.landing.land(task, folder, say, by_hand=self.by_hand)

    async def _landed(self, landing: Awaitable[Landed]) -> Next:
        landed = await landing
        self.notes += landed.notes
        self.result = landed.result.value
        # Whoever lands by hand looks at what came of it; no agent is set to work behind their back.
        budgets = NO_RETRIES if self.by_hand else self.shop.budgets_for(self.task)
        return after_landing(
            self.slot,
            budgets,
            result=landed.result.value,
            why=landed.commit[:12] if landed.result is Result.MERGED else landed.why,
            detail=landed.detail,
            waits=landed.waits,
        )

    async def _review_pull(self) -> Next:
        """A person wants to know what a reviewer says; its pull request stays open whatever that is."""
        self.result = Result.PR_OPENED.value
        self.shop.ledger.note(self.task.id, Step.REVIEW, Mark.BEGUN)
        try:
            head = await off_loop(self.shop.pulls.head_of, self.task.id)
            reviewing = Reviewing(shop=self.shop, task=self.task, errands=self.errands)
            found = await reviewing.of_pull(head)
        except Cut as cut:
            if cut.step.move is Move.LEAVE:
                return cut.step
            return replace(self._open_still(cut.step.why), pause=cut.step.pause)
        except GitError as error:
            return self._open_still(str(error))
        finally:
            self.waits.give_place_back()
        return self._open_still(f"unreviewed: {found}" if isinstance(found, str) else found.why())

    def _open_still(self, why: str) -> Next:
        return Next(move=Move.PARK, why=f"{pull_words(self.slot)}; {why}")

    def _folder(self) -> Path:
        known = self.slot.folder
        return Path(known) if known else runs.new_folder(self.shop.state, self.task.id)
