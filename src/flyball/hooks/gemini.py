"""Gemini CLI: hooks in ``settings.json`` of ``~/.gemini``, a file that may have comments.

A subagent is a call of the tool invoke_agent, and the session waits for it. There is no event of its own for
its begin and its end: they are those of the call. Its calls have no id that a hook is told, so what is asked
tells them apart. Time-outs are in milliseconds.

    BeforeTool    before the subagent; may deny it
    AfterTool     its end, also where it failed
    BeforeAgent   before each turn of the session. Nothing is told of an interrupt, and the next prompt waits
                  until what was interrupted has ended
    AfterAgent    the end of a turn that nothing interrupted
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from hashlib import sha256
from pathlib import Path
from typing import Any

from flyball.hooks.events import HookEvent, HookEventKind, agent_kind, text_field
from flyball.hooks.port import HookEntry, user_folder

TOOL = "invoke_agent"
_GOES_ON = "clear"


class GeminiHooks:
    name = "gemini"
    entries = (
        HookEntry("SessionStart", None, waits=False),
        HookEntry("BeforeTool", TOOL, waits=True),
        HookEntry("AfterTool", TOOL, waits=False),
        HookEntry("BeforeAgent", None, waits=False),
        HookEntry("AfterAgent", None, waits=False),
        HookEntry("SessionEnd", None, waits=False),
    )

    def settings_path(self, env: Mapping[str, str]) -> Path:
        return user_folder(env, "GEMINI_CLI_HOME") / ".gemini" / "settings.json"

    def group(self, entry: HookEntry, command: str, wait_s: float) -> dict[str, Any]:
        timeout_ms = round(1000 * entry.timeout_s(wait_s))
        return entry.group({"type": "command", "name": "flyball", "command": command, "timeout": timeout_ms})

    def parse_event(self, name: str, payload: Mapping[str, Any]) -> HookEvent | None:
        folder = text_field(payload, "cwd")
        if name == "SessionStart":
            return HookEvent(kind=HookEventKind.SESSION_BEGINS, folder=folder)
        if name == "SessionEnd":
            over = text_field(payload, "reason") != _GOES_ON
            return HookEvent(kind=HookEventKind.SESSION_ENDS, folder=folder) if over else None
        if name in ("BeforeAgent", "AfterAgent"):
            return HookEvent(kind=HookEventKind.ALL_ENDED, folder=folder)
        if text_field(payload, "tool_name") != TOOL:
            return None
        given = payload.get("tool_input")
        asked = json.dumps(given, sort_keys=True, default=str).encode()
        return HookEvent(
            kind=HookEventKind.SUBAGENT_WANTED if name == "BeforeTool" else HookEventKind.SUBAGENT_ENDS,
            folder=folder,
            agent=sha256(asked).hexdigest()[:16],
            agent_kind=agent_kind(text_field(given, "agent_name")),
            foreground=True,
        )

    def denial(self, name: str, words: str) -> str:
        del name
        return json.dumps(
            {"decision": "deny", "reason": f"{words} Do this work yourself, or ask again later."}
        )

    def hint(self, env: Mapping[str, str]) -> str:
        del env
        return ""
