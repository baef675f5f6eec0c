"""What an event does to the pool.

A session that flyball did not start holds a slot of its provider's pool, counted also beyond the cap. A
session under ``exec`` or in the factory has its lease already. Where the gateway counts the calls
(``FLYBALL_GATEWAY``), a session takes a slot of the machine's agents, and its subagents take none.

What the session's own record can answer is answered from it, without the state: a subagent that begins after
its call has waited, and one that rides on its session's slot.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import TYPE_CHECKING

from flyball.errors import RefusedError, WaitTimeoutError
from flyball.hooks.events import HookEvent, HookEventKind
from flyball.hooks.session import SessionFile
from flyball.hooks.subagents import SessionRecord, Subagent
from flyball.host.clock import boot_seconds
from flyball.host.process import identify
from flyball.host.state_folder import home

if TYPE_CHECKING:
    from flyball.hooks.slots import Slots


class Sensor:
    """The hooks of one agent's process, ``pid``. ``calls_counted``: the gateway counts its calls."""

    def __init__(self, runtime: str, pid: int, *, calls_counted: bool) -> None:
        self.runtime, self.calls_counted = runtime, calls_counted
        self._holder = identify(pid)
        self._file = SessionFile(home() / "hooks" / "sessions", self._holder)

    @cached_property
    def _slots(self) -> Slots:
        from flyball.hooks.slots import Slots

        return Slots(self.runtime, self._holder, calls_counted=self.calls_counted)

    def handle(self, event: HookEvent, *, wait_s: float) -> str | None:
        """Do what the event asks for. Words: the subagent is denied, and this is why."""
        match event.kind:
            case HookEventKind.SESSION_BEGINS:
                self._file.sweep()
                self._open_session(event, sure=True)
            case HookEventKind.SESSION_ENDS:
                self._close_session()
            case HookEventKind.SUBAGENT_WANTED if not self.calls_counted:
                return self._take_slot(event, wait_s)
            case HookEventKind.SUBAGENT_BEGINS if not self.calls_counted:
                self._begin(event, wait_s)
            case HookEventKind.SUBAGENT_NAMED:
                self._name(event)
            case HookEventKind.SUBAGENT_REFUSED:
                self._give_back(lambda record: record.find_refused(event.call))
            case HookEventKind.SUBAGENT_ENDS:
                self._give_back(lambda record: record.find_ended(event.agent, event.agent_kind))
            case HookEventKind.TURN_ENDS:
                self._give_back(lambda record: record.find_over(event.running, boot_seconds()))
            case HookEventKind.TURN_CHANGES:
                self._give_back(lambda record: [*record.unanswered(), *record.written_ends()])
            case HookEventKind.ALL_ENDED:
                self._give_back(lambda record: record.subagents)
        return None

    # -- the session --------------------------------------------------------------------------------------

    def _open_session(self, event: HookEvent, *, sure: bool = False) -> SessionRecord:
        """The session's record; it is counted from now on, if it was not. ``sure``: look whether it is."""

        def act(record: SessionRecord | None) -> tuple[SessionRecord, SessionRecord]:
            if record is not None and (not sure or self._slots.holds(record)):
                return record, record
            found = self._slots.session_record(event)
            if record is not None:
                found.subagents = record.subagents
            return found, found

        return self._file.change(act)

    def _close_session(self) -> None:
        self._give_back(lambda record: record.subagents)
        record = self._file.read()
        if record is not None and record.owned:
            self._slots.release(record.lease, record.asked_at)
        self._file.change(lambda _: (None, None))

    # -- subagents ----------------------------------------------------------------------------------------

    def _take_slot(self, event: HookEvent, wait_s: float) -> str | None:
        session = self._open_session(event)
        self._give_back(lambda record: [*record.unbegun(boot_seconds()), *record.written_ends()])
        riding = Subagent.from_event(event)

        def act(record: SessionRecord | None) -> tuple[SessionRecord, bool]:
            record = record or session
            rides = record.may_ride(by_session=event.by_session, foreground=event.foreground)
            if rides:
                record.add(riding)
            return record, rides

        if self._file.change(act):
            return None
        try:
            self._acquire(session, event, wait_s)
        except RefusedError as error:
            return _refusal_words(error, wait_s)
        return None

    def _begin(self, event: HookEvent, wait_s: float) -> None:
        """It begins whatever we do, so it is counted whatever the wait brings."""
        session = self._open_session(event)
        begun = Subagent.from_event(event)

        def act(record: SessionRecord | None) -> tuple[SessionRecord, Subagent | None]:
            record = record or session
            return record, record.begin(begun)

        known = self._file.change(act)
        if known is not None and known.handed_over:
            return
        if known is not None:
            # The hook that waited for its slot was killed.
            self._give_back(lambda _: [known])
        try:
            self._acquire(session, event, wait_s)
        except RefusedError:
            self._note(session, self._slots.hold(session, event))

    def _name(self, event: HookEvent) -> None:
        def act(record: SessionRecord | None) -> tuple[SessionRecord | None, None]:
            if record is not None:
                record.name_subagent(event.call, event.agent)
            return record, None

        self._file.change(act)

    def _acquire(self, session: SessionRecord, event: HookEvent, wait_s: float) -> None:
        """Wait for a slot, write down that it is there, and hand it to the agent's process."""
        subagent = self._slots.acquire(session, event, wait_s)
        self._note(session, subagent)
        self._slots.hand_over(subagent)

        def act(record: SessionRecord | None) -> tuple[SessionRecord | None, None]:
            for each in record.subagents if record is not None else ():
                each.handed_over |= each.key == subagent.key
            return record, None

        self._file.change(act)

    def _note(self, session: SessionRecord, subagent: Subagent) -> None:
        def act(record: SessionRecord | None) -> tuple[SessionRecord, None]:
            record = record or session
            record.add(subagent)
            return record, None

        self._file.change(act)

    def _give_back(self, choose: Callable[[SessionRecord], Sequence[Subagent]]) -> None:
        """End the slots of some of the session's subagents, if there is a session."""
        record = self._file.read()
        gone = choose(record) if record is not None else ()
        for subagent in gone:
            if not subagent.rides:
                self._slots.release(subagent.lease, subagent.asked_at)

        def act(record: SessionRecord | None) -> tuple[SessionRecord | None, None]:
            if record is not None:
                record.strike_out(gone)
            return record, None

        if gone:
            self._file.change(act)


def _refusal_words(error: RefusedError, wait_s: float) -> str:
    """What the model is told: what happened, and that it did nothing wrong."""
    from dataclasses import replace

    from flyball.core.pool.verdict import span_words

    waited = f"No slot came free within {span_words(wait_s)}"
    if isinstance(error, WaitTimeoutError) and error.waited_s == 0.0:
        waited = f"No slot is expected within {span_words(wait_s)}"
    why = replace(error.verdict, estimate_s=None).words()
    full = error.verdict.in_use >= error.verdict.cap
    what = "every slot of the limit is in use" if full else "nothing of its kind starts now"
    return f"flyball holds this subagent back: {what}. {waited} ({why})."
