"""Codex: hooks in ``hooks.json`` of ``CODEX_HOME``, by default ``~/.codex``, in the same form as claude's.

Codex runs a hook only after a person has looked at it: ``/hooks`` in a session. A subagent is a thread beside
its session, which goes on. A hook's own time-out is in seconds.

    PreToolUse         before the subagent; may deny it. Killed where a person interrupts the turn
    PostToolUse        the subagent's id; not told where no subagent came of the call
    SubagentStart      awaited by the subagent before its first call
    UserPromptSubmit   before each turn: of a subagent too, which the session may give more to do
    SubagentStop       the end of its turn; not told where it fails or is closed (codex_rollout.py)
    Stop               the end of the session's turn; not told where it is interrupted
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from flyball.hooks.claude import deny_tool, subagent_event
from flyball.hooks.events import HookEvent, HookEventKind, agent_kind, text_field
from flyball.hooks.port import HookEntry, user_folder

TOOL = "spawn_agent"
_END_S = 3
"""More is cut to this, with a warning."""


class CodexHooks:
    name = "codex"
    entries = (
        HookEntry("SessionStart", None, waits=False),
        HookEntry("PreToolUse", TOOL, waits=True),
        HookEntry("PostToolUse", TOOL, waits=False),
        HookEntry("SubagentStart", None, waits=True),
        HookEntry("UserPromptSubmit", None, waits=True),
        HookEntry("SubagentStop", None, waits=False),
        HookEntry("Stop", None, waits=False),
        HookEntry("SessionEnd", None, waits=False),
    )

    def settings_path(self, env: Mapping[str, str]) -> Path:
        named = env.get("CODEX_HOME")
        return (Path(named) if named else user_folder(env) / ".codex") / "hooks.json"

    def group(self, entry: HookEntry, command: str, wait_s: float) -> dict[str, Any]:
        timeout_s = _END_S if entry.event == "SessionEnd" else round(entry.timeout_s(wait_s))
        return entry.group({"type": "command", "command": command, "timeout": timeout_s})

    def parse_event(self, name: str, payload: Mapping[str, Any]) -> HookEvent | None:
        folder, model = text_field(payload, "cwd"), text_field(payload, "model")
        if name == "SessionStart":
            return HookEvent(kind=HookEventKind.SESSION_BEGINS, folder=folder, model=model)
        if name == "SessionEnd":
            return HookEvent(kind=HookEventKind.SESSION_ENDS, folder=folder)
        if name == "SubagentStop":
            return subagent_event(payload, begins=False)
        if name == "SubagentStart" or (name == "UserPromptSubmit" and text_field(payload, "agent_id")):
            begins = subagent_event(payload, begins=True)
            return replace(begins, transcript=text_field(payload, "transcript_path"))
        if name in ("UserPromptSubmit", "Stop"):
            return HookEvent(kind=HookEventKind.TURN_CHANGES, folder=folder)
        if not text_field(payload, "tool_name").endswith(TOOL):
            return None
        call = text_field(payload, "tool_use_id")
        if name == "PostToolUse":
            agent = _spawned(payload.get("tool_response"))
            return HookEvent(kind=HookEventKind.SUBAGENT_NAMED, folder=folder, call=call, agent=agent)
        return HookEvent(
            kind=HookEventKind.SUBAGENT_WANTED,
            folder=folder,
            call=call,
            agent_kind=agent_kind(text_field(payload, "tool_input", "agent_type") or "default"),
            by_session=not text_field(payload, "agent_id"),
        )

    def denial(self, name: str, words: str) -> str:
        return deny_tool(name, f"{words} Do this work yourself, or spawn the agent again later.")

    def hint(self, env: Mapping[str, str]) -> str:
        del env
        return "codex runs new hooks only after you have looked at them: start codex, type /hooks, trust them"


def _spawned(response: object) -> str:
    """The id of the subagent that a call was answered with.

    >>> _spawned('{"agent_id": "01a1", "nickname": "Peirce"}')
    '01a1'
    """
    if isinstance(response, str):
        with suppress(ValueError):
            response = json.loads(response)
    return text_field(response, "agent_id")
