"""What a run says of itself while it lasts: turns, session, cost; and what kept it from beginning."""

from __future__ import annotations

import pytest

from flyball.core.signals import End
from flyball.runtimes.registry import load
from flyball.testing.runtime_checks import read
from tests.cases import every
from tests.runtimes.recorded import recordings
from tests.runtimes.test_readers import judged, line, said


@every(
    "name, turns",
    [
        ("claude/ok_text", 1),
        ("claude/ok_tool", 2),
        ("claude/err_429", None),
        ("claude/tool_then_429", 1),
        ("claude/ok_text__format_text", None),
        ("codex/ok_text", 1),
        ("codex/ok_tool", 2),
        ("codex/tool_then_429", 1),
        ("gemini/ok_tool", 2),
        ("gemini/tool_then_429__lowretry", 1),
        ("opencode/ok_tool_fails", 2),
        ("opencode/tool_then_429", 1),
        ("opencode/midstream_then_ok", 1),
    ],
)
def test_a_turn_is_one_answer_with_the_tools_it_called(name: str, turns: int | None) -> None:
    assert judged(name)[0].progress.turns == turns


def test_every_stream_that_finished_took_a_turn_but_for_an_empty_one() -> None:
    without = {
        each.name
        for name, each in recordings()
        if each.streams and each.right == {End.FINISHED} and not read(load(name), each)[0].progress.turns
    }
    assert without == {"claude/empty", "claude/ok_text__format_json"}


def test_claudes_sub_agents_take_no_turns_of_its_own() -> None:
    def answer(id: str, parent: str | None) -> str:
        message = {"id": id, "model": "x", "content": []}
        return line(type="assistant", message=message, parent_tool_use_id=parent, session_id="s")

    told = [answer("a", None), answer("b", "t1"), answer("c", "t2"), answer("a", None), answer("b", "t1")]
    assert said("claude", "".join(told), None).progress.turns == 1
    assert said("claude", "".join([*told, answer("d", None)]), None).progress.turns == 2


def test_tools_that_gemini_calls_at_once_are_one_turn() -> None:
    use, result = line(type="tool_use", tool_name="a"), line(type="tool_result", status="success")
    assert said("gemini", use * 3 + result * 3 + use + result, None).progress.turns == 2


def test_a_gemini_that_never_answered_has_no_session_to_go_on_with() -> None:
    assert judged("gemini/err_429")[0].progress.session is None
    assert judged("gemini/tool_then_429__lowretry")[0].progress.session


def test_what_a_resumed_claude_cost_is_not_its_sessions_total() -> None:
    init = line(type="system", subtype="init", session_id="s")
    spent = {"sonnet": {"costUSD": 0.25}, "haiku": {"costUSD": 0.05}, "odd": None}
    result = {"type": "result", "is_error": False, "session_id": "s", "total_cost_usd": 4.0}
    told = line(**result, model_usage_since_last_result=spent)
    assert said("claude", init + told, 0).progress.cost_usd == pytest.approx(0.3)
    # One process may end several turns, each with a result of its own.
    assert said("claude", init + told + told, 0).progress.cost_usd == pytest.approx(0.6)
    assert said("claude", init + line(**result), 0).progress.cost_usd == 4.0


@every(
    "name, exit_code, stdout, stderr",
    [
        (
            "claude",
            1,
            line(
                type="result",
                subtype="error_during_execution",
                is_error=True,
                session_id="made-up",
                errors=["No conversation found with session ID: S"],
            ),
            "No conversation found with session ID: S\n",
        ),
        ("codex", 1, "", "Error: Session not found: S\n"),
        ("codex", 1, "", "Error: thread/fork: thread/fork failed: no rollout found for thread id S\n"),
        (
            "gemini",
            42,
            "",
            'Error resuming session: Invalid session identifier "S".\n  Searched in chats.\n',
        ),
        ("opencode", 1, "", "\x1b[91m\x1b[1mError: \x1b[0mSession not found\n"),
    ],
)
def test_a_session_that_is_not_there(name: str, exit_code: int, stdout: str, stderr: str) -> None:
    ending = said(name, stdout, exit_code, stderr)
    assert (ending.end, ending.session_gone, ending.progress.session) == (End.FAILED, True, None)
    assert "S" in ending.reason


def test_words_about_a_missing_session_are_believed_only_from_a_run_that_never_began() -> None:
    words = "Error: Session not found: S\n"
    started = line(type="thread.started", thread_id="t") + line(type="turn.started")
    assert not said("codex", started, 2, words).session_gone
    assert not said("codex", "done\n", 0, words).session_gone
    init = line(type="init", session_id="s", model="m")
    assert not said("gemini", init, 42, "Error resuming session: no\n").session_gone


def test_what_kept_it_from_starting_is_the_reason() -> None:
    assert said("codex", "", 1, "Error: unknown setting\n").reason == "unknown setting"
    gemini = said("gemini", "", 1, "An unexpected critical error occurred:Error: Invalid mode\n    at x\n")
    assert gemini.reason == "An unexpected critical error occurred:Error: Invalid mode"


def test_an_opencode_that_was_refused_a_permission_failed_unless_it_worked_on() -> None:
    def step(reason: str) -> str:
        return line(type="step_start", sessionID="s", part={"messageID": reason}) + line(
            type="step_finish", sessionID="s", part={"reason": reason}
        )

    asked = "\x1b[93m\x1b[1m! \x1b[0mpermission requested: bash (make); auto-rejecting\n"
    stopped = said("opencode", step("tool-calls"), 0, asked)
    assert (stopped.end, stopped.reason) == (
        End.FAILED,
        "it stopped because no person was there to permit it: bash (make)",
    )
    assert said("opencode", step("tool-calls") + step("stop"), 0, asked).end is End.FINISHED


# -- the account's windows ----------------------------------------------------------------------------------


def windows(name: str) -> dict[str, tuple[float, float | None]]:
    found = judged(name)[0].progress.windows
    return {each.name: (each.fraction, each.resets_at) for each in found}


def test_claude_tells_how_full_the_windows_of_its_account_are() -> None:
    assert windows("claude/ok_near_limit__oauth") == {"5h": (0.92, 1794731521.0), "7d": (0.4, 1794987121.0)}
    assert windows("claude/err_usage_limit__oauth") == {"5h": (1.0, 1794738722.0), "7d": (0.4, 1794987122.0)}
    assert windows("claude/ok_text__oauth") == {}


@every(
    "info",
    [
        {"unifiedWindows": 7},
        {"unifiedWindows": {"five_hour": None, "seven_day": {"utilization": "much"}}},
        {"unifiedWindows": {"five_hour": {"utilization": -0.5}}},
        {"unifiedWindows": {"five_hour": {"utilization": 1e300}}},
        {"unifiedWindows": {"five_hour": {"utilization": 0.5, "resetsAt": 9e10}}},
        {"rateLimitType": 5, "utilization": 0.5},
    ],
)
def test_a_window_that_cannot_be_is_not_believed(info: object) -> None:
    event = line(type="rate_limit_event", rate_limit_info=info, session_id="s")
    assert said("claude", event, None).progress.windows == ()


def test_a_rejected_window_is_full_even_where_no_part_is_told() -> None:
    info = {"status": "rejected", "rateLimitType": "seven_day_opus"}
    event = line(type="rate_limit_event", rate_limit_info=info, session_id="s")
    assert [(each.name, each.fraction) for each in said("claude", event, None).progress.windows] == [
        ("7d opus", 1.0)
    ]
