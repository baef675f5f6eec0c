"""A stand-in for an agent: a real process that runs the hooks in its settings, as agents do, through a shell.

Several hooks of one agent run at once, so each has a thread there. ``hear`` waits for what one answered.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Mapping
from concurrent.futures import Future
from pathlib import Path
from typing import Any

from flyball.cli.main import main
from flyball.hooks.registry import load_hooks

LONGEST_S = 60.0
_PROGRAM = """\
import json, subprocess, sys, threading

def run(asked):
    command, payload = ["sh", "-c", asked["command"]], asked["payload"]
    done = subprocess.run(command, input=payload, capture_output=True, text=True)
    said = {"id": asked["id"], "code": done.returncode, "out": done.stdout, "err": done.stderr}
    sys.stdout.write(json.dumps(said) + "\\n")
    sys.stdout.flush()

for line in sys.stdin:
    threading.Thread(target=run, args=(json.loads(line),)).start()
"""


class StandInAgent:
    """Its settings are those that ``flyball hooks install`` writes into HOME."""

    def __init__(
        self,
        name: str = "claude",
        *options: str,
        env: Mapping[str, str] | None = None,
        wait: str = "60s",
    ) -> None:
        assert main(["hooks", "install", name, "--wait", wait]) == 0
        self.settings = json.loads(Path(load_hooks(name).settings_path(os.environ)).read_text())["hooks"]
        self._process = subprocess.Popen(
            [sys.executable, "-c", _PROGRAM, *options],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, **(env or {})},
        )
        self.pid = self._process.pid
        self._answers: dict[int, Future[dict[str, Any]]] = {}
        self._lock = threading.Lock()
        self._listener = threading.Thread(target=self._listen)
        self._listener.start()

    def _listen(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            said = json.loads(line)
            self._answers[said["id"]].set_result(said)

    def start(self, event: str, **payload: object) -> Future[dict[str, Any]]:
        """Run the hooks of an event; what they answered comes later."""
        (group,) = self.settings[event]
        (hook,) = group["hooks"]
        answer: Future[dict[str, Any]] = Future()
        with self._lock:
            number = len(self._answers)
            self._answers[number] = answer
            asked = {"id": number, "command": hook["command"], "payload": json.dumps(payload)}
            assert self._process.stdin is not None
            self._process.stdin.write(json.dumps(asked) + "\n")
            self._process.stdin.flush()
        return answer

    def tell(self, event: str, **payload: object) -> str:
        """Run the hooks of an event to their end; what they printed for the agent."""
        return hear(self.start(event, **payload))

    def want(self, call: str, kind: str = "Explore", *, wait: bool = False) -> Future[dict[str, Any]]:
        given: dict[str, object] = {"prompt": "Look.", "subagent_type": kind}
        if wait:
            given["run_in_background"] = False
        return self.start("PreToolUse", tool_name="Agent", tool_use_id=call, tool_input=given)

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()

    def close(self) -> None:
        self.kill()
        self._listener.join()
        for stream in (self._process.stdin, self._process.stdout):
            assert stream is not None
            stream.close()


def hear(answer: Future[dict[str, Any]]) -> str:
    """What a hook printed. A hook never fails, whatever happens to it."""
    said = answer.result(LONGEST_S)
    assert (said["code"], said["err"]) == (0, "")
    return str(said["out"])


def denial(said: str) -> str:
    """Why a tool call was denied."""
    output = json.loads(said)["hookSpecificOutput"]
    assert (output["hookEventName"], output["permissionDecision"]) == ("PreToolUse", "deny")
    return str(output["permissionDecisionReason"])
