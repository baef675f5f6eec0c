"""Front matter: read without surprises, changed without touching the rest."""

from __future__ import annotations

from contextlib import suppress

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from flyball.factory.tasks.front_matter import (
    DEPTH_LIMIT,
    LENGTH_LIMIT,
    MalformedError,
    Value,
    parse,
    scalar,
    split,
    with_value,
)
from tests.cases import every


@pytest.fixture(params=["libyaml", "python"], autouse=True)
def parser(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both of PyYAML's parsers: libyaml is not there on every machine."""
    if request.param == "python":
        monkeypatch.delattr(yaml, "CBaseLoader", raising=False)
    elif not yaml.__with_libyaml__:
        pytest.skip("PyYAML was built without libyaml here")


def values(text: str) -> dict[str, Value]:
    return parse(text).values


@every(
    "line, value",
    [
        ("x: 007", "007"),
        ("x: 1", "1"),
        ("x: 0x1F", "0x1F"),
        ("x: 1_000", "1_000"),
        ("x: 12:30:45", "12:30:45"),
        ("x: 1e3", "1e3"),
        ("x: no", "no"),
        ("x: on", "on"),
        ("x: true", "true"),
        ("x: 2026-11-01", "2026-11-01"),
        ("x: .inf", ".inf"),
        ("x: =", "="),
        ("x: null", None),
        ("x: ~", None),
        ("x:", None),
        ('x: "null"', "null"),
        ('x: ""', ""),
        ("x: [a, 'b', null]", ["a", "b", None]),
        ("x: {a: 1}", {"a": "1"}),
        ("x: &anchor a", "a"),
        ("x: !!str 1", "1"),
        ("x: >\n  a\n  b\n", "a b\n"),
        ("'x': a", "a"),
        ("? x\n: a", "a"),
    ],
)
def test_a_scalar_is_the_text_that_was_written(line: str, value: Value) -> None:
    assert values(line) == {"x": value}


def test_no_front_matter_at_all_says_nothing() -> None:
    assert values("") == values("# only a comment\n") == values("---\n") == {}


@every(
    "text, words",
    [
        ("a: 1\nb: 2\na: 3", "line 3: 'a' is there twice"),
        ("a: {b: 1, b: 2}", "'b' is there twice"),
        ("a: &x [1]\nb: *x", "line 2: a value that begins with [*] must be quoted"),
        ("a: *.py", "line 1: a value that begins with [*] must be quoted"),
        ("a: [**/x]", "must be quoted"),
        ("a: &x {b: *x}", "must be quoted"),
        ("a:\n\t- b", "line 2: indented with a tab; use spaces"),
        ("a: b: c", 'line 1: a value with ": " in it must be quoted'),
        ("a: @b", "must be quoted"),
        ("a: `b`", "must be quoted"),
        ("a: 'b", "line"),
        ("a: [b", "line"),
        ("a: {b", "line"),
        ("- a\n- b", "not a list of keys and values"),
        ("just words", "not a list of keys and values"),
        ("a: 1\n...\nb: 2", "document"),
        ("a: 1\n...\n%YAML 1.1\n--- {b: 2}", "a second document begins"),
        ("a: !!python/object/apply:os.system [ls]", "has no meaning here"),
        ("a: !!int 3", "the tag tag:yaml.org,2002:int has no meaning here"),
        ("[a, b]: c", "not a list of keys|a key must be a word"),
        ("{a: b}: c", "a key must be a word"),
        ("a: b\x00c", "cannot be read"),
        ("a: b\x07c", "cannot be read"),
        ("a: " + "[" * (DEPTH_LIMIT + 1) + "]" * (DEPTH_LIMIT + 1), "nested deeper than 20"),
        ("a: " + "[" * 30_000, "nested deeper than 20"),
        ("- " * 30_000, "not a list of keys"),
        ("a:\n" + "".join(" " * n + "a:\n" for n in range(1, 200)), "nested deeper than 20"),
    ],
)
def test_what_cannot_be_meant_is_refused_with_the_line_and_the_way_out(text: str, words: str) -> None:
    with pytest.raises(MalformedError, match=words):
        parse(text)


def test_a_billion_laughs_are_refused_at_the_first_one() -> None:
    lines = ["a0: &a0 [lol, lol]"] + [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]" for n in range(1, 12)]
    with pytest.raises(MalformedError, match="aliases are not used here"):
        parse("\n".join(lines))


@given(st.text(alphabet="ab:-[]{}#&*!|>'\"%@`,?\\ \t\r\n~0\x00\ufeff\u2028é", max_size=60))
def test_any_text_is_read_or_malformed_and_nothing_else(text: str) -> None:
    with suppress(MalformedError):
        parse(text)


# -- where it lies --------------------------------------------------------------------------------


@every(
    "text",
    [
        "",
        "no front matter",
        "# heading\n---\na: 1\n---\n",
        "----\na: 1\n----\n",
        "--- a\n---\n",
        " ---\na: 1\n---\n",
    ],
)
def test_a_text_that_does_not_begin_with_three_dashes_has_none(text: str) -> None:
    assert split(text) is None


@every(
    "text, front, rest",
    [
        ("---\na: 1\n---\nbody", "a: 1\n", "body"),
        ("---\r\na: 1\r\n---\r\nbody", "a: 1\r\n", "body"),
        ("---\ra: 1\r---\rbody", "a: 1\r", "body"),
        ("\ufeff---\na: 1\n---\n", "a: 1\n", ""),
        ("\n \n---  \na: 1\n--- \nbody", "a: 1\n", "body"),
        ("---\na: 1\n---", "a: 1\n", ""),
        ("---\n---\n", "", ""),
        ("---\na: '--- '\n---\n---\n", "a: '--- '\n", "---\n"),
    ],
)
def test_it_lies_between_two_lines_of_dashes(text: str, front: str, rest: str) -> None:
    parts = split(text)
    assert parts is not None
    assert (text[parts.begin : parts.end], text[parts.rest :]) == (front, rest)


def test_one_that_never_ends_is_malformed() -> None:
    with pytest.raises(MalformedError, match="never ends; put --- behind its last line"):
        split("---\nid: t-1\n")


def test_a_huge_one_is_refused() -> None:
    with pytest.raises(MalformedError, match="longer than 64 KiB"):
        split("---\nx: " + "a" * LENGTH_LIMIT + "\n---\n")


# -- changing one value ---------------------------------------------------------------------------


@every(
    "before, after",
    [
        ("status: open", "status: closed"),
        ("status: 'open'  # why", "status: closed  # why"),
        ('"status"   :   "open"', '"status"   :   closed'),
        ("status:", "status: closed"),
        ("status:  # later", "status: closed  # later"),
        ("status: # nothing yet", "status: closed # nothing yet"),
        ("status: ~", "status: closed"),
        ("status: >\n  open\nx: 1", "status: closed\nx: 1"),
        ("status: |\n  open", "status: closed"),
        ("status:\n  open", "status:\n  closed"),
        ("? status\n: open", "? status\n: closed"),
        ("x: {status: open}\nstatus: open", "x: {status: open}\nstatus: closed"),
        ("status: open\nx: |\n  status: open", "status: closed\nx: |\n  status: open"),
        ("é: ü\u2028\nstatus: open", "é: ü\u2028\nstatus: closed"),
        ("{id: t-1, status: open, x: 1}", "{id: t-1, status: closed, x: 1}"),
        ("{id: t-1}", "{status: closed, id: t-1}"),
        ("id: t-1", "id: t-1\nstatus: closed"),
        ("  id: t-1\n  x: 1", "  id: t-1\n  x: 1\n  status: closed"),
        ("id: t-1\nx:\n  - a\n# end", "id: t-1\nx:\n  - a\n# end\nstatus: closed"),
        ("", "status: closed"),
        ("status: &s open", "status: closed"),
    ],
)
@every("newline", ["\n", "\r\n"])
@every("tail", ["", "\nstatus: open\n---\n", "\nno newline at the end, \u2028 ü"])
def test_only_the_value_changes(before: str, after: str, newline: str, tail: str) -> None:
    def text(front: str) -> str:
        whole = f"---\n{front}\n---{tail}" if front else f"---\n---{tail}"
        return "\ufeff" + whole.replace("\n", newline)

    assert with_value(text(before), "status", "closed") == text(after)


@every("front", ["status: [open]", "status: {a: b}", "status: a\nstatus: b", "- x"])
def test_what_cannot_be_changed_safely_is_refused(front: str) -> None:
    with pytest.raises(MalformedError):
        with_value(f"---\n{front}\n---\n", "status", "closed")
    with pytest.raises(MalformedError):
        with_value("no front matter", "status", "closed")


_KEYS = st.sampled_from(["id", "title", "x-é", "status", "labels"])
_SCALARS = st.text(alphabet="ab :#-'\"\\\n\t[]{}é\u2028😀\x07", max_size=12)


@given(st.dictionaries(_KEYS, _SCALARS, min_size=1), st.sampled_from(["\n", "\r\n"]), st.text(max_size=20))
def test_a_change_keeps_every_other_value_and_the_rest(
    front: dict[str, str], newline: str, tail: str
) -> None:
    head = "".join(f"{key}: {scalar(value)}{newline}" for key, value in front.items())
    text = f"---{newline}{head}---{newline}{tail}"
    changed = with_value(text, "status", "closed")
    parts = split(changed)
    assert parts is not None
    assert values(changed[parts.begin : parts.end]) == {**front, "status": "closed"}
    assert changed[parts.rest :] == tail
    assert with_value(changed, "status", "closed") == changed


@given(st.text(max_size=40))
def test_what_is_written_reads_back_as_the_same_text(text: str) -> None:
    if any(0xD800 <= ord(char) <= 0xDFFF for char in text):
        return
    assert values(f"x: {scalar(text)}\ny: [{scalar(text)}, {scalar(text)}]") == {"x": text, "y": [text, text]}


def test_other_yaml_readers_take_it_for_the_same_text_too() -> None:
    for text in (
        "no",
        "Yes",
        "1",
        "0o7",
        "2026-11-01",
        "~",
        "null",
        "1.5",
        "a: b",
        "- a",
        "*",
        "y",
        ".5",
        "NaN",
    ):
        assert yaml.safe_load(f"x: {scalar(text)}") == {"x": text}
