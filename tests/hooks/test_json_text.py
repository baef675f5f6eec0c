"""Edits of settings leave every byte that is not theirs."""

from __future__ import annotations

import json

import pytest

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
]


@pytest.mark.parametrize("text", TEXTS)
def test_what_is_put_in_and_taken_out_again_leaves_the_text_as_it_means(text: str) -> None:
    before = parse_json_text(text)
    longer = insert_child(text, before, {"x": [1]}, key="ours")
    root = parse_json_text(longer)
    assert root.plain() == {**before.plain(), "ours": {"x": [1]}}
    ours = root.member("ours")
    assert ours is not None
    after = remove_child(longer, root, ours)
    assert parse_json_text(after).plain() == before.plain()
    assert after.count("//") == text.count("//")


@pytest.mark.parametrize("text", TEXTS[2:6])
def test_a_text_with_something_in_it_is_the_same_to_the_byte_afterwards(text: str) -> None:
    longer = insert_child(text, parse_json_text(text), [], key="ours")
    root = parse_json_text(longer)
    assert remove_child(longer, root, root.children[-1]) == text


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
