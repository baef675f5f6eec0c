"""Edits of settings leave every byte that is not theirs."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flyball.hooks.json_text import JsonTextError, insert_child, parse_json_text, remove_child

TEXTS = [
    "{}",
    "{ }\n",
    '{"a": 1}',
    '{\n  "a": 1\n}\n',
    '{\n\t"a": [1, 2], // of two\n\t"b": {"c": null} /* the last */\n}',
    '// first\n{\n    "a": "// no comment",\n    /* long\n       one */ "b": -1.5e3\n}\n// end',
    '{"a": {}, "b": []}',
    "{\n  // nothing yet\n}\n",
    '\ufeff{\r\n\t"a": 1 // of a\r\n}',
    '{"a": 1\n  // the last,\n  , "b": 2 }',
]


gaps = st.sampled_from(
    ["", " ", "\n", "\n    ", "\r\n\t", " // a, {\n", "// b\r\n ", "/* c\n d */", " /* e */ "]
)
plain_values = st.sampled_from(["1", "-2.5e3", "null", '"a, b"', '"// no"', '"}\\n\\u00e9"'])


def objects(values: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    member = st.tuples(gaps, gaps, values, gaps)
    return st.lists(member, max_size=3).flatmap(
        lambda members: gaps.map(
            lambda gap: (
                "{" + ",".join(f'{a}"k{n}":{b}{v}{c}' for n, (a, b, v, c) in enumerate(members)) + gap + "}"
            )
        )
    )


def lists(values: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    items = st.lists(st.tuples(gaps, values, gaps).map("".join), max_size=3)
    return items.flatmap(
        lambda found: gaps.map(lambda gap: "[" + ",".join(found) + ("" if found else gap) + "]")
    )


written = objects(st.recursive(plain_values, lambda values: objects(values) | lists(values), max_leaves=8))
"""Objects as odd as people and programs can write them."""


def put_in_and_taken_out(text: str) -> str:
    before = parse_json_text(text)
    longer = insert_child(text, before, {"x": [1]}, key="ours")
    root = parse_json_text(longer)
    assert root.plain() == {**before.plain(), "ours": {"x": [1]}}
    return remove_child(longer, root, root.children[-1])


@pytest.mark.parametrize("text", TEXTS)
def test_what_is_put_in_and_taken_out_again_leaves_the_text_as_it_was(text: str) -> None:
    assert put_in_and_taken_out(text) == text


@given(text=st.tuples(gaps, written, gaps).map("".join))
def test_any_text_is_the_same_to_the_byte_afterwards(text: str) -> None:
    assert put_in_and_taken_out(text) == text


@given(text=written)
def test_each_member_of_any_object_can_be_taken_out_and_the_rest_means_what_it_meant(text: str) -> None:
    root = parse_json_text(text)
    for child in root.children:
        after = parse_json_text(remove_child(text, root, child)).plain()
        assert after == {key: value for key, value in root.plain().items() if key != child.key}


@pytest.mark.parametrize("at", [0, 1, 2])
def test_any_item_of_a_list_can_be_taken_out(at: int) -> None:
    text = '[\n  "a", // of a\n  "b", // of b\n  "c" // of c\n]'
    root = parse_json_text(text)
    after = remove_child(text, root, root.children[at])
    assert parse_json_text(after).plain() == [each for each in "abc" if each != "abc"[at]]
    assert all(f"of {each}" in after for each in "abc")


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        '{"a" 1}',
        '{"a": 1,}',
        '{"a": 1, "a": 2}',
        "{'a': 1}",
        "[1 2]",
        '{"a": 01}',
        "{} {}",
        "[" * 500,
    ],
)
def test_what_is_not_plain_json_is_refused(text: str) -> None:
    with pytest.raises(JsonTextError):
        parse_json_text(text)


def test_plain_values_are_those_of_json() -> None:
    text = json.dumps({"a": [1, 2.5, True, None, "\u00e9\\n"], "b": {"c": {}}}, indent=3)
    assert parse_json_text(text).plain() == json.loads(text)
