"""What an agent's hooks tell, in one vocabulary for all runtimes."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

GENERAL = "general-purpose"
"""A subagent whose kind is not said."""
_KIND_LIMIT = 60


class HookEventKind(Enum):
    """What happened in a session, in the same words for every runtime."""

    SESSION_BEGINS = "session begins"
    SESSION_ENDS = "session ends"
    SUBAGENT_WANTED = "subagent wanted"
    """The model asked for it. Only here it can be denied."""
    SUBAGENT_REFUSED = "subagent refused"
    """It was wanted and did not begin: another hook, a person or an error was in the way."""
    SUBAGENT_NAMED = "subagent named"
    """The call that wanted it was answered, with its id."""
    SUBAGENT_BEGINS = "subagent begins"
    SUBAGENT_ENDS = "subagent ends"
    TURN_ENDS = "turn ends"
    """The session waits for its person, and says which subagents still run."""
    TURN_CHANGES = "turn changes"
    """The session waits for its person, or its person has spoken; which subagents still run is not said."""
    ALL_ENDED = "all ended"
    """No subagent of the session runs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HookEvent:
    """One call of a hook, as far as it matters here."""

    kind: HookEventKind
    folder: str = ""
    """Where the session works."""
    model: str = ""
    call: str = ""
    """The id of the tool call that wants the subagent."""
    agent: str = ""
    """The subagent's own id."""
    agent_kind: str = GENERAL
    by_session: bool = True
    """The session itself wants it, not one of its subagents."""
    foreground: bool = False
    """Who wants it does nothing until the subagent is done."""
    running: frozenset[str] = frozenset()
    """At the end of a turn: the subagents that go on."""
    transcript: str = ""
    """The file in which a subagent that begins writes down its turns."""


def text_field(payload: object, *path: str) -> str:
    """A text in a payload; empty where it is not there or is something else."""
    found = payload
    for key in path:
        found = found.get(key) if isinstance(found, dict) else None
    return found if isinstance(found, str) else ""


def agent_kind(said: str) -> str:
    """As it can be shown and stored.

    >>> agent_kind("Explore"), agent_kind("")
    ('Explore', 'general-purpose')
    """
    shown = "".join(char if char.isprintable() else "?" for char in said)
    return shown[:_KIND_LIMIT] or GENERAL
