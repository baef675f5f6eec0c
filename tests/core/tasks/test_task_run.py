"""The life of a trip: its table, and what its entries add up to."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flyball.core.pool.holder import Holder
from flyball.core.tasks.task_run import (
    FINAL,
    TRANSITIONS,
    Cause,
    LedgerEntry,
    RunPhase,
    State,
    Step,
    TaskRecord,
    apply_entry,
)
from flyball.errors import InvariantError
from tests.cases import every

AGENT = {"host": "h", "boot": "b", "pidns": 1, "pid": 42, "start": 7}
PAIRS = sorted({(step, mark) for _, step, mark in TRANSITIONS}, key=str)


def entry(
    step: Step, mark: RunPhase = RunPhase.DONE, *, at: float = 1.0, run: str = "r", **fields: Any
) -> LedgerEntry:
    if step is Step.BACK:
        fields.setdefault("cause", "failed")
    return LedgerEntry(id=0, at=at, run=run, task="t-1", step=step, mark=mark, fields=fields)


def told(*entries: LedgerEntry) -> TaskRecord:
    record: TaskRecord | None = None
    for each in entries:
        record = apply_entry(record, each)
    assert record is not None
    return record


CLAIMED = (entry(Step.CLAIM),)
READY = (*CLAIMED, entry(Step.WORKTREE, RunPhase.BEGUN), entry(Step.WORKTREE, base="b1", branch="agent/t-1"))
RUNNING = (
    *READY,
    entry(Step.LAUNCH, RunPhase.BEGUN, folder="f"),
    entry(Step.LAUNCH, holder=AGENT, keeper=AGENT),
)
ENDED = (*RUNNING, entry(Step.END, end="finished", tokens=10, cost_usd=0.5))
LANDING = (*ENDED, entry(Step.LAND, RunPhase.BEGUN))


# -- the table --------------------------------------------------------------------------------------------


def test_nothing_happens_to_a_task_before_it_is_claimed() -> None:
    with pytest.raises(InvariantError, match="before it was claimed"):
        apply_entry(None, entry(Step.WORKTREE))


@every("state", State)
def test_what_the_table_does_not_list_cannot_happen(state: State) -> None:
    record = TaskRecord(task="t-1", state=state)
    for step, mark in PAIRS:
        if (state, step, mark) not in TRANSITIONS:
            with pytest.raises(InvariantError, match=state.value):
                apply_entry(record, entry(step, mark))


def test_every_state_can_be_reached() -> None:
    reached, found = {State.CLAIMED}, True
    while found:
        found = False
        for (source, _, _), to in TRANSITIONS.items():
            if source in reached and to not in reached:
                reached.add(to)
                found = True
    assert reached == set(State)


def test_only_a_person_leads_out_of_an_end() -> None:
    """They claim it anew, send it back, have it landed by hand, or have its pull request reviewed."""
    out = {step for (state, step, _), to in TRANSITIONS.items() if state in FINAL and to not in FINAL}
    assert out == {Step.CLAIM, Step.BACK, Step.LAND, Step.REVIEW}


def test_no_agent_is_launched_from_anywhere_but_ready() -> None:
    assert {state for state, step, _ in TRANSITIONS if step is Step.LAUNCH} == {State.READY}


def test_what_runs_has_been_launched() -> None:
    into = {step for (state, step, _), to in TRANSITIONS.items() if to is State.RUNNING and state is not to}
    assert into == {Step.LAUNCH}


def test_only_a_landing_merges() -> None:
    assert {state for (state, _, _), to in TRANSITIONS.items() if to is State.MERGED} <= {
        State.LANDING,
        State.MERGED,
    }


@given(st.lists(st.sampled_from(PAIRS), max_size=30))
def test_any_row_of_entries_folds_or_is_refused_and_counts_never_fall(
    pairs: list[tuple[Step, RunPhase]],
) -> None:
    record = told(entry(Step.CLAIM))
    for step, mark in pairs:
        before = record
        try:
            record = apply_entry(record, entry(step, mark))
        except InvariantError:
            continue
        if step is not Step.CLAIM:
            assert record.launches >= before.launches
            assert record.backs.failed >= before.backs.failed
            assert record.attempt >= before.attempt


# -- what they add up to ----------------------------------------------------------------------------------


@every(
    "cause, counts",
    [
        (Cause.FAILED, (2, 1, 0, 0, 0)),
        (Cause.LIMITED, (1, 0, 1, 0, 0)),
        (Cause.GATE, (2, 0, 0, 1, 0)),
        (Cause.CONFLICT, (2, 0, 0, 0, 1)),
        (Cause.INTERRUPTED, (1, 0, 0, 0, 0)),
        (Cause.NUDGED, (1, 0, 0, 0, 0)),
        (Cause.REJECTED, (2, 0, 0, 0, 0)),
    ],
)
def test_each_cause_has_a_budget_of_its_own(cause: Cause, counts: tuple[int, ...]) -> None:
    record = told(*ENDED, entry(Step.BACK, cause=cause.value))
    assert (
        record.attempt,
        record.backs.failed,
        record.backs.limited,
        record.backs.gate,
        record.backs.conflict,
    ) == counts


def test_limits_count_in_a_row_only() -> None:
    again = (entry(Step.LAUNCH, RunPhase.BEGUN), entry(Step.LAUNCH), entry(Step.END))
    limited = entry(Step.BACK, cause="limited")
    assert told(*ENDED, limited, *again, limited).backs.limited == 2
    assert told(*ENDED, limited, *again, entry(Step.BACK, cause="gate")).backs.limited == 0


def test_a_trip_knows_its_agent_until_it_is_sent_back() -> None:
    record = told(*RUNNING)
    assert record.agent.process.holder == Holder("h", "b", 1, 42, 7)
    assert record.agent.process.folder == "f"
    assert told(*ENDED, entry(Step.BACK)).agent.process.holder is None


def test_the_model_is_the_one_that_was_asked_for_until_the_agent_says_which_it_was() -> None:
    launched = (*READY, entry(Step.LAUNCH, RunPhase.BEGUN), entry(Step.LAUNCH, model="sonnet"))
    assert told(*launched, entry(Step.END)).agent.model == "sonnet"
    assert told(*launched, entry(Step.END, model="sonnet-5"), entry(Step.BACK)).agent.model == "sonnet-5"


def test_what_agents_spent_adds_up_over_launches() -> None:
    again = (entry(Step.BACK), *RUNNING[len(READY) :], entry(Step.END, tokens=5, cost_usd=0.25))
    record = told(*ENDED, *again)
    assert (record.spent.tokens, record.spent.cost_usd, record.launches) == (15, 0.75, 2)


def test_a_lesson_is_kept_through_limits_and_stops() -> None:
    record = told(*LANDING, entry(Step.BACK, cause="gate", reason="red", detail="line 3"))
    assert (record.lesson.words, record.lesson.cause) == ("red\n\nline 3", Cause.GATE)
    again = (entry(Step.LAUNCH, RunPhase.BEGUN), entry(Step.LAUNCH), entry(Step.END))
    for cause in ("limited", "interrupted", "nudged"):
        for each in (*again, entry(Step.BACK, cause=cause, reason="a pause")):
            record = apply_entry(record, each)
    assert (record.lesson.words, record.lesson.cause) == ("red\n\nline 3", Cause.GATE)


def test_a_session_is_kept_unless_a_fresh_one_is_wanted() -> None:
    learned = (*RUNNING, entry(Step.SESSION, session="s-1"), entry(Step.END))
    assert told(*learned, entry(Step.BACK)).agent.session == "s-1"
    assert told(*learned, entry(Step.BACK, fresh=True)).agent.session is None


def test_a_running_gate_is_known_until_the_landing_goes_on() -> None:
    begun = (*LANDING, entry(Step.GATE, RunPhase.BEGUN, gate=AGENT, folder_of_gate="g"))
    assert told(*begun).landing.gate.holder == Holder("h", "b", 1, 42, 7)
    assert told(*begun, entry(Step.GATE)).landing.gate.holder is not None, "a daemon of it may still run"
    assert (
        told(*begun, entry(Step.GATE), entry(Step.ADVANCE, RunPhase.BEGUN, new="n")).landing.gate.holder
        is None
    )


def test_a_blocked_task_that_is_claimed_again_has_its_budgets_back_and_its_reason_as_a_lesson() -> None:
    record = told(*ENDED, entry(Step.BACK), entry(Step.BLOCK, reason="failed 3 times"), entry(Step.CLAIM))
    assert (record.backs.failed, record.launches, record.lesson.words) == (0, 0, "failed 3 times")
    assert record.attempt == 3
    assert record.worktree.branch == "agent/t-1"


def test_a_merged_task_that_is_claimed_again_starts_from_nothing() -> None:
    record = told(
        *LANDING, entry(Step.ADVANCE, RunPhase.BEGUN, new="n"), entry(Step.MERGED), entry(Step.CLAIM)
    )
    assert (record.attempt, record.worktree.branch, record.landing.new, record.agent.session) == (
        1,
        "",
        "",
        None,
    )


TELLING = (*LANDING, entry(Step.ADVANCE, RunPhase.BEGUN, new="n"), entry(Step.TELL, RunPhase.BEGUN))


def test_a_source_is_untold_from_the_try_on_until_it_is_confirmed() -> None:
    assert not told(*LANDING).landing.untold
    assert told(*TELLING).landing.untold
    assert told(*TELLING, entry(Step.MERGED)).landing.untold
    assert not told(*TELLING, entry(Step.TELL), entry(Step.MERGED)).landing.untold


def test_a_source_can_be_told_again_of_what_has_landed_and_that_changes_nothing_else() -> None:
    merged = told(*TELLING, entry(Step.MERGED, at=5.0))
    again = apply_entry(merged, entry(Step.TELL, RunPhase.BEGUN, at=9.0))
    assert (again.state, again.since, again.landing.new, again.landing.untold) == (
        State.MERGED,
        5.0,
        "n",
        True,
    )
    assert not apply_entry(again, entry(Step.TELL)).landing.untold


def test_a_task_that_is_claimed_again_has_nothing_to_be_told() -> None:
    assert not told(*TELLING, entry(Step.MERGED), entry(Step.CLAIM)).landing.untold


def test_since_is_the_last_change_of_state() -> None:
    record = told(*RUNNING, entry(Step.SESSION, session="s", at=50.0))
    assert record.since == 1.0
    assert apply_entry(record, entry(Step.END, at=60.0)).since == 60.0
