"""What the factory's work came to: what counts for which side, and where time went."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flyball.core.tasks.statistics import SpendTotals, build_run_totals, measure
from flyball.core.tasks.task_run import LedgerEntry, RunPhase, Step


class Book:
    """Entries of several tasks, written by the second."""

    def __init__(self) -> None:
        self.entries: list[LedgerEntry] = []

    def __call__(
        self, at: float, task: str, step: Step, mark: RunPhase = RunPhase.DONE, **fields: Any
    ) -> Book:
        number = len(self.entries) + 1
        self.entries.append(
            LedgerEntry(id=number, at=at, run="r", task=task, step=step, mark=mark, fields=fields)
        )
        return self

    def launch(self, at: float, task: str, *, model: str, took_s: float, usd: float, tokens: int) -> Book:
        """From its place in the width to the end of an agent: 1 s each for worktree, slot and start."""
        self(at, task, Step.WORKTREE, RunPhase.BEGUN)(at + 1, task, Step.WORKTREE)
        self(at + 2, task, Step.LAUNCH, RunPhase.BEGUN)(at + 3, task, Step.LAUNCH, model=model)
        return self(at + 3 + took_s, task, Step.END, tokens=tokens, cost_usd=usd, model=model)


def a_merged_and_a_blocked_task() -> Book:
    book = Book()
    book(0, "t-1", Step.CLAIM).launch(10, "t-1", model="sonnet", took_s=100, usd=1.0, tokens=1000)
    book(114, "t-1", Step.BACK, cause="gate")
    book.launch(134, "t-1", model="sonnet", took_s=50, usd=0.5, tokens=500)
    book(188, "t-1", Step.REVIEW, RunPhase.BEGUN)
    book(198, "t-1", Step.REVIEW, tokens=10, cost_usd=0.25, model="opus")
    book(200, "t-1", Step.LAND, RunPhase.BEGUN)(230, "t-1", Step.REBASE, RunPhase.BEGUN)(
        230, "t-1", Step.REBASE
    )
    book(231, "t-1", Step.GATE, RunPhase.BEGUN)(291, "t-1", Step.GATE)(
        291, "t-1", Step.ADVANCE, RunPhase.BEGUN
    )
    book(292, "t-1", Step.TELL)(300, "t-1", Step.MERGED)
    book(0, "t-2", Step.CLAIM).launch(0, "t-2", model="haiku", took_s=7, usd=0.1, tokens=100)
    return book(12, "t-2", Step.BLOCK)


def test_a_trip_carries_what_all_its_agents_spent_to_the_side_it_ended_on() -> None:
    found = measure(build_run_totals(a_merged_and_a_blocked_task().entries), now=3600.0)
    assert (found.merged, found.blocked, found.parked, found.under_way) == (1, 1, 0, 0)
    assert found.merged_per_hour == pytest.approx(1.0)
    assert found.median_to_merge_s == 300
    assert found.spend_per_merged == SpendTotals(tokens=1510, usd=1.75)
    assert found.wasted == SpendTotals(tokens=100, usd=0.1)
    assert found.spend.tokens == 1610


def test_models_are_told_apart_by_what_they_spent() -> None:
    models = measure(build_run_totals(a_merged_and_a_blocked_task().entries), now=3600.0).models
    assert list(models) == ["sonnet", "opus", "haiku"]
    assert (models["sonnet"].launches, models["sonnet"].merged) == (2, 1)
    assert (models["opus"].launches, models["opus"].merged, models["opus"].spend.usd) == (0, 0, 0.25)
    assert models["haiku"].wasted == models["haiku"].spend


def test_time_goes_to_what_was_waited_for() -> None:
    first = build_run_totals(a_merged_and_a_blocked_task().entries)[0]
    assert first.waits["a place in the run's width"] == 10
    assert first.waits["a slot of the pool"] == 2
    assert first.waits["its agent"] == 150
    assert first.waits["a pause after it was gate"] == 20
    assert first.waits["its review"] == 10
    assert first.waits["another landing"] == 30
    assert first.waits["the gate"] == 61
    assert sum(first.waits.values()) == 300


def test_a_task_that_is_claimed_again_is_a_new_trip_and_the_old_one_stays_counted() -> None:
    book = a_merged_and_a_blocked_task()(1000, "t-2", Step.CLAIM)
    found = measure(build_run_totals(book.entries), now=2000.0)
    assert (found.merged, found.blocked, found.under_way) == (1, 1, 1)
    assert found.wasted.tokens == 100


def test_work_that_waits_for_a_person_does_not_count_their_time() -> None:
    book = Book()(0, "t", Step.CLAIM).launch(0, "t", model="m", took_s=1, usd=1, tokens=1)
    book(5, "t", Step.PARK)
    assert measure(build_run_totals(book.entries), now=10).parked == 1
    book(9000, "t", Step.LAND, RunPhase.BEGUN)(9001, "t", Step.REBASE, RunPhase.BEGUN)(9002, "t", Step.MERGED)
    (run,) = build_run_totals(book.entries)
    assert (run.end, sum(run.waits.values())) == ("merged", 7)


def test_a_source_told_later_does_not_open_a_trip_again() -> None:
    book = a_merged_and_a_blocked_task()(5000, "t-1", Step.TELL, RunPhase.BEGUN)(5001, "t-1", Step.TELL)
    assert measure(build_run_totals(book.entries), now=6000, since=4000).merged == 0
    assert measure(build_run_totals(book.entries), now=6000).merged == 1


def test_nothing_yet_is_all_zeros() -> None:
    found = measure([], now=5.0)
    assert (found.merged, found.merged_per_hour, found.spend_per_merged, found.waits) == (0, 0.0, None, {})


@given(
    st.lists(
        st.tuples(
            st.floats(0, 1e6),
            st.sampled_from(["a", "b"]),
            st.sampled_from(Step),
            st.sampled_from(RunPhase),
            st.fixed_dictionaries({}, optional={"tokens": st.none() | st.integers(0, 99)}),
        ),
        max_size=40,
    )
)
def test_whatever_the_ledger_says_no_token_is_lost_or_counted_twice(rows: list[Any]) -> None:
    book = Book()
    for at, task, step, mark, fields in rows:
        book(at, task, step, mark, **fields)
    spends = [
        entry.fields.get("tokens") or 0
        for index, entry in enumerate(book.entries)
        if entry.step in (Step.END, Step.STAGE, Step.REVIEW)
        and (entry.mark is RunPhase.DONE or entry.step is not Step.END)
        and any(before.task == entry.task for before in book.entries[:index])
    ]
    runs = build_run_totals(book.entries)
    found = measure(runs, now=2e6)
    assert found.spend.tokens == sum(spends) == sum(each.spend.tokens for each in found.models.values())
    assert all(seconds >= 0 for run in runs for seconds in run.waits.values())
