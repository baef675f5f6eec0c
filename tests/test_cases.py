"""A table of cheap cases is one test, and each case that fails is named."""

from __future__ import annotations

import inspect

import pytest

from tests.cases import every


def test_each_case_that_fails_is_named_and_the_others_are_tried() -> None:
    tried: list[int] = []

    @every("number", [1, 2, 3, 4])
    def even(number: int) -> None:
        tried.append(number)
        assert number % 2 == 0

    with pytest.raises(AssertionError, match=r"2 of 4 cases:\n- number=1: (.|\n)*- number=3: ") as raised:
        even()
    assert tried == [1, 2, 3, 4]
    assert isinstance(raised.value.__cause__, AssertionError)


def test_two_tables_make_every_pair_and_fixtures_are_still_asked_for() -> None:
    tried: list[tuple[str, int, str]] = []

    @every("word", ["a", "b"])
    @every("number, kind", [(1, "x"), (2, "y")])
    def pair(word: str, number: int, kind: str, fixture: str) -> None:
        assert fixture == "made"
        tried.append((word, number, kind))

    assert list(inspect.signature(pair).parameters) == ["fixture"]
    pair(fixture="made")
    assert tried == [("a", 1, "x"), ("a", 2, "y"), ("b", 1, "x"), ("b", 2, "y")]


def test_what_should_have_been_raised_and_was_not_is_a_failure_too() -> None:
    @every("number", [1])
    def refused(number: int) -> None:
        with pytest.raises(ValueError, match="no"):
            int(number)

    with pytest.raises(AssertionError, match="1 of 1 cases"):
        refused()


def test_a_table_without_a_case_is_a_mistake() -> None:
    with pytest.raises(AssertionError, match="no case of number"):
        every("number", [])
