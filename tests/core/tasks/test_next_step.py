"""What is next: after an agent's end, after a landing, after the engine itself was gone."""

from __future__ import annotations

import pytest

from flyball.core.signals import End, Signal, SignalKind
from flyball.core.tasks.next_step import (
    ATTEMPTS_BY_TIER,
    NO_RETRIES,
    Action,
    Budgets,
    Decision,
    after_end,
    after_landing,
    budgets_for,
    lands_again,
    may_let_go,
    on_resume,
)
from flyball.core.tasks.task_run import (
    FINAL,
    Backs,
    Cause,
    LandingRecord,
    LandingResult,
    PullRecord,
    State,
    TaskRecord,
)
from tests.cases import every

BUDGETS = Budgets()


def task_run(state: State = State.ENDED, **fields: object) -> TaskRecord:
    return TaskRecord(task="t-1", state=state, **fields)  # type: ignore[arg-type]


def ended(
    record: TaskRecord,
    end: str,
    *,
    signal: Signal | None = None,
    commits: bool = True,
    unrecorded: bool = False,
) -> Decision:
    return after_end(
        record,
        BUDGETS,
        end=End(end),
        reason="it said so",
        signal=signal,
        commits=commits,
        unrecorded=unrecorded,
    )


# -- after an agent's end ---------------------------------------------------------------------------------


def test_a_wrong_key_is_blocked_at_once() -> None:
    found = ended(task_run(), "failed", signal=Signal(SignalKind.AUTH))
    assert found.move is Action.BLOCK
    assert "check the login or the key" in found.why


@pytest.mark.parametrize("end", ["failed", "killed", "unknown"])
def test_a_failure_is_tried_again_while_the_budget_lasts(end: str) -> None:
    assert ended(task_run(backs=Backs(failed=0)), end).move is Action.AGAIN
    assert ended(task_run(backs=Backs(failed=1)), end).move is Action.AGAIN
    last = ended(task_run(backs=Backs(failed=2)), end)
    assert last.move is Action.BLOCK
    assert last.why == "failed 3 times, the last time: it said so"


@pytest.mark.parametrize("commits", [True, False])
def test_a_failure_goes_on_with_its_session_only_where_it_left_commits(commits: bool) -> None:
    found = ended(task_run(), "failed", commits=commits)
    assert (found.cause, found.fresh) == (Cause.FAILED, not commits)


def test_nothing_is_launched_for_ever() -> None:
    assert ended(task_run(launches=50), "failed").move is Action.BLOCK


def test_an_agent_that_changed_nothing_is_blocked() -> None:
    found = ended(task_run(), "finished", commits=False)
    assert found.move is Action.BLOCK
    assert found.why.startswith("no-changes")


def test_finished_work_is_checked_and_then_lands() -> None:
    assert ended(task_run(), "finished").move is Action.CHECK


@pytest.mark.parametrize("commits", [True, False])
def test_a_limit_never_lands_and_burns_no_attempt(commits: bool) -> None:
    found = ended(task_run(backs=Backs(failed=2)), "limited", commits=commits)
    assert (found.move, found.cause, found.fresh) == (Action.AGAIN, Cause.LIMITED, False)


def test_each_further_limit_is_waited_out_longer() -> None:
    waits = [ended(task_run(backs=Backs(limited=count)), "limited").wait_s for count in range(5)]
    assert waits == [15, 30, 45, 60, 75]


def test_a_wait_that_the_provider_names_is_what_is_waited() -> None:
    signal = Signal(SignalKind.THROTTLED, retry_after_s=7.0)
    assert ended(task_run(backs=Backs(limited=3)), "limited", signal=signal).wait_s == 7.0


def test_limits_beyond_their_budget_block() -> None:
    found = ended(task_run(backs=Backs(limited=5)), "limited")
    assert found.move is Action.BLOCK
    assert found.why.startswith("limited 6 times in a row")


@pytest.mark.parametrize("kind", [SignalKind.CREDIT_GONE, SignalKind.WINDOW_USED_UP])
def test_a_limit_that_only_a_person_can_lift_pauses_the_run(kind: SignalKind) -> None:
    found = ended(task_run(backs=Backs(limited=99)), "limited", signal=Signal(kind))
    assert (found.move, found.pause) == (Action.AGAIN, "it said so")


def test_a_window_with_a_known_reset_is_waited_out() -> None:
    found = ended(task_run(), "limited", signal=Signal(SignalKind.WINDOW_USED_UP, retry_after_s=3600.0))
    assert (found.wait_s, found.pause) == (3600.0, "")


# -- after a landing --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("result", "spent", "cause"),
    [
        ("gate-failed", Backs(gate=2), Cause.GATE),
        ("conflict", Backs(conflict=2), Cause.CONFLICT),
    ],
)
def test_a_red_gate_and_a_conflict_go_back_within_their_budgets(
    result: str, spent: Backs, cause: Cause
) -> None:
    back = after_landing(
        task_run(State.LANDING), BUDGETS, result=LandingResult(result), why="why", detail="see"
    )
    assert (back.move, back.cause, back.detail) == (Action.AGAIN, cause, "see")
    blocked = after_landing(
        task_run(State.LANDING, backs=spent), BUDGETS, result=LandingResult(result), why="why"
    )
    assert (blocked.move, blocked.why) == (Action.BLOCK, f"{result}: why")


@pytest.mark.parametrize("result", ["protected", "dirty", "no-changes", "error"])
def test_whatever_else_stops_a_landing_is_for_a_person(result: str) -> None:
    found = after_landing(task_run(State.LANDING), BUDGETS, result=LandingResult(result), why="why")
    assert (found.move, found.why) == (Action.BLOCK, f"{result}: why")


@pytest.mark.parametrize("result", ["gate-failed", "conflict"])
def test_a_landing_by_hand_sends_nothing_back(result: str) -> None:
    assert (
        after_landing(task_run(State.LANDING), NO_RETRIES, result=LandingResult(result), why="why").move
        is Action.BLOCK
    )


def test_what_landed_is_merged() -> None:
    assert (
        after_landing(task_run(State.LANDING), BUDGETS, result=LandingResult.MERGED, why="abc").move
        is Action.MERGED
    )


# -- after the engine was gone ----------------------------------------------------------------------------


def resumed(
    record: TaskRecord, *, alive: bool = False, on_file: bool = False, commits: bool = False
) -> Decision:
    return on_resume(record, BUDGETS, alive=alive, ended_on_file=on_file, commits=commits)


@pytest.mark.parametrize("state", sorted(FINAL, key=str))
def test_what_is_over_is_left(state: State) -> None:
    assert resumed(task_run(state), alive=True).move is Action.LEAVE


def test_the_world_outranks_the_ledger_about_an_agent() -> None:
    running = task_run(State.RUNNING)
    assert resumed(running, alive=True, on_file=True, commits=True).move is Action.REATTACH
    assert resumed(running, on_file=True, commits=True).move is Action.JUDGE


@pytest.mark.parametrize("commits", [True, False])
def test_a_dead_agent_resumes_with_commits_and_starts_fresh_without(commits: bool) -> None:
    found = resumed(task_run(State.RUNNING), commits=commits)
    assert (found.move, found.cause, found.fresh) == (Action.AGAIN, Cause.INTERRUPTED, not commits)


@pytest.mark.parametrize("commits", [True, False])
def test_one_found_again_whose_end_nothing_tells_is_as_one_found_dead(commits: bool) -> None:
    found = ended(task_run(backs=Backs(failed=2)), "unknown", commits=commits, unrecorded=True)
    assert (found.move, found.cause, found.fresh) == (Action.AGAIN, Cause.INTERRUPTED, not commits)


@pytest.mark.parametrize("end", ["failed", "killed"])
def test_one_found_again_that_says_how_it_ended_is_judged_by_that(end: str) -> None:
    assert ended(task_run(), end, unrecorded=True).cause is Cause.FAILED


def test_a_dead_agent_with_its_budget_spent_is_blocked() -> None:
    found = resumed(task_run(State.RUNNING, backs=Backs(failed=3), reason="no luck"))
    assert (found.move, found.why) == (Action.BLOCK, "failed 3 times, the last time: no luck")


@pytest.mark.parametrize(
    ("state", "move"),
    [
        (State.CLAIMED, Action.PREPARE),
        (State.READY, Action.PREPARE),
        (State.ENDED, Action.JUDGE),
        (State.LANDING, Action.LAND_ON),
    ],
)
def test_whatever_stood_somewhere_goes_on_from_there(state: State, move: Action) -> None:
    assert resumed(task_run(state)).move is move


# -- tiers ------------------------------------------------------------------------------------------------


def tier(number: int, **fields: int) -> Budgets:
    return budgets_for(number, limited=5, gate=2, conflict=2, review=2, backoff_s=15.0, **fields)


def test_a_tier_says_how_eagerly_work_is_retried() -> None:
    assert [tier(number).attempts for number in range(4)] == list(ATTEMPTS_BY_TIER.values())
    assert [tier(number, attempts=9).attempts for number in range(4)] == [1, 2, 9, 5]


def test_the_lowest_tier_asks_a_person_at_once() -> None:
    lowest = tier(0)
    assert (lowest.attempts, lowest.gate, lowest.conflict) == (1, 0, 0)
    assert lowest.limited == 5, "a limit is not the agent's failure"


@pytest.mark.parametrize("result", ["pr-opened", "no-gh", "unapproved"])
def test_work_that_is_as_good_as_it_was_waits_for_a_person(result: str) -> None:
    found = after_landing(task_run(State.LANDING), NO_RETRIES, result=LandingResult(result), why="why")
    assert found.move is Action.PARK
    assert "why" in found.why


@pytest.mark.parametrize("result", ["no-remote", "gate-broken", "error"])
def test_a_failure_outside_leaves_an_open_pull_request_as_it_was(result: str) -> None:
    opened = after_landing(
        task_run(State.LANDING, pull=PullRecord(number=12)),
        NO_RETRIES,
        result=LandingResult(result),
        why="why",
    )
    assert (opened.move, opened.why) == (Action.PARK, f"{result}: why")


@pytest.mark.parametrize("result", ["no-remote", "gate-broken"])
def test_work_that_only_something_outside_kept_back_waits_and_lands_again(result: str) -> None:
    found = after_landing(
        task_run(State.LANDING, landing=LandingRecord(way="merge")),
        BUDGETS,
        result=LandingResult(result),
        why="why",
    )
    assert (found.move, found.cause) == (Action.PARK, None)
    assert found.why == f"{result}: why; once that is mended, flyball run lands it without an agent"
    assert lands_again(task_run(State.PARKED, landing=LandingRecord(result=LandingResult(result))))
    assert not lands_again(
        task_run(
            State.PARKED, landing=LandingRecord(result=LandingResult(result)), pull=PullRecord(number=12)
        )
    )
    assert not lands_again(task_run(State.BLOCKED, landing=LandingRecord(result=LandingResult(result))))


@pytest.mark.parametrize("result", ["no-remote", "no-gh", "gate-broken", "error"])
def test_what_is_outside_changes_nothing_about_what_work_was_blocked_for(result: str) -> None:
    blocked = task_run(State.LANDING, blocked_for="failed once")
    found = after_landing(blocked, NO_RETRIES, result=LandingResult(result), why="why")
    assert (found.move, found.why, found.said) == (Action.BLOCK, "failed once", f"{result}: why")


def test_what_no_agent_could_help_with_waits_for_a_person_whatever_its_word() -> None:
    found = after_landing(
        task_run(State.LANDING), BUDGETS, result=LandingResult.NO_REMOTE, why="why", waits=True
    )
    assert (found.move, found.why) == (Action.PARK, "no-remote: why")


@every("state", State)
def test_only_a_trip_that_has_not_begun_to_land_is_let_go(state: State) -> None:
    before = {State.CLAIMED, State.READY, State.RUNNING, State.ENDED, State.CHECKING}
    assert may_let_go(task_run(state)) is (state in before)


def test_a_pull_request_that_is_open_is_not_let_go() -> None:
    assert not may_let_go(task_run(State.CHECKING, pull=PullRecord(number=12)))


def test_a_review_of_a_pull_request_that_was_cut_short_leaves_it_open() -> None:
    record = task_run(State.CHECKING, pull=PullRecord(number=12, url="https://host/12"))
    found = on_resume(record, BUDGETS, alive=False, ended_on_file=False, commits=True)
    assert found.move is Action.PARK
    assert "#12 is open: https://host/12" in found.why
