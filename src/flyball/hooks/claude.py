"""Claude Code: hooks in ``settings.json`` of ``CLAUDE_CONFIG_DIR``, by default ``~/.claude``.

The tool that starts a subagent is called Agent, and was called Task. By default a subagent runs in the
background, and its session goes on; ``run_in_background: false`` makes the session wait for it.

    PreToolUse           before the subagent; may deny it, and its reason is told to the model
    PostToolUseFailure   the call failed; PermissionDenied: it was not allowed
    SubagentStart        awaited by the subagent before its first call; also where no tool call wanted it
    SubagentStop         its end; claude tells of none where a person stops it
    Stop                 the end of a turn, with the subagents that still run
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from flyball.hooks.events import HookEvent, HookEventKind, agent_kind, text_field
from flyball.hooks.port import HookEntry, user_folder

TOOLS = ("Agent", "Task")
_GOES_ON = ("clear", "resume")
"""Reasons of a SessionEnd after which the same process begins another session."""


class ClaudeHooks:
    name = "claude"
    entries = (
        HookEntry("SessionStart", None, waits=False),
        HookEntry("PreToolUse", "|".join(TOOLS), waits=True),
        HookEntry("PostToolUseFailure", "|".join(TOOLS), waits=False),
        HookEntry("PermissionDenied", "|".join(TOOLS), waits=False),
        HookEntry("SubagentStart", None, waits=True),
        HookEntry("SubagentStop", None, waits=False),
        HookEntry("Stop", None, waits=False),
        HookEntry("SessionEnd", None, waits=False),
    )

    def settings_path(self, env: Mapping[str, str]) -> Path:
        named = env.get("CLAUDE_CONFIG_DIR")
        return (Path(named) if named else user_folder(env) / ".claude") / "settings.json"

    def group(self, entry: HookEntry, command: str, wait_s: float) -> dict[str, Any]:
        timeout_s = round(entry.timeout_s(wait_s))
        return entry.group({"type": "command", "command": command, "timeout": timeout_s})

    def parse_event(self, name: str, payload: Mapping[str, Any]) -> HookEvent | None:
        folder = text_field(payload, "cwd")
        if name == "SessionStart":
            model = text_field(payload, "model")
            return HookEvent(kind=HookEventKind.SESSION_BEGINS, folder=folder, model=model)
        if name == "SessionEnd":
            over = text_field(payload, "reason") not in _GOES_ON
            return HookEvent(kind=HookEventKind.SESSION_ENDS, folder=folder) if over else None
        if name in ("SubagentStart", "SubagentStop"):
            return subagent_event(payload, begins=name == "SubagentStart")
        if name == "Stop":
            tasks = payload.get("background_tasks")
            if not isinstance(tasks, list):
                return None
            running = frozenset(text_field(task, "id") for task in tasks)
            return HookEvent(kind=HookEventKind.TURN_ENDS, folder=folder, running=running)
        if text_field(payload, "tool_name") not in TOOLS:
            return None
        wanted = name == "PreToolUse"
        given = payload.get("tool_input")
        return HookEvent(
            kind=HookEventKind.SUBAGENT_WANTED if wanted else HookEventKind.SUBAGENT_REFUSED,
            folder=folder,
            call=text_field(payload, "tool_use_id"),
            agent_kind=agent_kind(text_field(given, "subagent_type")),
            by_session=not text_field(payload, "agent_id"),
            foreground=isinstance(given, dict) and given.get("run_in_background") is False,
        )

    def denial(self, name: str, words: str) -> str:
        advice = (
            "Do this work yourself, or start one subagent at a time with run_in_background set to false: "
            "that one uses the slot of this session."
        )
        return deny_tool(name, f"{words} {advice}")

    def hint(self, env: Mapping[str, str]) -> str:
        try:
            settings = json.loads(self.settings_path(env).read_text("utf-8-sig"))
        except OSError:
            return ""
        except ValueError:
            return (
                "claude loads no settings with comments in them, so it runs no hooks; take the comments out"
            )
        if isinstance(settings, dict) and settings.get("disableAllHooks") is True:
            return "claude runs no hooks while disableAllHooks is true in its settings; take it out"
        return ""


def subagent_event(payload: Mapping[str, Any], *, begins: bool) -> HookEvent:
    """A subagent begins or ends, as claude and codex say it."""
    return HookEvent(
        kind=HookEventKind.SUBAGENT_BEGINS if begins else HookEventKind.SUBAGENT_ENDS,
        folder=text_field(payload, "cwd"),
        agent=text_field(payload, "agent_id"),
        agent_kind=agent_kind(text_field(payload, "agent_type")),
    )


def deny_tool(name: str, words: str) -> str:
    """What denies a tool call, as claude and codex read it."""
    return json.dumps(
        {
            "hookSpecificOutput": {
                "hookEventName": name,
                "permissionDecision": "deny",
                "permissionDecisionReason": words,
            }
        }
    )
