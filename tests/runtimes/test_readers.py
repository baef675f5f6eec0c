"""What the readers make of things, where one recording or none shows it."""

from __future__ import annotations

import json
import re
import tracemalloc

import pytest

from flyball.core.signals import Certainty, End, Signal, SignalKind
from flyball.runtimes.port import Ending, Tokens
from flyball.runtimes.registry import NAMES, load
from flyball.testing.runtime_checks import WALL_S, read
from tests.cases import every
from tests.runtimes.recorded import of, recording, recordings

GREP = re.compile(rb"429|rate.?limit", re.IGNORECASE)


def judged(name: str) -> tuple[Ending, list[Signal]]:
    return read(load(name.partition("/")[0].partition("-")[0]), recording(name))


def said(runtime: str, stdout: str, exit_code: int | None, stderr: str = "") -> Ending:
    reader = load(runtime).reader()
    reader.feed(stdout.encode(), wall_s=WALL_S)
    reader.feed_stderr(stderr.encode(), wall_s=WALL_S)
    return reader.finish(exit_code, wall_s=WALL_S)


def line(**fields: object) -> str:
    return json.dumps(fields, separators=(",", ":")) + "\n"


def test_a_search_for_429_is_wrong_on_many_runs_where_the_readers_are_right() -> None:
    wrong = [
        each.name
        for _, each in recordings()
        if bool(GREP.search(each.stdout)) != (End.LIMITED in each.right) and End.UNKNOWN not in each.right
    ]
    assert len(wrong) > 50
    for name in wrong:
        ending, _ = judged(name)
        assert ending.end in recording(name).right, name


@pytest.mark.parametrize(
    "name", ["claude/err_429_then_ok", "claude/midstream_then_ok", "gemini/err_529_then_ok"]
)
def test_a_throttle_it_got_over_is_one_signal_and_no_death(name: str) -> None:
    ending, signals = judged(name)
    assert ending.end is End.FINISHED
    assert ending.signal is None
    assert len(signals) == 1


@pytest.mark.parametrize(
    "name",
    [
        "claude-2.1.197/ok_talks_429",
        "codex/ok_talks_429",
        "codex/ok_tool_prints_429",
        "opencode/ok_talks_429",
    ],
)
def test_talking_about_a_rate_limit_is_nothing(name: str) -> None:
    ending, signals = judged(name)
    assert (ending.end, signals) == (End.FINISHED, [])


def test_a_used_up_window_says_which_and_until_when_and_is_told_once() -> None:
    ending, signals = judged("claude/err_usage_limit__oauth")
    assert [signal.kind for signal in signals] == [SignalKind.WINDOW_USED_UP]
    assert ending.signal is not None
    assert (ending.signal.scope, ending.signal.retry_after_s) == ("5h", 1794738722 - WALL_S)
    assert ending.told


def test_a_reset_in_the_past_or_a_lifetime_away_is_not_a_wait() -> None:
    for resets_at in (WALL_S - 60, WALL_S + 4e9, -1, "soon", None, True):
        reader = load("claude").reader()
        info = {"status": "rejected", "rateLimitType": "five_hour", "resetsAt": resets_at}
        text = line(type="rate_limit_event", rate_limit_info=info)
        (signal,) = reader.feed(text.encode(), wall_s=WALL_S)
        assert (signal.kind, signal.retry_after_s) == (SignalKind.WINDOW_USED_UP, None)


def test_an_allowed_window_is_not_a_signal_and_a_nearly_full_one_is_near() -> None:
    assert judged("claude/ok_text__oauth")[1] == []
    assert [signal.kind for signal in judged("claude/ok_near_limit__oauth")[1]] == [SignalKind.NEAR_LIMIT]


def test_claudes_first_long_wait_is_the_providers_and_its_own_backoff_is_not() -> None:
    assert judged("claude/err_429_ra45__default")[1][0].retry_after_s == 45.0
    assert judged("claude/err_429_noheader")[1][0].retry_after_s is None


@every(
    "name, kind",
    [
        ("claude/err_credit", SignalKind.CREDIT_GONE),
        ("claude/err_api_usage_cap", SignalKind.CREDIT_GONE),
        ("codex/err_credit__format_text", SignalKind.CREDIT_GONE),
        ("codex/err_usage_limit", SignalKind.WINDOW_USED_UP),
        ("gemini/err_credit", SignalKind.WINDOW_USED_UP),
        ("opencode/err_credit__openai_compatible", SignalKind.CREDIT_GONE),
        ("claude/err_529", SignalKind.OVERLOADED),
        ("codex/err_529_raw", SignalKind.OVERLOADED),
        ("gemini/err_429_long", SignalKind.THROTTLED),
    ],
)
def test_credit_a_window_an_overload_and_a_throttle_are_four_things(name: str, kind: SignalKind) -> None:
    ending, _ = judged(name)
    assert ending.signal is not None
    assert ending.signal.kind is kind


def test_how_a_reader_knows_is_said() -> None:
    stated, worded = judged("claude/err_429")[0].signal, judged("codex/err_429")[0].signal
    guessed = said("gemini", "", 173).signal
    assert stated
    assert worded
    assert guessed
    certainties = [signal.certainty for signal in (stated, worded, guessed)]
    assert certainties == [Certainty.STATED, Certainty.WORDED, Certainty.GUESSED]


@pytest.mark.parametrize(
    "name", ["claude/ok_tool", "codex/ok_tool", "gemini/ok_tool", "opencode/ok_tool_fails"]
)
def test_session_and_tokens_are_read_and_input_counts_the_cached_ones_everywhere(name: str) -> None:
    progress = judged(name)[0].progress
    assert progress.session
    assert progress.tokens == Tokens(4000, 50)
    assert progress.active_at == WALL_S


@pytest.mark.parametrize(
    "name", ["claude/ok_tool", "codex/ok_tool", "gemini/ok_tool", "opencode/ok_tool__openai_compatible"]
)
def test_the_last_words_are_the_models_own_and_whole(name: str) -> None:
    assert judged(name)[0].last_words == "Done: the answer is 42."


@pytest.mark.parametrize("name", ["codex/ok_tool_prints_429", "gemini/ok_tool_prints_429"])
def test_what_a_tool_printed_is_not_the_models_word(name: str) -> None:
    assert judged(name)[0].last_words == "The endpoint answered; all done."


def test_cost_and_model_are_read_where_they_are_printed() -> None:
    claude, opencode = judged("claude/ok_tool")[0].progress, judged("opencode/ok_tool_fails")[0].progress
    assert (claude.cost_usd, claude.model) == (0.00546, "claude-sonnet-5-5")
    assert opencode.cost_usd == pytest.approx(2 * 0.004215)
    assert judged("gemini/ok_text__auto_model")[0].progress.model == "gemini-3.8-flash"


def test_tokens_of_a_killed_run_are_those_it_told_until_then() -> None:
    cut = recording("claude/ok_tool").stdout.rpartition(b'{"duration')[0]
    reader = load("claude").reader()
    reader.feed(cut, wall_s=WALL_S)
    ending = reader.finish(-9, wall_s=WALL_S)
    assert (ending.end, ending.reason) == (End.KILLED, "SIGKILL ended it")
    assert ending.progress.tokens == Tokens(4000, 2)


def test_a_run_killed_while_throttled_says_both() -> None:
    ending, signals = judged("claude/err_429_ra45__default")
    assert ending.reason == "SIGTERM ended it while the provider held it up"
    assert len(signals) == 1


def test_a_second_episode_is_told_again_after_work_in_between() -> None:
    retry = line(
        type="system",
        subtype="api_retry",
        attempt=1,
        retry_delay_ms=500,
        error_status=429,
        error="rate_limit",
    )
    work = line(type="assistant", message={"id": "m", "model": "x", "content": []}, session_id="s")
    reader = load("claude").reader()
    signals = reader.feed((retry * 3 + work + retry * 2).encode(), wall_s=WALL_S)
    assert [signal.kind for signal in signals] == [SignalKind.THROTTLED] * 2


def test_text_mode_believes_its_last_line_only_under_a_failing_exit_status() -> None:
    text = "API Error: Request rejected (429) · This request would exceed your limit\n"
    assert said("claude", text, 1).end is End.LIMITED
    assert said("claude", text, 0).end is End.FINISHED
    assert said("claude", text + "and that is how I fixed it\n", 1).end is End.FAILED


def test_what_codex_tools_print_on_stderr_is_not_believed() -> None:
    tool = "ERROR: rate limit exceeded\n"
    assert said("codex", "", 1, tool + "ERROR: unexpected status 401 Unauthorized\n").end is End.FAILED
    assert said("codex", "done\n", 0, tool).end is End.FINISHED


def test_the_count_of_tokens_after_codexs_last_error_hides_nothing() -> None:
    error = "ERROR: exceeded retry limit, last status: 429 Too Many Requests\n"
    assert said("codex", "", 1, f"{error}tokens used\n1,225\n").end is End.LIMITED
    assert said("codex", "", 1, f"{error}tests failed\n1,225\n").end is End.FAILED


def test_an_interrupted_claude_says_so_in_its_result_and_exits_with_0() -> None:
    init = line(type="system", subtype="init", session_id="s")
    result = {"type": "result", "subtype": "error_during_execution", "is_error": True, "session_id": "s"}
    assert said("claude", init + line(**result, terminal_reason="aborted_streaming"), 0).end is End.KILLED
    assert said("claude", init + line(**result), 0).end is End.KILLED
    assert said("claude", init + line(**result), 1).end is End.FAILED
    assert said("claude", "Execution error\n", 0).end is End.KILLED
    assert said("claude", "The log says:\nExecution error\n", 0).end is End.FINISHED


def test_an_interrupted_codex_leaves_one_line_in_text_mode() -> None:
    assert said("codex", "", 1, "ERROR: Reconnecting... 1/5\nturn interrupted\n").end is End.KILLED


def test_a_gemini_that_printed_nothing_and_exits_with_0_was_interrupted_if_stderr_told_of_nothing_else() -> (
    None
):
    assert said("gemini", "", 0, "Ripgrep is not available.\n").end is End.KILLED
    assert said("gemini", "", 0, "[ERROR] The model returned an empty response\n").end is End.FAILED
    assert said("gemini", "\n", 0).end is End.UNKNOWN


def test_a_body_in_a_message_is_shown_as_what_it_says() -> None:
    body = (
        '{"error": {"message": "Your input exceeds the context window.", "code": "context_length_exceeded"}}'
    )
    text = line(type="thread.started", thread_id="t") + line(type="turn.failed", error={"message": body})
    assert said("codex", text, 1).reason == "Your input exceeds the context window."


def test_a_link_about_rate_limits_in_another_error_means_nothing() -> None:
    failure = {"message": "The model does not exist, see https://example.test/rate-limits#429"}
    text = line(type="thread.started", thread_id="t") + line(type="turn.failed", error=failure)
    assert said("codex", text, 1).end is End.FAILED


def test_an_opencode_retry_after_comes_from_the_answers_headers() -> None:
    ending, _ = judged("opencode/err_429")
    assert ending.signal is not None
    assert ending.signal.retry_after_s == 2.0


@every(
    "exit_code, end",
    [(0, End.FINISHED), (1, End.FAILED), (-9, End.KILLED), (143, End.KILLED), (None, End.UNKNOWN)],
)
@every("name", NAMES)
def test_a_run_that_was_not_read_is_judged_by_its_exit_status(
    name: str, exit_code: int | None, end: End
) -> None:
    assert said(name, "", exit_code).end is end


def test_geminis_exit_status_is_an_http_status_modulo_256() -> None:
    for exit_code, end in ((173, End.LIMITED), (247, End.LIMITED), (17, End.LIMITED), (145, End.FAILED)):
        assert said("gemini", "", exit_code).end is end


def test_a_character_cut_in_two_is_whole_again() -> None:
    words = "You\u2019ve hit your usage limit. \U0001f6d1 try again at 10:17 AM."
    text = json.dumps({"type": "turn.failed", "error": {"message": words}}, ensure_ascii=False) + "\n"
    for at in range(len(text.encode())):
        reader = load("codex").reader()
        reader.feed(text.encode()[:at], wall_s=WALL_S)
        reader.feed(text.encode()[at:], wall_s=WALL_S)
        ending = reader.finish(1, wall_s=WALL_S)
        assert ending.signal is not None
        assert ending.signal.kind is SignalKind.WINDOW_USED_UP


@every("name", [name for name in NAMES if name != "command"])
@every("stream", ["feed", "feed_stderr"])
def test_a_line_of_100_mb_takes_a_bounded_amount_of_memory(name: str, stream: str) -> None:
    reader = load(name).reader()
    piece = b"x" * 65536
    tracemalloc.start()
    try:
        feed = getattr(reader, stream)
        feed(b'{"type":"user","message":"', wall_s=WALL_S)
        for _ in range(1600):
            feed(piece, wall_s=WALL_S)
        feed(b'"}\n', wall_s=WALL_S)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 8 << 20
    healthy = next(each for each in of(name) if each.streams and each.right == {End.FINISHED})
    reader.feed(healthy.stdout, wall_s=WALL_S)
    assert reader.finish(0, wall_s=WALL_S).end is End.FINISHED
