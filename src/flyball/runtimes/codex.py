"""codex as ``codex exec`` prints it: JSON events, or text on stderr.

``turn.completed`` and ``turn.failed`` are terminal; ``error`` events are not, they also carry its own retries
("Reconnecting... 2/5 (...)"). There are no fields, so the words of the message decide. A signal leaves no
terminal event behind. Its words for a 500, high demand, are those of a server error and not of an overload.

In text mode what tools print goes to stderr as well, so only the last line before the count of tokens is
believed there, and only at the end.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import msgspec

from flyball.core.signals import Signal, SignalKind
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
    text_of,
    unknown_ending,
    word,
)

_ITEM = b'{"type":"item.'
_DONE = b'{"type":"item.completed"'
_TYPE = b'"type":"'
_WORDS = frozenset({"agent_message", "reasoning", "error", "todo_list", "item"})
"""Items that are not a use of a tool."""
_INTERRUPTED = 1
"""What it exits with after an interrupt, when a turn was under way."""
_OWN_WORDS: error_text.Words = {
    "usage limit": SignalKind.WINDOW_USED_UP,
    "quota exceeded": SignalKind.CREDIT_GONE,
    "exceeded your current quota": SignalKind.CREDIT_GONE,
    "experiencing high demand": SignalKind.SERVER_ERROR,
}
_RETRY = re.compile(r"^Reconnecting\.\.\. \d+/\d+ \((.*)\)$", re.DOTALL)
_NO_SESSION = ("Session not found", "no rollout found for thread id")
_HEADER_LINES = 40
_FOOTER = b"tokens used"
"""Printed at the very end, and the number on a line of its own."""


class _Usage(msgspec.Struct):
    input_tokens: int = 0
    output_tokens: int = 0


class _Line(msgspec.Struct):
    type: Any = None
    thread_id: Any = None
    message: Any = None
    error: Any = None
    usage: Any = None
    item: Any = None


_event, _usage = Event(_Line), Event(_Usage)


class CodexReader(LineReader):
    def __init__(self) -> None:
        super().__init__()
        self._streaming = False
        self._in_turn = False
        self._completed = False
        self._failure: str | None = None
        self._header_left = _HEADER_LINES
        self._last_stderr = b""
        self._in_footer = False
        self._said = b""

    def _line(self, line: bytes) -> None:
        if line.startswith(_ITEM):
            self._item(line)
        elif line.startswith(b"{"):
            self._rare_line(line)

    def _item(self, line: bytes) -> None:
        self._streaming = True
        at = line.find(_TYPE, len(_ITEM), 200)
        end = line.find(b'"', at + len(_TYPE), at + 60)
        kind = text_of(line[at + len(_TYPE) : end]) if 0 <= at < end else "item"
        if kind != "error":
            self._note_work(kind.replace("_", " "))
        if kind == "agent_message" and line.startswith(_DONE):
            self._said = line
        if kind not in _WORDS and line.startswith(_DONE):
            self._count_turn()

    def _rare_line(self, line: bytes) -> None:
        event = _event.read(line)
        if event is None or not isinstance(event.type, str):
            return
        self._streaming = True
        kind = event.type
        if kind == "thread.started":
            self._session = word(event.thread_id) or self._session
        elif kind == "turn.started":
            self._in_turn, self._completed, self._failure = True, False, None
        elif kind == "turn.completed":
            self._in_turn, self._completed = False, True
            self._note_work("done")
            self._count_turn()
            if isinstance(event.usage, dict):
                used = _usage.read(msgspec.json.encode(event.usage))
                self._tokens = Tokens(used.input_tokens, used.output_tokens) if used else self._tokens
        elif kind == "turn.failed":
            self._in_turn = False
            error = event.error.get("message") if isinstance(event.error, dict) else event.error
            self._failure = word(error) or "the turn failed"
            self._note_signal(self._signal(self._failure))
        elif kind == "error" and isinstance(event.message, str):
            retry = _RETRY.match(event.message)
            self._activity = "trying again" if retry else "an error"
            self._note_signal(self._signal(retry[1] if retry else event.message))

    def _stderr_line(self, line: bytes) -> None:
        stripped = line.strip()
        footer = stripped == _FOOTER or (self._in_footer and stripped.replace(b",", b"").isdigit())
        self._in_footer = stripped == _FOOTER
        if stripped and not footer:
            self._last_stderr = line[:4096]
        if self._header_left:
            self._header_left -= 1
            key, _, value = text_of(line, 200).partition(": ")
            if key == "session id" and self._session is None:
                self._session = value.strip() or None
            elif key == "model" and self._model is None:
                self._model = value.strip() or None

    def _judge(self, exit_code: int | None) -> Ending:
        if self._failure is not None:
            return self._by_signal(self._signal(self._failure))
        number = killed_by(exit_code)
        if self._completed:
            if exit_code and number is None:
                return failed_ending(f"it said it is done and exited with status {exit_code}")
            event = _event.read(self._said)
            item = event.item if event is not None else None
            last_words = word(item.get("text")) if isinstance(item, dict) else None
            return replace(finished_ending(), last_words=last_words or "")
        if number is not None:
            return killed_ending(number)
        if self._streaming:
            if exit_code is None:
                return unknown_ending("its output ends before its turn did")
            if self._in_turn and exit_code in (0, _INTERRUPTED):
                return killed_ending(None)
            return by_exit(exit_code)
        return self._by_text(exit_code)

    def _by_text(self, exit_code: int | None) -> Ending:
        text = text_of(self._last_stderr)
        if exit_code == _INTERRUPTED and text.strip() == "turn interrupted":
            return killed_ending(None)
        if exit_code and text.startswith("Error: "):
            # It never came to a turn: a session that is not there, a setting it does not know.
            gone = any(said in text for said in _NO_SESSION)
            return (session_gone_ending if gone else failed_ending)(
                error_text.detail(text.removeprefix("Error: "), None)
            )
        if not exit_code or not text.startswith("ERROR: "):
            return by_exit(exit_code)
        signal = self._signal(text.removeprefix("ERROR: "))
        self._note_signal(signal)
        return self._by_signal(signal)

    def _signal(self, message: str) -> Signal:
        return error_text.signal_of(message, wall_s=self._wall_s, own=_OWN_WORDS)


def _toml(value: str) -> str:
    """A JSON string is a TOML one, but for one character."""
    return msgspec.json.encode(value).decode().replace("\x7f", "\\u007f")


_ONE_OPTIONS = (
    "-c --config -m --model -p --profile -s --sandbox -a --ask-for-approval -C --cd -i --image "
    "--output-schema -o --output-last-message --color --add-dir --enable --disable --local-provider"
)


class Codex:
    name = "codex"
    reports_cost = False
    _ONE = frozenset(_ONE_OPTIONS.split())

    def reader(self) -> CodexReader:
        return CodexReader()

    def wrote(self, stdout: bytes, stderr: bytes) -> bool:
        for line in stdout.splitlines()[:50]:
            event = _event.read(line) if line.startswith(b"{") else None
            if event is not None and event.type == "thread.started" and event.thread_id is not None:
                return True
        return b"OpenAI Codex v" in stderr[:4096]

    def launch(self, assignment: Assignment) -> Launch:
        """Its sandbox lets it write in its working directory, and it asks for no more.

        Said as overrides of its configuration: whatever the project says beats those. A session is forked by
        a verb, which has to follow the options.
        """
        settings = {"sandbox_mode": "workspace-write", "approval_policy": "never"}
        if assignment.model:
            settings["model"] = assignment.model
        if assignment.effort:
            settings["model_reasoning_effort"] = assignment.effort
        ours = command_line.defaults(assignment.args, ("--json",))
        for key, value in settings.items():
            ours += ["-c", f"{key}={_toml(value)}"]
        going_on = ["fork", "--", assignment.session, "-"] if assignment.session else []
        program = assignment.program or (self.name,)
        return Launch((*program, "exec", *ours, *assignment.args, *going_on))

    def resuming(self, argv: Sequence[str], session: str) -> list[str]:
        """``codex exec resume ID``, with the options of the first run; other verbs cannot be resumed."""
        launcher, program = command_line.split(argv)
        places = command_line.positions(program, one=self._ONE)
        verbs = [at for at in places if program[at] in ("exec", "e")][:1]
        if not verbs:
            return list(argv)
        verb = verbs[0]
        options = [
            program[at] for at in range(verb + 1, len(program)) if at not in places and program[at] != "--"
        ]
        return [*launcher, *program[: verb + 1], "resume", *options, session, "Continue."]
