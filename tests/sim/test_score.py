"""The numbers of a trial are made from what was seen, and from nothing else."""

from __future__ import annotations

from flyball.sim.demo.score import Record, jain, score
from flyball.sim.provider.capacity import Capacity, CapacityCounter


def record() -> Record:
    """shop finishes its two calls at 2 s, when blog has one; blog finishes at 4 s."""
    seen = Record(["shop", "blog"], calls_each=2)
    for project, t_s in (("shop", 1.0), ("blog", 1.5), ("shop", 2.0), ("blog", 4.0)):
        seen.add_done(project, t_s)
    return seen


def test_fairness_is_taken_when_the_first_project_is_done() -> None:
    found = score(record())
    assert found.done_by_first_finish == (2, 1)
    assert found.fairness == jain([2, 1])


def test_wasted_attempts_are_what_the_provider_saw_beyond_the_calls_that_were_done() -> None:
    counter = CapacityCounter(Capacity.parse("4"))
    for _ in range(6):
        counter.enter(0.0)
    seen = record()
    seen.close(4.0, counter.tally, stopped=False)
    found = score(seen)
    assert (found.calls_done, found.throttles, found.wasted_per_100) == (4, 2, 50.0)
    assert (found.peak_open, found.capacity, found.wall_s) == (6, 4, 4.0)


def test_a_heat_in_which_nothing_was_done_has_no_ratios() -> None:
    found = score(Record(["shop"], calls_each=2))
    assert (found.calls_done, found.wasted_per_100, found.fairness) == (0, None, None)


def test_a_heat_in_which_no_project_finished_is_judged_at_its_end() -> None:
    seen = Record(["shop", "blog"], calls_each=9)
    seen.add_done("shop", 1.0)
    assert score(seen).done_by_first_finish == (1, 0)
