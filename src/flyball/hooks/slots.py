"""The slots of one agent's process: taken, waited for and given back, by the governor.

The process of a hook waits in line under its own life, and hands what it got to the agent's process: what a
hook that was killed had asked for is dropped, and what an agent that died had is taken back. Nothing here is
evidence for a higher cap: what the provider answers is not seen.
"""

from __future__ import annotations

import os
import time
from pathlib import Path

from flyball.core.pool.holder import Holder
from flyball.core.pool.model import Claim, Outcome
from flyball.core.pool.subagent_name import subagent_name
from flyball.core.pool.verdict import Verdict
from flyball.errors import WaitTimeoutError
from flyball.governor import inherited_lease
from flyball.governor.ask import AskRequest, default_project
from flyball.governor.governor import Governor
from flyball.governor.internals import internals
from flyball.governor.state_url import on_server
from flyball.hooks.events import HookEvent
from flyball.hooks.subagents import SessionRecord, Subagent
from flyball.host.process import command_line
from flyball.runtimes.registry import is_headless, pool_of
from flyball.stores.port import Release

ABOVE_ORDINARY = 1
"""The priority from which on the reserve may be used."""


class Slots:
    """The slots of one session and its subagents, in the state that they are kept in."""

    def __init__(self, runtime: str, holder: Holder, *, calls_counted: bool) -> None:
        self.runtime, self.calls_counted = runtime, calls_counted
        self._holder, self._governor = holder, Governor()
        self._outer = inherited_lease.inherited_ids(self._governor.address)
        # Or what is asked for here would be the session's own slot over again.
        os.environ.pop(inherited_lease.VARIABLE, None)

    # -- the session --------------------------------------------------------------------------------------

    def session_record(self, event: HookEvent) -> SessionRecord:
        """The session under the innermost lease around it that is still held, or under one of its own."""
        store = internals(self._governor).store
        for claim_id in self._outer:
            claim = store.claim(claim_id)
            if claim is not None and claim.held and inherited_lease.is_around_us(claim.holder):
                return self._record(claim, owned=False)
        claim_id, pool = self._count(event)
        claim = store.claim(claim_id)
        if claim is None:
            raise LookupError(f"lease {claim_id} of {pool} was taken away at once")
        return self._record(claim, owned=True)

    def holds(self, record: SessionRecord) -> bool:
        """Is the lease of the session still held?"""
        claim = internals(self._governor).store.claim(record.lease)
        return claim is not None and claim.held and claim.asked_at == record.asked_at

    def _count(self, event: HookEvent) -> tuple[int, str]:
        if self.calls_counted:
            from flyball.gateway.agents_pool import ensure_agents_pool

            pool = ensure_agents_pool(self._governor)
        else:
            words = [self.runtime, "--model", event.model] if event.model else [self.runtime]
            pool = pool_of(words, self.runtime)
        asking = AskRequest(
            pool=pool,
            project=default_project(Path(event.folder) if event.folder else None),
            name=f"{self.runtime}-{self._holder.pid}",
            model=event.model,
            priority=self._priority(),
            unread=True,
        )
        claim_id = internals(self._governor).hold(self._holder.pid, asking)
        self._show_alive()
        return claim_id, pool

    def _priority(self) -> int:
        """A session that talks to a person takes its slot out of the reserve."""
        return 0 if is_headless(command_line(self._holder.pid), self.runtime) else ABOVE_ORDINARY

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

    # -- subagents ----------------------------------------------------------------------------------------

    def acquire(self, session: SessionRecord, event: HookEvent, wait_s: float) -> Subagent:
        """Wait for a slot; it is this process's until ``hand_over``. Raises RefusedError, at once where none
        is expected in time."""
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

        lease = internals(self._governor).acquire(asking, timeout=wait_s, on_wait=on_wait)
        subagent = self._subagent(event, lease.id, lease.verdict.asked_at)
        subagent.handed_over = False
        return subagent

    def hand_over(self, subagent: Subagent) -> None:
        """The slot lives with the agent's process from now on."""
        behind = internals(self._governor)
        bound, after = behind.store.rebind(
            subagent.lease, self._holder, launcher_pid=self._holder.pid, asked_at=subagent.asked_at
        )
        behind.settle(after)
        if bound:
            self._show_alive()

    def hold(self, session: SessionRecord, event: HookEvent) -> Subagent:
        """Count one that runs already, also beyond the cap."""
        name = f"{subagent_name(session.name, event.agent_kind)} {event.agent[:12]}".strip()
        behind = internals(self._governor)
        asking = AskRequest(session.pool, session.project, name, unread=True)
        claim_id = behind.hold(self._holder.pid, asking)
        self._show_alive()
        claim = behind.store.claim(claim_id)
        return self._subagent(event, claim_id, claim.asked_at if claim is not None else 0.0)

    def _subagent(self, event: HookEvent, lease: int, asked_at: float) -> Subagent:
        subagent = Subagent.from_event(event)
        subagent.lease, subagent.asked_at = lease, asked_at
        return subagent

    def release(self, lease: int, asked_at: float) -> None:
        behind = internals(self._governor)
        behind.settle(behind.store.release(Release(lease, Outcome.FINISHED, oks=0, asked_at=asked_at)))

    def _show_alive(self) -> None:
        """On a server a process of this host has to show that the agent lives; ours is gone in a moment."""
        if on_server(self._governor.address):
            from flyball.governor import host_agent

            host_agent.ensure(self._governor.address)
