"""gemini (Gemini CLI) as ``gemini -p`` prints it: stream-json, one JSON object, or text.

``result`` is the terminal event and ``status`` in it the truth. The exit status is the HTTP status modulo 256
(173 is 429), except in text mode, and 0 after a signal, a blocked answer or a stream that broke off. Its own
retries are told on stderr only, in blocks that begin with "Attempt n failed" or "Error when talking to".

A stream that ends "without a finish reason" hides what ended it, a throttle as well as a lost connection:
that is *unknown*.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import msgspec

from flyball.core.durations import number
from flyball.core.signals import Certainty, End, Signal, SignalKind
from flyball.runtimes import error_text
from flyball.runtimes import launch_arguments as command_line
from flyball.runtimes.port import Assignment, Ending, Launch, Progress, Tokens
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

_MESSAGE = b'{"type":"message"'
_TOOL_USE = b'{"type":"tool_use"'
_TOOL_RESULT = b'{"type":"tool_result"'
_STATUS_BY_EXIT = {code % 256: code for code in (400, 401, 403, 404, 408, 429, 500, 502, 503, 504, 529)}
_OWN_WORDS: error_text.Words = {
    "daily quota": SignalKind.WINDOW_USED_UP,
    "exceeded your current quota": SignalKind.THROTTLED,
    "quota exceeded": SignalKind.THROTTLED,
}
_HIDDEN = "without a finish reason"
_ATTEMPT = re.compile(r"^Attempt \d+ failed")
_FATAL = re.compile(r"^Error when talking to Gemini API")
_REPORT = re.compile(r"^.*?Full report available at: \S+ ")
_NO_SESSION = "Error resuming session:"
_NO_START = re.compile(rf"^(?:{_NO_SESSION}|An unexpected critical error occurred:)")
_SIDE = re.compile(r"^Error generating content via API")
_ATTEMPT_END = re.compile(r"Retrying after \d|Max attempts reached|Retrying with backoff")
_JSON_LIMIT = 1 << 20
_BLOCK_LIMIT = 8192


class _Line(msgspec.Struct):
    type: Any = None
    session_id: Any = None
    model: Any = None
    severity: Any = None
    message: Any = None
    status: Any = None
    error: Any = None
    stats: Any = None
    response: Any = None
    content: Any = None


_event = Event(_Line)


class GeminiReader(LineReader):
    def __init__(self) -> None:
        super().__init__()
        self._streaming = False
        self._printed = self._stderr_seen = False
        self._result: _Line | None = None
        self._answering = False
        """The answer that came last is not over: no tool has said anything since."""
        self._said: list[bytes] = []
        self._said_size = 0
        self._start_error = ""
        self._last_error = ""
        self._object: _Gathered | None = None
        self._stderr_object: _Gathered | None = None
        self._gathering: _Gathered | None = None
        self._block: list[str] = []
        self._block_size = 0
        self._fatal = ""
        """The last error block that it did not try again after."""

    # -- stdout -----------------------------------------------------------------------------------

    def _line(self, line: bytes) -> None:
        if line.startswith(_MESSAGE):
            self._streaming = True
            if b'"role":"assistant"' in line[:200]:
                self._note_work("writing")
                if not self._answering:
                    self._begin_answer()
                # An answer comes in pieces; kept as they are, since they are hardly ever asked for.
                self._said_size += len(line)
                if self._said_size <= _JSON_LIMIT:
                    self._said.append(line)
        elif line.startswith(_TOOL_USE):
            self._streaming = True
            self._note_work("tool")
            if not self._answering:
                self._begin_answer()
        elif line.startswith(_TOOL_RESULT):
            self._streaming = True
            self._answering = False
            self._note_work("tool")
        elif line.startswith(b'{"'):
            self._rare_line(line)
        elif line.rstrip() == b"{":
            self._object = _Gathered(line)
        elif self._object is not None:
            self._object.add(line)
        self._printed = True

    def _begin_answer(self) -> None:
        self._answering = True
        self._said, self._said_size = [], 0
        self._count_turn()

    def progress(self) -> Progress:
        """A session is saved with its first answer; before that there is nothing to go on with."""
        now = super().progress()
        return replace(now, session=None) if self._streaming and self._turns is None else now

    def _rare_line(self, line: bytes) -> None:
        event = _event.read(line)
        if event is None or not isinstance(event.type, str):
            return
        self._streaming = True
        self._session = word(event.session_id) or self._session
        if event.type == "init":
            self._model = word(event.model) or self._model
            self._result = None
            self._answering = False
        elif event.type == "error" and event.severity == "error":
            self._last_error = word(event.message) or ""
        elif event.type == "result" and event.status in ("success", "error"):
            self._result = event
            self._count(event.stats)
            if event.status == "error":
                self._note_signal(self._signal(self._error_text(event), None))
            else:
                self._note_work("done")

    def _error_text(self, event: _Line) -> str:
        message = event.error.get("message") if isinstance(event.error, dict) else None
        return word(message) or self._last_error

    def _count(self, stats: Any) -> None:
        if not isinstance(stats, dict):
            return
        models = stats.get("models")
        if isinstance(models, dict) and models:
            self._model = next(reversed(models)) if self._model in (None, "auto") else self._model
        sent, came = number(stats.get("input_tokens")), number(stats.get("output_tokens"))
        if sent is not None and came is not None:
            self._tokens = Tokens(int(sent), int(came))
        elif isinstance(models, dict):
            each = [
                m["tokens"]
                for m in models.values()
                if isinstance(m, dict) and isinstance(m.get("tokens"), dict)
            ]
            sums = [sum(number(t.get(key)) or 0 for t in each) for key in ("prompt", "candidates")]
            self._tokens = Tokens(int(sums[0]), int(sums[1])) if each else None

    # -- stderr -----------------------------------------------------------------------------------

    def _stderr_line(self, line: bytes) -> None:
        self._stderr_seen = True
        text = text_of(line, _BLOCK_LIMIT)
        if text == "{":
            self._close_block()
            self._gathering = self._stderr_object = _Gathered(line)
        elif not self._printed and _NO_START.match(text):
            self._start_error = error_text.detail(text, None)
        elif text.startswith("[ERROR] "):
            self._last_error = text.removeprefix("[ERROR] ")
        elif _ATTEMPT.match(text) or _FATAL.match(text) or _SIDE.match(text):
            self._close_block()
            self._add_to_block(text)
        elif self._gathering is not None:
            self._gathering.add(line)
            self._gathering = None if text == "}" else self._gathering
        elif self._block and not text.startswith("    at "):
            self._add_to_block(text)

    def _add_to_block(self, text: str) -> None:
        if self._block_size < _BLOCK_LIMIT:
            self._block.append(text)
            self._block_size += len(text)
        attempt = bool(_ATTEMPT.match(self._block[0]))
        if (attempt and _ATTEMPT_END.search(text)) or text == "}":
            self._close_block()

    def _close_block(self) -> None:
        if not self._block:
            return
        first, text = self._block[0], "\n".join(self._block)
        self._block, self._block_size = [], 0
        if _ATTEMPT.match(first):
            self._activity = "trying again"
            self._fatal = ""
        elif _FATAL.match(first):
            self._fatal = _REPORT.sub("", text)
        self._note_signal(self._signal(text, None))

    # -- the ending -------------------------------------------------------------------------------

    def _judge(self, exit_code: int | None) -> Ending:
        self._close_block()
        self._read_objects()
        if self._result is not None:
            return self._by_result(self._result, exit_code)
        number_of_signal = killed_by(exit_code)
        if number_of_signal is not None:
            return killed_ending(number_of_signal)
        if self._streaming:
            if exit_code == 0:
                return killed_ending(None)
            if exit_code is None:
                return unknown_ending("its output ends before its result")
            return self._judge_exit(exit_code)
        return self._by_text(exit_code)

    def _read_objects(self) -> None:
        for gathered in (self._object, self._stderr_object):
            event = gathered.read() if gathered is not None else None
            if event is None or event.session_id is None:
                continue
            event.status = "error" if event.error is not None else "success"
            self._session = word(event.session_id) or self._session
            self._result = event
            self._count(event.stats)

    def _by_result(self, event: _Line, exit_code: int | None) -> Ending:
        if event.status == "success":
            if exit_code and killed_by(exit_code) is None:
                return failed_ending(f"it said it is done and exited with status {exit_code}")
            last_words = event.response
            if not isinstance(last_words, str):
                pieces = (_event.read(line) for line in self._said)
                last_words = "".join(word(each.content) or "" for each in pieces if each is not None)
            return replace(finished_ending(), last_words=last_words)
        text = self._error_text(event)
        code = event.error.get("code") if isinstance(event.error, dict) else None
        return self._by_error(text, status(code) or _STATUS_BY_EXIT.get(exit_code or 0))

    def _by_text(self, exit_code: int | None) -> Ending:
        if exit_code == 0 and self._printed and not self._last_error:
            return finished_ending()
        if self._fatal and exit_code:
            return self._by_error(self._fatal, _STATUS_BY_EXIT.get(exit_code))
        if self._last_error:
            return self._by_error(self._last_error, _STATUS_BY_EXIT.get(exit_code or 0))
        if exit_code == 0:
            # An empty answer is told of on stderr; without having seen it nothing can be said.
            return (
                killed_ending(None)
                if self._stderr_seen
                else unknown_ending("it exited with 0 and printed nothing")
            )
        return self._judge_exit(exit_code)

    def _by_error(self, text: str, code: int | None) -> Ending:
        if _HIDDEN in text and code is None:
            return unknown_ending("the model's stream broke off and nothing says why")
        signal = self._signal(text, code)
        self._note_signal(signal)
        return self._by_signal(signal)

    def _judge_exit(self, exit_code: int | None) -> Ending:
        code = _STATUS_BY_EXIT.get(exit_code or 0)
        if code is None:
            plain = by_exit(exit_code)
            if self._printed or not self._start_error or plain.end is not End.FAILED:
                return plain
            return (session_gone_ending if self._start_error.startswith(_NO_SESSION) else failed_ending)(
                self._start_error
            )
        read = error_text.signal_of("", wall_s=self._wall_s, status=code)
        signal = replace(read, detail=f"HTTP {code} by its exit status", certainty=Certainty.GUESSED)
        self._note_signal(signal)
        return self._by_signal(signal)

    def _signal(self, text: str, code: int | None) -> Signal:
        return error_text.signal_of(text, wall_s=self._wall_s, status=code, own=_OWN_WORDS)


class _Gathered:
    """One JSON object over many lines, bounded."""

    def __init__(self, first: bytes) -> None:
        self._lines, self._size = [first], len(first)

    def add(self, line: bytes) -> None:
        self._size += len(line)
        if self._size <= _JSON_LIMIT:
            self._lines.append(line)

    def read(self) -> _Line | None:
        return _event.read(b"\n".join(self._lines)) if self._size <= _JSON_LIMIT else None


class Gemini:
    name = "gemini"
    reports_cost = False

    def reader(self) -> GeminiReader:
        return GeminiReader()

    def wrote(self, stdout: bytes, stderr: bytes) -> bool:
        for line in stdout.splitlines()[:50]:
            event = _event.read(line) if line.startswith(b"{") else None
            if event is not None and event.type == "init" and event.session_id is not None:
                return True
        pretty = stdout.startswith(b'{\n  "session_id"') and b'"response"' in stdout
        return (
            pretty or b"talking to Gemini API" in stderr or b"\nRipgrep is not available. Falling" in stderr
        )

    def launch(self, assignment: Assignment) -> Launch:
        """It edits what is in its working directory and runs what it is told to; tools that it would have to
        ask for it is not shown. A command is allowed by its beginning.

        In a folder that it was never told to trust it would not start, and here no person can tell it.
        """
        model, session = assignment.model, assignment.session
        options = command_line.defaults(
            assignment.args,
            ("--output-format=stream-json", "-o"),
            ("--approval-mode=auto_edit", "--yolo", "-y"),
            ("--skip-trust",),
            (model and f"--model={model}", "-m"),
            (f"--resume={session}" if session else "", "-r"),
        )
        ours = command_line.defaults(assignment.args, ("--allowed-tools", "--approval-mode", "--yolo", "-y"))
        parts = [part for each in assignment.commands for part in command_line.simple_commands(each)]
        for command in dict.fromkeys((*assignment.command_beginnings, *parts)) if ours else ():
            # A comma would begin another tool.
            if "," not in command:
                options.append(f"--allowed-tools=run_shell_command({command})")
        return Launch((*(assignment.program or (self.name,)), *options, *assignment.args))

    def resuming(self, argv: Sequence[str], session: str) -> list[str]:
        """``--resume`` and the prompt again."""
        launcher, program = command_line.split(argv)
        return [*launcher, *command_line.without(program, valued=("-r", "--resume")), "--resume", session]
