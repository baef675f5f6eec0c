"""claude (Claude Code) as ``claude -p`` prints it: stream-json, one JSON object, or text.

Every turn ends with ``result``. Of its fields ``is_error`` decides, since ``subtype`` says success even when
the provider refused; status, type and name of the error say what it was, and its words are read only where
those are silent. ``system/api_retry`` tells of a throttle while it lasts, ``rate_limit_event`` of a window.

A message comes once per block, and sub-agents' messages come between; the main conversation's are its turns.

An interrupt exits with 0, with an aborted result or none at all. In text mode only the last line and the exit
status are left; the line counts as an error because the exit status says so.

What claude's ``rate_limit_event`` says about the account's usage windows.

It comes with an answer of the provider, so it is the provider's own word: for every window the part that is
used and the moment at which it opens again. Older ones name one window only, and that only near its end.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import msgspec

from flyball.core.budget.usage_windows import UsageReport, is_believable
from flyball.core.durations import number, sensible_s
from flyball.core.signals import Certainty, Signal, SignalKind
from flyball.runtimes import error_text
from flyball.runtimes.port import Ending, Progress, Tokens
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

SCOPES = {"five_hour": "5h", "seven_day": "7d", "seven_day_opus": "7d opus", "seven_day_sonnet": "7d sonnet"}


def reports_in(info: Mapping[str, Any], *, wall_s: float) -> dict[str, UsageReport]:
    """By the window's name; nothing that cannot be believed."""
    several = info.get("unifiedWindows")
    windows = [(info.get("rateLimitType"), info), *(several.items() if isinstance(several, Mapping) else ())]
    found = {}
    for name, window in windows:
        if isinstance(window, Mapping) and (report := _report(name, window, wall_s)) is not None:
            found[report.name] = report
    return found


def _report(name: object, window: Mapping[str, Any], wall_s: float) -> UsageReport | None:
    fraction, resets_at = number(window.get("utilization")), number(window.get("resetsAt"))
    if window.get("status") == "rejected":
        fraction = max(1.0, fraction or 0.0)
    if not isinstance(name, str) or fraction is None or not is_believable(fraction, resets_at, wall_s):
        return None
    return UsageReport(name=SCOPES.get(name, name[:40]), fraction=fraction, at=wall_s, resets_at=resets_at)


_DULL = (b'{"type":"user"', b'{"type":"stream_event"', b'{"type":"keep_alive"')
_ASSISTANT = b'{"type":"assistant"'
_TOOL = b'"type":"tool_use"'
_NAME = b'"name":"'
_FIRST_BACKOFF_S = 1.0
"""Its own first wait is about half a second; a longer first one is the provider's Retry-After."""
_NAMED = {
    "usage_limit_reached": SignalKind.WINDOW_USED_UP,
    "billing_error": SignalKind.CREDIT_GONE,
    "rate_limit": SignalKind.THROTTLED,
    "overloaded": SignalKind.OVERLOADED,
    "authentication_failed": SignalKind.AUTH,
}
_NO_SESSION = ("No conversation found with session ID", "Error: --resume requires a valid session ID")
_ABORTED_TEXT = "Execution error"
"""All it prints in text mode after an interrupt."""
_PREFIX = re.compile(r"^API Error:(?: \d{3})? ")
_TEXT_ERRORS = ("API Error:", "Credit balance is too low", "You've hit your", "Claude AI usage limit reached")


class _Usage(msgspec.Struct):
    input_tokens: int = 0
    cache_creation_input_tokens: int = 0
    cache_read_input_tokens: int = 0
    output_tokens: int = 0

    def tokens(self) -> Tokens:
        sent = self.input_tokens + self.cache_creation_input_tokens + self.cache_read_input_tokens
        return Tokens(sent, self.output_tokens)


class _Message(msgspec.Struct):
    id: str = ""
    model: str = ""
    usage: _Usage | None = None


class _Assistant(msgspec.Struct):
    message: _Message
    parent_tool_use_id: str | None = None


class _Line(msgspec.Struct):
    """Everything that is asked of the rare lines."""

    type: Any = None
    subtype: Any = None
    session_id: Any = None
    model: Any = None
    is_error: Any = None
    error: Any = None
    error_status: Any = None
    attempt: Any = None
    retry_delay_ms: Any = None
    terminal_reason: Any = None
    api_error: Any = None
    api_error_status: Any = None
    api_error_type: Any = None
    rate_limit_info: Any = None
    result: Any = None
    errors: Any = None
    usage: Any = None
    total_cost_usd: Any = None
    model_usage_since_last_result: Any = None
    fallback_model: Any = None
    message: Any = None
    tool_name: Any = None
    tool_use_id: Any = None


_assistant, any_line, _usage = Event(_Assistant), Event(_Line), Event(_Usage)


class ClaudeReader(LineReader):
    def __init__(self) -> None:
        super().__init__()
        self._streaming = False
        self._result: _Line | None = None
        self._error_name: str | None = None
        self._resets_at: float | None = None
        self._window = ""
        """When the rejected window opens again, as a field told it; words about it are not read then."""
        self._last_text = b""
        self._text_lines = 0
        self._answer = b""
        self._message: _Message | None = None
        self._turn_id = ""
        self._done_tokens = Tokens()
        self._counted = False
        """The run has told its tokens itself."""

    def _line(self, line: bytes) -> None:
        if line.startswith(_DULL):
            self._streaming = True
            return
        if line.startswith(_ASSISTANT) and b'"error":"' not in line:
            self._assistant_line(line)
        elif line.startswith(b"{"):
            self._rare_line(line)
        elif not line.isspace():
            self._last_text = line[:4096]
            self._text_lines += 1

    def _assistant_line(self, line: bytes) -> None:
        """One block of an answer. Kept as it is: what it says is worked out when it is asked for."""
        found = _assistant.read(line)
        if found is None:
            return
        self._streaming = True
        self._note_work("")
        self._answer = line
        self._error_name = None
        message, before = found.message, self._message
        if message.id != self._turn_id and found.parent_tool_use_id is None:
            self._turn_id = message.id
            self._count_turn()
        if before is not None and before.id != message.id and before.usage is not None:
            self._done_tokens += before.usage.tokens()
        # The same message comes once per block, each time with the usage so far.
        self._message = message

    def progress(self) -> Progress:
        message = self._message
        if message is not None:
            self._model = message.model or self._model
            if not self._counted:
                self._tokens = self._done_tokens + (message.usage.tokens() if message.usage else Tokens())
        if not self._activity and self._answer:
            tool = self._answer.find(_TOOL)
            self._activity = f"tool {_name_after(self._answer, tool)}" if tool >= 0 else "writing"
            event = any_line.read(self._answer) if self._session is None else None
            self._session = word(event.session_id) if event is not None else self._session
        return super().progress()

    def _rare_line(self, line: bytes) -> None:
        event = any_line.read(line)
        if event is None:
            return
        kind = event.type
        self._streaming = self._streaming or isinstance(kind, str)
        self._session = word(event.session_id) or self._session
        if kind == "system":
            self._system(event)
        elif kind == "rate_limit_event":
            self._rate_limit(event.rate_limit_info)
        elif kind == "assistant":
            self._assistant_error(event, line)
        elif kind == "result":
            self._end_turn(event)

    def _system(self, event: _Line) -> None:
        if event.subtype == "init":
            self._model = word(event.model) or self._model
            self._result = None
        elif event.subtype == "model_fallback":
            self._model = word(event.fallback_model) or self._model
        elif event.subtype == "permission_denied":
            tool = word(event.tool_name) or "a tool"
            asked = _asked_of(self._answer, event.tool_use_id)
            self._note_denial(f"{tool}: {asked}" if asked else tool)
        elif event.subtype == "api_retry":
            code = status(event.error_status)
            self._activity = f"trying again after {code or 'an error'}"
            signal = self._signal(word(event.error), code, None, "")
            delay_s = sensible_s((number(event.retry_delay_ms) or 0.0) / 1000)
            if event.attempt == 1 and delay_s is not None and delay_s >= _FIRST_BACKOFF_S:
                signal = replace(signal, retry_after_s=delay_s)
            self._note_signal(signal)

    def _rate_limit(self, info: Any) -> None:
        if not isinstance(info, dict):
            return
        named = word(info.get("rateLimitType")) or ""
        left_s = error_text.until(number(info.get("resetsAt")), wall_s=self._wall_s)
        scope = SCOPES.get(named, named)
        self._windows.update(reports_in(info, wall_s=self._wall_s))
        if info.get("status") == "rejected" and not info.get("isUsingOverage"):
            self._resets_at = number(info.get("resetsAt"))
            self._window = scope
            self._note_signal(
                Signal(SignalKind.WINDOW_USED_UP, left_s, f"{named or 'usage'} window rejected", scope)
            )
        elif info.get("status") == "allowed_warning":
            self._note_signal(
                Signal(SignalKind.NEAR_LIMIT, None, f"{named or 'usage'} window nearly used up", scope)
            )

    def _assistant_error(self, event: _Line, line: bytes) -> None:
        """The synthetic message in which it reports an error; anything else is an answer."""
        name = word(event.error)
        if name is None:
            self._assistant_line(line)
            return
        self._error_name = name
        signal = self._signal(
            name, status(event.api_error_status), word(event.api_error_type), _message_text(event.message)
        )
        self._note_signal(signal)

    def _end_turn(self, event: _Line) -> None:
        self._result = event
        if _is_session_gone(event):
            # It names one that it has just made up.
            self._session = None
        self._count_cost(event)
        if isinstance(event.usage, dict):
            usage = _usage.read(msgspec.json.encode(event.usage))
            self._tokens = usage.tokens() if usage is not None else self._tokens
            self._counted = usage is not None
        if _is_error(event):
            self._note_signal(self._result_signal(event))
        else:
            self._note_work("done")

    def _count_cost(self, event: _Line) -> None:
        """What this run cost: the total of one that was resumed has its session's earlier cost in it."""
        models = event.model_usage_since_last_result
        if isinstance(models, dict):
            each = [number(used.get("costUSD")) for used in models.values() if isinstance(used, dict)]
            self._cost_usd = (self._cost_usd or 0.0) + sum(cost or 0.0 for cost in each)
        elif event.total_cost_usd is not None:
            self._cost_usd = number(event.total_cost_usd)

    def _judge(self, exit_code: int | None) -> Ending:
        if self._result is not None:
            return self._by_result(self._result, exit_code)
        number_of_signal = killed_by(exit_code)
        if number_of_signal is not None:
            return killed_ending(number_of_signal)
        if self._streaming:
            if exit_code == 0:
                return killed_ending(None)
            return (
                unknown_ending("its output ends before its result")
                if exit_code is None
                else by_exit(exit_code)
            )
        return self._by_text(exit_code)

    def _by_result(self, event: _Line, exit_code: int | None) -> Ending:
        if _is_aborted(event, exit_code):
            return killed_ending(killed_by(exit_code))
        if _is_session_gone(event):
            return session_gone_ending(error_text.detail(_message(event), None))
        if _is_error(event):
            return self._by_signal(self._result_signal(event), message=_message(event))
        if exit_code and killed_by(exit_code) is None:
            return failed_ending(f"it said it is done and exited with status {exit_code}")
        return replace(finished_ending(), last_words=event.result if isinstance(event.result, str) else "")

    def _by_text(self, exit_code: int | None) -> Ending:
        text = text_of(self._last_text).strip()
        if exit_code == 0 and text == _ABORTED_TEXT and self._text_lines == 1:
            return killed_ending(None)
        if not exit_code or not text.replace("\u2019", "'").startswith(_TEXT_ERRORS):
            shown = error_text.detail(text, None)
            return failed_ending(shown) if exit_code and shown else by_exit(exit_code)
        signal = error_text.signal_of(text, wall_s=self._wall_s)
        self._note_signal(signal)
        return self._by_signal(signal)

    def _result_signal(self, event: _Line) -> Signal:
        name = word(event.api_error) or self._error_name
        text = _message(event)
        return self._signal(name, status(event.api_error_status), word(event.api_error_type), text)

    def _signal(self, name: str | None, code: int | None, kind: str | None, text: str) -> Signal:
        """The named error first where it is precise, then the status, then the type, then the words."""
        named = _NAMED.get(name or "")
        body = {"error": {"type": kind, "message": _PREFIX.sub("", text)}} if kind else None
        read = error_text.signal_of(text, wall_s=self._wall_s, status=code, body=body)
        read = replace(read, detail=read.detail or name or "")
        sure = named in (SignalKind.WINDOW_USED_UP, SignalKind.CREDIT_GONE)
        if named is not None and (sure or (code is None and read.certainty is not Certainty.STATED)):
            read = replace(read, kind=named, certainty=Certainty.STATED)
        if read.kind is SignalKind.WINDOW_USED_UP and self._resets_at is not None:
            left_s = error_text.until(self._resets_at, wall_s=self._wall_s)
            # Its message names the window only sometimes; the event before it always does.
            read = replace(read, retry_after_s=left_s, scope=read.scope or self._window)
        return read


def _is_error(event: _Line) -> bool:
    return bool(event.is_error) or (isinstance(event.subtype, str) and event.subtype.startswith("error"))


def _is_session_gone(event: _Line) -> bool:
    return _is_error(event) and _message(event).startswith(_NO_SESSION)


def _is_aborted(event: _Line, exit_code: int | None) -> bool:
    """It was interrupted: it says so, or exits with 0 although its turn failed."""
    if isinstance(event.terminal_reason, str) and event.terminal_reason.startswith("aborted"):
        return True
    return event.subtype == "error_during_execution" and exit_code == 0


def _message(event: _Line) -> str:
    if isinstance(event.result, str) and event.result:
        return event.result
    if isinstance(event.errors, list) and event.errors and isinstance(event.errors[0], str):
        return event.errors[0]
    return word(event.subtype) or ""


def _message_text(message: Any) -> str:
    """The text of a synthetic message."""
    content = message.get("content") if isinstance(message, dict) else None
    first = content[0] if isinstance(content, list) and content else None
    text = first.get("text") if isinstance(first, dict) else None
    return text if isinstance(text, str) else ""


def _asked_of(answer: bytes, tool_use_id: Any) -> str:
    """What an answer asked of a tool: its command, its path, or nothing that can be named."""
    event = any_line.read(answer)
    message = event.message if event is not None else None
    blocks = message.get("content") if isinstance(message, dict) else None
    for block in blocks if isinstance(blocks, list) else ():
        if isinstance(block, dict) and block.get("id") == tool_use_id:
            given = block.get("input")
            names = ("command", "file_path", "path", "url")
            found = (word(given.get(name)) for name in names) if isinstance(given, dict) else iter(())
            return next((each for each in found if each), "")
    return ""


def _name_after(line: bytes, start: int) -> str:
    at = line.find(_NAME, start, start + 300)
    end = line.find(b'"', at + len(_NAME), at + len(_NAME) + 80)
    return text_of(line[at + len(_NAME) : end]) if 0 <= at < end else "use"
