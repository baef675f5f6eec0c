"""opencode: a plugin of ours in the folder ``plugin`` of its configuration; it has no hooks in its settings.

opencode loads every module there and calls what it exports. Ours starts the same command as the hooks of the
others, without a shell. A subagent is a call of the tool task, and its session waits for it, unless it is
sent to the background. An error thrown before the call denies it, and is told to the model.

    tool.execute.after      its end, or that it is in the background
    message.part.updated    with the status error: it failed, or was interrupted, also before it began
    session.idle            the end of a turn: no call of that session goes on, or a subagent is done
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from flyball.hooks.events import HookEvent, HookEventKind, agent_kind, text_field
from flyball.hooks.port import QUICK_S, SPARE_S, HookEntry, user_folder

MARK = "// Made by `flyball hooks install opencode`; `flyball hooks remove opencode` takes it away.\n"
_PLUGIN = """\
import { spawn, spawnSync } from "node:child_process";

const COMMAND = %(command)s;
const WAIT_S = %(wait_s)d;

// What flyball answers; empty where it does not: then opencode goes on.
const tell = (event, waits, payload, started = () => {}) =>
  new Promise((done) => {
    try {
      const child = spawn(COMMAND[0], [...COMMAND.slice(1), event, String(waits ? WAIT_S : 0)], {
        stdio: ["pipe", "pipe", "ignore"],
      });
      const limit = setTimeout(() => child.kill(), (waits ? WAIT_S + %(spare_s)d : %(quick_s)d) * 1000);
      let said = "";
      child.on("error", () => done(""));
      child.stdin.on("error", () => {});
      child.stdout.on("data", (piece) => (said += piece));
      child.on("close", () => {
        clearTimeout(limit);
        done(said.trim());
      });
      child.stdin.end(JSON.stringify({ flyball_pid: process.pid, ...payload }));
      started(child);
    } catch {
      done("");
    }
  });

export const Flyball = async ({ directory }) => {
  await tell("SessionStart", false, { cwd: directory });
  process.on("exit", () => {
    try {
      const input = JSON.stringify({ flyball_pid: process.pid, cwd: directory });
      const argv = [...COMMAND.slice(1), "SessionEnd", "0"];
      spawnSync(COMMAND[0], argv, { input, timeout: 3000, stdio: "pipe" });
    } catch {
      // Its process ends, and what it held with it.
    }
  });

  // The subagents that wait or run, by their calls: whose call it is, the hook that waits for a slot, and of
  // one that was sent to the background its own session.
  const subagents = new Map();
  const over = async (call) => {
    const subagent = subagents.get(call);
    if (!subagents.delete(call)) return;
    if (subagent.hook) subagent.hook.kill();
    else await tell("SubagentStop", false, { cwd: directory, call });
  };
  return {
    "tool.execute.before": async (input, output) => {
      if (input.tool !== "task") return;
      const call = input.callID;
      const kind = output?.args?.subagent_type ?? "";
      const subagent = { parent: input.sessionID };
      subagents.set(call, subagent);
      const denied = await tell("SubagentStart", true, { cwd: directory, call, kind }, (hook) => {
        subagent.hook = hook;
      });
      subagent.hook = undefined;
      if (denied) subagents.delete(call);
      // Interrupted just when the slot came, or its hook was killed.
      else if (!subagents.has(call)) await tell("SubagentStop", false, { cwd: directory, call });
      if (denied) throw new Error(denied);
    },
    "tool.execute.after": async (input, output) => {
      const subagent = subagents.get(input.callID);
      if (!subagent) return;
      if (output?.metadata?.background) subagent.own = output.metadata.sessionId;
      else await over(input.callID);
    },
    event: async ({ event }) => {
      const part = event.type === "message.part.updated" ? event.properties.part : undefined;
      if (part?.type === "tool" && part.state?.status === "error") await over(part.callID);
      if (event.type !== "session.idle" && event.type !== "session.deleted") return;
      const session = event.properties.sessionID ?? event.properties.info?.id;
      for (const [call, subagent] of [...subagents])
        if (session === (subagent.own ?? subagent.parent)) await over(call);
    },
  };
};
"""


class OpencodeHooks:
    name = "opencode"
    entries: Sequence[HookEntry] = ()

    def settings_path(self, env: Mapping[str, str]) -> Path:
        named = env.get("OPENCODE_CONFIG_DIR")
        config = Path(env["XDG_CONFIG_HOME"]) if env.get("XDG_CONFIG_HOME") else user_folder(env) / ".config"
        return (Path(named) if named else config / "opencode") / "plugin" / "flyball.js"

    def group(self, entry: HookEntry, command: str, wait_s: float) -> dict[str, Any]:
        raise NotImplementedError("opencode has a plugin, and no hooks in its settings")

    def plugin(self, argv: Sequence[str], wait_s: float) -> str:
        """The text of the plugin that calls this command."""
        values = {"wait_s": round(wait_s), "spare_s": round(SPARE_S), "quick_s": round(QUICK_S)}
        return MARK + _PLUGIN % {"command": json.dumps(list(argv)), **values}

    def parse_event(self, name: str, payload: Mapping[str, Any]) -> HookEvent | None:
        folder, call = text_field(payload, "cwd"), text_field(payload, "call")
        if name in ("SessionStart", "SessionEnd"):
            begins = name == "SessionStart"
            kind = HookEventKind.SESSION_BEGINS if begins else HookEventKind.SESSION_ENDS
            return HookEvent(kind=kind, folder=folder)
        return HookEvent(
            kind=HookEventKind.SUBAGENT_WANTED if name == "SubagentStart" else HookEventKind.SUBAGENT_ENDS,
            folder=folder,
            agent=call,
            agent_kind=agent_kind(text_field(payload, "kind")),
            foreground=True,
        )

    def denial(self, name: str, words: str) -> str:
        del name
        return f"{words} Do this work yourself, or ask again later."

    def hint(self, env: Mapping[str, str]) -> str:
        del env
        return ""
