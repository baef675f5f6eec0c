"""Slowness is told per class, smoothed, and only when it lasts."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from flyball.core.provider.latency import CLASSES_KEPT, LatencyTracker

PATH, OTHER = "POST /v1/messages", "POST /v1/embeddings"


def usual(kind: str = PATH, took_s: float = 1.0) -> LatencyTracker:
    watch = LatencyTracker()
    assert not any(watch.note(kind, took_s) for _ in range(200))
    return watch


def test_one_slow_answer_says_nothing() -> None:
    watch = usual()
    assert not watch.note(PATH, 60.0)
    assert not any(watch.note(PATH, 1.0) for _ in range(20))


def test_a_rise_that_lasts_is_told() -> None:
    watch = usual()
    assert [watch.note(PATH, 4.0) for _ in range(20)].count(True) >= 1


def test_each_answer_tells_it_until_answers_are_quick_again() -> None:
    watch = usual()
    told = [watch.note(PATH, 4.0) for _ in range(150)]
    assert all(told[told.index(True) :])
    assert not any([watch.note(PATH, 1.0) for _ in range(20)][10:])


def test_a_slow_class_says_nothing_about_another() -> None:
    watch = usual()
    assert not any(watch.note(OTHER, 30.0) for _ in range(100))


def test_what_is_slow_for_long_becomes_usual() -> None:
    watch = usual()
    for _ in range(500):
        watch.note(PATH, 4.0)
    assert not any(watch.note(PATH, 4.0) for _ in range(50))


def test_the_first_answers_of_a_class_say_nothing() -> None:
    watch = LatencyTracker()
    assert not any(watch.note(PATH, took_s) for took_s in (0.1, 5.0, 9.0, 20.0, 60.0))


def test_classes_are_bounded() -> None:
    watch = LatencyTracker()
    for number in range(3 * CLASSES_KEPT):
        watch.note(f"GET /{number}", 1.0)
    assert len(watch._classes) == CLASSES_KEPT


@given(st.lists(st.floats(0.5, 1.5), min_size=1, max_size=300))
def test_noise_around_the_usual_is_never_told(times: list[float]) -> None:
    watch = LatencyTracker()
    assert not any(watch.note(PATH, took_s) for took_s in times)
