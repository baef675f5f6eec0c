"""What an event does to the pool.

A session that flyball did not start holds a slot of its provider's pool, counted also beyond the cap, and
without evidence for a higher one: what its provider answers is not seen. A session under ``exec`` or in the
factory has its lease already. Where the gateway counts the calls (``FLYBALL_GATEWAY``), a session takes a
slot of the machine's agents, and its subagents take none.

The process of a hook waits in line under its own life, and hands what it got to the agent's process: what a
hook that was killed had asked for is dropped, and what an agent that died had is taken back.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from flyball.core.pool.model import Claim, Outcome
from flyball.core.pool.subagent_name import subagent_name
from flyball.core.pool.verdict import Verdict, span_words
from flyball.errors import RefusedError, WaitTimeoutError
from flyball.governor import inherited_lease
from flyball.governor.ask import AskRequest, default_project
from flyball.governor.governor import Governor
from flyball.governor.internals import internals
from flyball.governor.state_url import home, on_server
from flyball.hooks.events import HookEvent, HookEventKind
from flyball.hooks.session import SessionFile
from flyball.hooks.subagents import SessionRecord, Subagent
from flyball.host.clock import boot_seconds
from flyball.host.process import identify
from flyball.runtimes.registry import pool_of
from flyball.stores.port import Release


class Sensor:
    """The hooks of one agent's process, ``pid``. ``calls_counted``: the gateway counts its calls."""

    def __init__(self, runtime: str, pid: int, *, calls_counted: bool) -> None:
        self.runtime, self.pid, self.calls_counted = runtime, pid, calls_counted
        self.governor = Governor()
        self._outer = inherited_lease.inherited_ids(self.governor.address)
        # Or what is asked for here would be the session's own slot over again.
        os.environ.pop(inherited_lease.VARIABLE, None)
        self._holder = identify(pid)
        self._file = SessionFile(home() / "hooks" / "sessions", self._holder)

    def handle(self, event: HookEvent, *, wait_s: float) -> str | None:
        """Do what the event asks for. Words: the subagent is denied, and this is why."""
        match event.kind:
            case HookEventKind.SESSION_BEGINS:
                self._file.sweep()
                self._open_session(event)
            case HookEventKind.SESSION_ENDS:
                self._close_session()
            case HookEventKind.SUBAGENT_WANTED if not self.calls_counted:
                return self._take_slot(event, wait_s)
            case HookEventKind.SUBAGENT_BEGINS if not self.calls_counted:
                self._begin(event, wait_s)
            case HookEventKind.SUBAGENT_REFUSED:
                self._give_back(self._change(lambda record: record.refuse(event.call)))
            case HookEventKind.SUBAGENT_ENDS:
                self._give_back(self._change(lambda record: record.end(event.agent)))
        return None

    def _change(self, act: Callable[[SessionRecord], Subagent | None]) -> Subagent | None:
        """One step on the record, if there is one."""
        return self._file.change(lambda record: (record, act(record) if record is not None else None))

    # -- the session --------------------------------------------------------------------------------------

    def _open_session(self, event: HookEvent) -> SessionRecord:
        """The session's record; it is counted from now on, if it was not."""

        def act(record: SessionRecord | None) -> tuple[SessionRecord, SessionRecord]:
            if record is not None and self._still_holds(record):
                return record, record
            found = self._record_of_outer_lease() or self._count_session(event)
            if record is not None:
                found.subagents = record.subagents
            return found, found

        return self._file.change(act)

    def _still_holds(self, record: SessionRecord) -> bool:
        claim = internals(self.governor).store.claim(record.lease)
        return claim is not None and claim.held and claim.asked_at == record.asked_at

    def _record_of_outer_lease(self) -> SessionRecord | None:
        """The lease of the ``exec`` or the factory around the session, the innermost that is still held."""
        for claim_id in self._outer:
            claim = internals(self.governor).store.claim(claim_id)
            if claim is not None and claim.held:
                return self._record(claim, owned=False)
        return None

    def _count_session(self, event: HookEvent) -> SessionRecord:
        if self.calls_counted:
            from flyball.gateway.agents_pool import ensure_agents_pool

            pool = ensure_agents_pool(self.governor)
        else:
            words = [self.runtime, "--model", event.model] if event.model else [self.runtime]
            pool = pool_of(words, self.runtime)
        asking = AskRequest(
            pool=pool,
            project=default_project(Path(event.folder) if event.folder else None),
            name=f"{self.runtime}-{self.pid}",
            model=event.model,
            unread=True,
        )
        claim_id = internals(self.governor).hold(self.pid, asking)
        self._show_alive()
        claim = internals(self.governor).store.claim(claim_id)
        if claim is None:
            raise LookupError(f"lease {claim_id} of {pool} was taken away at once")
        return self._record(claim, owned=True)

    def _record(self, claim: Claim, *, owned: bool) -> SessionRecord:
        return SessionRecord(
            runtime=self.runtime,
            pool=claim.pool,
            project=claim.project,
            name=claim.name,
            lease=claim.id,
            asked_at=claim.asked_at,
            slots=claim.slots,
            owned=owned,
        )

    def _close_session(self) -> None:
        record = self._file.change(lambda record: (None, record))
        if record is None:
            return
        self._give_back(*record.subagents)
        if record.owned:
            self._release(record.lease, record.asked_at)

    # -- subagents ----------------------------------------------------------------------------------------

    def _take_slot(self, event: HookEvent, wait_s: float) -> str | None:
        session = self._open_session(event)
        riding = Subagent(event.agent_kind, boot_seconds(), call=event.call, agent=event.agent)

        def act(record: SessionRecord | None) -> tuple[SessionRecord, tuple[bool, list[Subagent]]]:
            record = record or session
            over = record.forget_unbegun(boot_seconds())
            rides = record.may_ride(by_session=event.by_session, foreground=event.foreground)
            if rides:
                record.add(riding)
            return record, (rides, over)

        rides, over = self._file.change(act)
        self._give_back(*over)
        if rides:
            return None
        try:
            self._note(session, self._acquire(session, event, wait_s))
        except RefusedError as error:
            return _refusal_words(error, wait_s)
        return None

    def _begin(self, event: HookEvent, wait_s: float) -> None:
        """It begins whatever we do, so it is counted whatever the wait brings."""
        session = self._open_session(event)

        def act(record: SessionRecord | None) -> tuple[SessionRecord, Subagent | None]:
            record = record or session
            return record, record.begin(event.agent, event.agent_kind)

        if self._file.change(act) is not None:
            return
        try:
            subagent = self._acquire(session, event, wait_s)
        except RefusedError:
            name = f"{subagent_name(session.name, event.agent_kind)} {event.agent[:12]}".strip()
            asking = AskRequest(session.pool, session.project, name, unread=True)
            claim_id = internals(self.governor).hold(self.pid, asking)
            claim = internals(self.governor).store.claim(claim_id)
            asked_at = claim.asked_at if claim is not None else 0.0
            subagent = Subagent(event.agent_kind, boot_seconds(), agent=event.agent, lease=claim_id)
            subagent.asked_at = asked_at
            self._show_alive()
        self._note(session, subagent)

    def _acquire(self, session: SessionRecord, event: HookEvent, wait_s: float) -> Subagent:
        """Wait for a slot and hand it to the agent's process. Raises RefusedError."""
        asking = AskRequest(
            pool=session.pool,
            project=session.project,
            name=subagent_name(session.name, event.agent_kind),
            pid=os.getpid(),
            unread=True,
        )
        end = time.monotonic() + wait_s

        def on_wait(verdict: Verdict) -> None:
            if verdict.estimate_s is not None and time.monotonic() + verdict.estimate_s > end:
                raise WaitTimeoutError(verdict, 0.0)

        behind = internals(self.governor)
        lease = behind.acquire(asking, timeout=wait_s, on_wait=on_wait)
        asked_at = lease.verdict.asked_at
        bound, after = behind.store.rebind(lease.id, self._holder, launcher_pid=self.pid, asked_at=asked_at)
        behind.settle(after)
        if bound:
            self._show_alive()
        return Subagent(
            event.agent_kind,
            boot_seconds(),
            call=event.call,
            agent=event.agent,
            lease=lease.id,
            asked_at=asked_at,
        )

    def _note(self, session: SessionRecord, subagent: Subagent) -> None:
        def act(record: SessionRecord | None) -> tuple[SessionRecord, None]:
            record = record or session
            record.add(subagent)
            return record, None

        self._file.change(act)

    # -- giving back --------------------------------------------------------------------------------------

    def _give_back(self, *subagents: Subagent | None) -> None:
        for subagent in subagents:
            if subagent is not None and not subagent.rides:
                self._release(subagent.lease, subagent.asked_at)

    def _release(self, lease: int, asked_at: float) -> None:
        behind = internals(self.governor)
        behind.settle(behind.store.release(Release(lease, Outcome.FINISHED, oks=0, asked_at=asked_at)))

    def _show_alive(self) -> None:
        """On a server a process of this host has to show that the agent lives; ours is gone in a moment."""
        if on_server(self.governor.address):
            from flyball.governor import host_agent

            host_agent.ensure(self.governor.address)


def _refusal_words(error: RefusedError, wait_s: float) -> str:
    """For the model: what happened and that it is no fault of its own."""
    waited = f"No slot came free within {span_words(wait_s)}"
    if isinstance(error, WaitTimeoutError) and error.waited_s == 0.0:
        waited = f"No slot is expected within {span_words(wait_s)}"
    why = replace(error.verdict, estimate_s=None).words()
    return f"flyball holds this subagent back: every slot of the limit is in use. {waited} ({why})."
