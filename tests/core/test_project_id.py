"""What a project may be called."""

from __future__ import annotations

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flyball.core.pool.settings import check_name
from flyball.core.tasks.task import ID_LIMIT, check_id, check_project_id, id_from, same_id_key
from flyball.errors import UsageError


@pytest.mark.parametrize(
    "value", ["", "../etc", "a/b", ".hidden", "-rf", "a b", "a\n", "a\0", "x" * 61, "a.", "\u0301a"]
)
def test_what_would_be_a_bad_file_name_cannot_be_an_id(value: str) -> None:
    with pytest.raises(UsageError):
        check_project_id(value)


def test_a_refused_id_is_answered_with_the_nearest_good_one() -> None:
    with pytest.raises(UsageError, match="'my-site' could"):
        check_project_id("my site")


def test_what_is_named_by_the_same_rule_is_called_what_it_is() -> None:
    with pytest.raises(UsageError, match=r"'1 d' cannot be a window's name .*; '1-d' could"):
        check_id("1 d", "a window's name")
    with pytest.raises(UsageError, match="a window's name has at most 60 characters, and this one 61"):
        check_id("x" * 61, "a window's name")


@pytest.mark.parametrize("value", ["blog", "my_app", "my-app", "v1.2", "日本語", "blög", "हिन्दी"])
def test_letters_of_every_script_will_do(value: str) -> None:
    assert check_project_id(value) == value


def test_a_name_in_another_unicode_form_is_another_spelling_of_the_same_id() -> None:
    decomposed = unicodedata.normalize("NFD", "blög")
    with pytest.raises(UsageError, match="could"):
        check_project_id(decomposed)
    assert same_id_key(decomposed) == same_id_key("BLÖG")


def test_ids_that_differ_by_more_than_case_have_different_keys() -> None:
    assert same_id_key("my_app") != same_id_key("my-app")


@given(st.text(max_size=300))
def test_an_id_made_from_any_name_is_empty_or_a_good_one(name: str) -> None:
    made = id_from(name)
    if made:
        assert check_project_id(made) == made
        assert len(f"{made}.json".encode()) <= 255
        assert "/" not in made
        assert made not in (".", "..")
        assert len(made) <= ID_LIMIT
        check_name("project", made)
