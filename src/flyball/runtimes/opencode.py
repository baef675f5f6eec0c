"""opencode as ``opencode run`` prints it: JSON events, or text.

There is no terminal event of success: it is the exit status 0 with a last ``step_finish`` that did not stop
for a tool. ``error`` ends a run and carries what the provider answered: status, headers, body; errors inside
a stream come as a JSON string in the message. Its own retries are silent.

Tokens and cost come with every step and are added up.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import msgspec

from flyball.core.durations import number
from flyball.core.signals import Signal
from flyball.runtimes import error_text
from flyball.runtimes import launch_arguments as command_line
from flyball.runtimes.port import Assignment, Ending, Launch, Tokens
from flyball.runtimes.stream_reader import (
    Event,
    LineReader,
    by_exit,
    failed_ending,
    finished_ending,
    killed_by,
    killed_ending,
    session_gone_ending,
    status,
    text_of,
    unknown_ending,
    word,
)

_TEXT = (b'{"type":"text"', b'{"type":"reasoning"')
_TOOL = b'{"type":"tool_use"'
_STEP_START = b'{"type":"step_start"'
_TOOL_NAME = b'"tool":"'
_MESSAGE = b'"messageID":"'
_UNFINISHED = frozenset({"tool-calls", "unknown", "other", ""})
_COLOURS = re.compile(r"\x1b\[[0-9;]*m")
_NOT_ASKED = {
    "webfetch": "deny",
    "websearch": "deny",
    "external_directory": "deny",
    "doom_loop": "deny",
    "read": {"*.env": "deny", "*.env.*": "deny", "*.env.example": "allow"},
}
"""What it may not do, instead of asking: a question without an answer ends its run, a plain no does not."""
_NO_SESSION = "Session not found"
_REFUSED = re.compile(r"^! permission requested: (.*); auto-rejecting$")
_TEXT_MODEL = re.compile(r"^> \S+ . (\S+)$")


class _Line(msgspec.Struct):
    type: Any = None
    sessionID: Any = None  # noqa: N815 - its name there
    part: Any = None
    error: Any = None


_event = Event(_Line)


class OpencodeReader(LineReader):
    def __init__(self) -> None:
        super().__init__()
        self._streaming = False
        self._printed = False
        self._reason: str | None = None
        self._step: bytes | None = None
        self._failure: Mapping[str, Any] | None = None
        self._text_error = ""
        self._refused = ""
        """What it asked for last with no person there to say yes."""
        self._said = b""

    def _line(self, line: bytes) -> None:
        self._printed = True
        if self._session is not None:
            if line.startswith(_TEXT):
                self._note_answer("writing")
                self._said = line if line.startswith(_TEXT[0]) else self._said
                return
            if line.startswith(_TOOL):
                self._note_answer(f"tool {text_of(_after(line, _TOOL_NAME)) or 'use'}")
                return
            if line.startswith(_STEP_START):
                self._begin_step(line)
                return
        if line.startswith(b"{"):
            self._rare_line(line)

    def _begin_step(self, line: bytes) -> None:
        """Trying again after a stream that broke off begins the same step once more."""
        self._reason = None
        message = _after(line, _MESSAGE)
        if message != self._step:
            self._step = message
            self._count_turn()

    def _note_answer(self, activity: str) -> None:
        self._failure = None
        self._note_work(activity)

    def _rare_line(self, line: bytes) -> None:
        event = _event.read(line)
        if event is None or not isinstance(event.type, str):
            return
        self._streaming = True
        self._session = word(event.sessionID) or self._session
        if event.type == "error" and isinstance(event.error, dict):
            self._failure = event.error
            self._note_signal(self._signal(event.error))
        elif event.type == "step_start":
            self._begin_step(line)
        elif event.type == "step_finish" and isinstance(event.part, dict):
            self._note_answer("thinking")
            self._reason = word(event.part.get("reason")) or ""
            self._count(event.part)
        elif event.type in ("text", "reasoning", "tool_use"):
            self._note_answer("writing")

    def _count(self, part: Mapping[str, Any]) -> None:
        cost = number(part.get("cost"))
        if cost is not None:
            self._cost_usd = (self._cost_usd or 0.0) + cost
        tokens = part.get("tokens")
        if isinstance(tokens, dict):
            cache = tokens.get("cache")
            cached = [cache.get("read"), cache.get("write")] if isinstance(cache, dict) else []
            sent = sum(number(value) or 0.0 for value in (tokens.get("input"), *cached))
            step = Tokens(int(sent), int(number(tokens.get("output")) or 0))
            self._tokens = (self._tokens or Tokens()) + step

    def _stderr_line(self, line: bytes) -> None:
        text = _COLOURS.sub("", text_of(line)).strip()
        model = _TEXT_MODEL.match(text)
        if model and self._model is None:
            self._model = model[1]
        if text.startswith("Error: "):
            self._text_error = text.removeprefix("Error: ")
        asked = _REFUSED.match(text)
        if asked:
            self._refused = error_text.detail(asked[1], None)

    def _judge(self, exit_code: int | None) -> Ending:
        if self._failure is not None:
            return self._by_signal(self._signal(self._failure))
        number_of_signal = killed_by(exit_code)
        if number_of_signal is not None:
            return killed_ending(number_of_signal)
        if self._streaming:
            return self._by_last_step(exit_code)
        if exit_code and self._text_error == _NO_SESSION:
            return session_gone_ending(_NO_SESSION)
        if exit_code and self._text_error:
            signal = error_text.signal_of(self._text_error, wall_s=self._wall_s)
            self._note_signal(signal)
            return self._by_signal(signal)
        return by_exit(exit_code)

    def _by_last_step(self, exit_code: int | None) -> Ending:
        done = self._reason is not None and self._reason not in _UNFINISHED
        if exit_code is None:
            return self._done_ending() if done else unknown_ending("its output ends in the middle of a step")
        if exit_code:
            return failed_ending(f"it exited with status {exit_code}")
        if self._refused and not done:
            return failed_ending(f"it stopped because no person was there to permit it: {self._refused}")
        return self._done_ending() if done else unknown_ending("it exited with 0 in the middle of its work")

    def _done_ending(self) -> Ending:
        event = _event.read(self._said)
        part = event.part if event is not None else None
        return replace(
            finished_ending(), last_words=word(part.get("text")) or "" if isinstance(part, dict) else ""
        )

    def _signal(self, error: Mapping[str, Any]) -> Signal:
        found = error.get("data")
        data: Mapping[str, Any] = found if isinstance(found, dict) else {}
        message = word(data.get("message")) or ""
        code = status(data.get("statusCode"))
        found = data.get("responseHeaders")
        headers = {str(k): str(v) for k, v in found.items()} if isinstance(found, dict) else None
        body = word(data.get("responseBody"))
        read = error_text.signal_of(message, wall_s=self._wall_s, status=code, headers=headers, body=body)
        return replace(read, detail=read.detail or word(error.get("name")) or "error")


def _after(line: bytes, key: bytes) -> bytes:
    """The string that follows a key near the beginning of a line."""
    at = line.find(key, 0, 600)
    end = line.find(b'"', at + len(key), at + 80)
    return line[at + len(key) : end] if 0 <= at < end else b""


_ONE_OPTIONS = (
    "-m --model --agent --format -s --session --title --port --variant --attach --command --dir "
    "--log-level --password --username"
)


class Opencode:
    name = "opencode"
    reports_cost = True
    _ONE = frozenset(_ONE_OPTIONS.split())
    _MANY = frozenset({"-f", "--file"})

    def reader(self) -> OpencodeReader:
        return OpencodeReader()

    def wrote(self, stdout: bytes, stderr: bytes) -> bool:
        for line in stdout.splitlines()[:50]:
            event = _event.read(line) if line.startswith(b"{") else None
            if event is not None and word(event.sessionID) is not None:
                return True
        return bool(re.search(rb"^> \S+ \xc2\xb7 \S+$", stderr[:4096], re.MULTILINE))

    def launch(self, assignment: Assignment) -> Launch:
        """It edits what is in its working directory and runs what it is told to; ``--auto`` gives it all it
        asks for."""
        model, session = assignment.model, assignment.session
        options = command_line.defaults(
            assignment.args,
            ("--format=json",),
            (model and f"--model={model}", "-m"),
            (f"--session={session}" if session else "", "-s", "--continue", "-c"),
            ("--fork" if session else "",),
        )
        strict = command_line.defaults(assignment.args, ("--auto",))
        # The last rule that fits decides.
        allowed = [*(f"{each} *" for each in assignment.command_beginnings), *assignment.command_beginnings]
        allowed += [part for each in assignment.commands for part in command_line.simple_commands(each)]
        shell = {"*": "deny", **dict.fromkeys([*allowed, *assignment.commands], "allow")}
        permissions = {**_NOT_ASKED, "bash": shell}
        env = {"OPENCODE_PERMISSION": msgspec.json.encode(permissions).decode()} if strict else {}
        return Launch((*(assignment.program or (self.name,)), "run", *options, *assignment.args), env)

    def resuming(self, argv: Sequence[str], session: str) -> list[str]:
        """``--session`` with the same options; the message is in the session already."""
        launcher, program = command_line.split(argv)
        program = command_line.without(program, flags=("-c", "--continue"), valued=("-s", "--session"))
        places = command_line.positions(program, one=self._ONE, many=self._MANY)
        if not places or program[places[0]] != "run":
            return list(argv)
        said = set(places[1:])
        kept = [word for at, word in enumerate(program) if at not in said and word != "--"]
        verb = kept.index("run")
        # Before the other options: a list of files would take the message for one more file.
        return [*launcher, *kept[: verb + 1], "Continue.", "--session", session, *kept[verb + 1 :]]
