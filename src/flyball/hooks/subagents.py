"""Which subagent of a session has which slot.

A subagent is wanted by a tool call, begins under an id of its own, and ends by that id; some begin without a
call. Which call a beginning subagent belongs to is not said: the oldest call of its kind that still waits for
its subagent, or else the oldest of any kind. Slots are alike, so a mix-up changes nothing.

As many subagents as the session has slots ride on these while the session does nothing but wait for them.
All others have a slot of their own.

A hook may be killed between any two of its steps. So a slot is written down before it is handed to the
agent's process, and given back before it is struck out.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from flyball.hooks.codex_rollout import has_ended, size
from flyball.hooks.events import HookEvent
from flyball.host.clock import boot_seconds

MOST = 1000
"""Subagents that are kept of one session; the oldest are forgotten, and their slots end with the session."""
BEGIN_S = 120.0
"""A granted call whose subagent has not begun by then is taken to have come to nothing."""
SETTLED_S = 10.0
"""A subagent younger than that may have begun after its session listed those that run."""


@dataclass(slots=True)
class Subagent:
    """One that was wanted, or runs."""

    kind: str
    at: float
    """When it was granted, in seconds since the boot."""
    call: str = ""
    agent: str = ""
    """Empty until it begins."""
    lease: int = 0
    """0: it rides on the session's own slot."""
    asked_at: float = 0.0
    handed_over: bool = True
    """The slot is the agent's process's own. Until then it ends with the hook that waited for it."""
    nested: bool = False
    """A subagent wanted it."""
    transcript: str = ""
    """The file in which it writes down its turns, where its runtime names one."""
    written: int = 0
    """The size of that file when it began."""

    @classmethod
    def from_event(cls, event: HookEvent) -> Subagent:
        """The one that is wanted or begins, now."""
        return cls(
            event.agent_kind,
            boot_seconds(),
            call=event.call,
            agent=event.agent,
            nested=not event.by_session,
            transcript=event.transcript,
            written=size(event.transcript),
        )

    @property
    def rides(self) -> bool:
        return self.lease == 0

    @property
    def key(self) -> tuple[int, str, float]:
        """What tells it from the others of its session."""
        return self.lease, self.call, self.at


@dataclass(slots=True)
class SessionRecord:
    """What is known of a session between two of its hooks."""

    runtime: str
    pool: str
    project: str
    name: str
    lease: int
    asked_at: float
    slots: int = 1
    owned: bool = True
    """The lease is of our making; else it is that of the ``exec`` or the factory around the session."""
    subagents: list[Subagent] = field(default_factory=list)

    def may_ride(self, *, by_session: bool, foreground: bool) -> bool:
        riding = sum(subagent.rides for subagent in self.subagents)
        return by_session and foreground and riding < self.slots

    def add(self, subagent: Subagent) -> None:
        self.subagents = [*self.subagents[-(MOST - 1) :], subagent]

    def name_subagent(self, call: str, agent: str) -> None:
        """The call was answered with the subagent's id, before it began or after it."""
        wanted = next((each for each in self.subagents if each.call == call), None)
        if wanted is not None and wanted.agent != agent:
            begun = self._known(agent)
            if begun is not None:
                begun.agent = wanted.agent
            wanted.agent = agent

    def begin(self, one: Subagent) -> Subagent | None:
        """The one that was wanted and begins as this one; None: none was wanted."""
        found = self._known(one.agent) or self._unbegun(one.kind)
        if found is not None:
            found.agent, found.kind = one.agent, one.kind
            found.transcript, found.written = one.transcript, one.written
        return found

    def _unbegun(self, kind: str) -> Subagent | None:
        unbegun = [each for each in self.subagents if not each.agent]
        waiting = [each for each in unbegun if each.handed_over] or unbegun
        same = [each for each in waiting if each.kind == kind]
        return next(iter(same or waiting), None)

    def _known(self, agent: str) -> Subagent | None:
        return next((each for each in self.subagents if each.agent == agent), None)

    def find_ended(self, agent: str, kind: str) -> list[Subagent]:
        """The one that ended. Where its begin was not heard: the oldest of its kind that has not begun."""
        known = [each for each in self.subagents if each.agent == agent]
        return (known or [each for each in self.subagents if not each.agent and each.kind == kind])[:1]

    def find_refused(self, call: str) -> list[Subagent]:
        """The one that was wanted by this call and did not begin."""
        return [each for each in self.subagents if each.call == call and not each.agent][:1]

    def find_over(self, running: frozenset[str], now: float) -> list[Subagent]:
        """Those that began and are not among those that run, at the end of a turn."""
        begun = [each for each in self.subagents if each.agent and each.agent not in running]
        return [each for each in begun if now - each.at > SETTLED_S]

    def unanswered(self) -> list[Subagent]:
        """Between two turns: those whose call came to nothing, since the session waits for no call."""
        return [each for each in self.subagents if each.call and not each.agent and not each.nested]

    def written_ends(self) -> list[Subagent]:
        """Those whose end is in their transcript."""
        begun = [each for each in self.subagents if each.agent and each.transcript]
        return [each for each in begun if has_ended(each.transcript, since=each.written)]

    def unbegun(self, now: float) -> list[Subagent]:
        """Those that were wanted and never began."""
        return [each for each in self.subagents if not each.agent and now - each.at > BEGIN_S]

    def strike_out(self, gone: Sequence[Subagent]) -> None:
        keys = [each.key for each in gone]
        self.subagents = [each for each in self.subagents if each.key not in keys]


def dump_record(record: SessionRecord) -> dict[str, Any]:
    return asdict(record)


def parse_record(said: dict[str, Any]) -> SessionRecord:
    """Raises KeyError, TypeError or ValueError for what is not one."""
    subagents = [Subagent(**each) for each in said["subagents"]]
    return SessionRecord(**{**said, "subagents": subagents})
