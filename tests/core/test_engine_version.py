"""Is this flyball new enough for a project?"""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flyball.errors import UsageError
from flyball.factory.project.config_reader import minimum, satisfies, too_old_words
from tests.cases import every


@every(
    "text",
    [
        "latest",
        "0.2-",
        "^0.2",
        "~=0.2",
        "==0.2",
        "<0.3",
        ">=0.2+",
        ">=",
        "+",
        "v",
        "0..2",
        "0.2.",
        "1.2.3.4.5",
        "\u0660.\u0662",
    ],
)
def test_what_is_not_a_minimum_version_is_refused_with_the_way_to_write_one(text: str) -> None:
    with pytest.raises(UsageError, match=r"write 0\.2\+ or >=0\.2\.3"):
        minimum(text)


def test_a_number_with_thousands_of_digits_is_refused_like_any_other_nonsense() -> None:
    with pytest.raises(UsageError):
        minimum("9" * 5000)


@every(
    "version, required",
    [
        ("0.1.0", "0.2+"),
        ("0.2.2", ">=0.2.3"),
        ("0.9.9", "1"),
        ("0.2", "0.2.1"),
        ("", "0.1"),
        ("unknown", "0.1"),
    ],
)
def test_an_older_flyball_will_not_do(version: str, required: str) -> None:
    assert not satisfies(version, required)


@every(
    "version, required",
    [
        ("0.2.0", "0.2+"),
        ("0.2", ">=0.2.0"),
        ("0.10.0", "0.9"),
        ("1.0", "v0.2"),
        ("0.3.0rc1", "0.3"),
        ("0.3.0.dev4+g123", ">= 0.3"),
        ("0.1.0", ""),
        ("0.1.0", "  "),
    ],
)
def test_the_same_or_a_newer_one_will(version: str, required: str) -> None:
    assert satisfies(version, required)


def test_what_is_needed_and_what_is_here_are_both_said() -> None:
    assert too_old_words("0.1.0", ">=0.2.3") == "needs flyball 0.2.3 or newer, and this is 0.1.0"


_numbers = st.lists(st.integers(0, 99), min_size=1, max_size=4)


@given(have=_numbers, wanted=_numbers)
def test_versions_compare_as_lists_of_numbers_in_which_missing_ones_are_zero(
    have: list[int], wanted: list[int]
) -> None:
    def written(numbers: list[int]) -> str:
        return ".".join(map(str, numbers))

    def padded(numbers: list[int]) -> list[int]:
        return numbers + [0] * (4 - len(numbers))

    assert satisfies(written(have), written(wanted) + "+") == (padded(have) >= padded(wanted))
