"""Footprints: who may run beside whom, and where a footprint comes from."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flyball.core.tasks.footprint import (
    TOKENS_LIMIT,
    Clash,
    Footprint,
    Taken,
    check_footprint,
    conflict,
    effective_footprint,
)
from flyball.errors import UsageError
from tests.cases import every

AREAS = {"api": ["src/api/**", "docs/api"], "web": ["web/"], "empty": []}


def writes(*tokens: str) -> Footprint:
    return Footprint(write=tokens)


def reads(*tokens: str) -> Footprint:
    return Footprint(read=tokens)


# -- who clashes -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("other", [writes("a"), reads("a"), Footprint(), None])
def test_a_task_that_declares_nothing_clashes_with_every_other(other: Footprint | None) -> None:
    assert conflict(None, other) is not None
    assert conflict(other, None) is not None


def test_two_writers_of_a_token_clash() -> None:
    assert conflict(writes("api"), writes("api")) == Clash("api", "api")


def test_a_write_conflicts_with_a_read_of_the_same_token() -> None:
    assert conflict(writes("api"), reads("api")) == Clash("api", "api", they_write=False)
    assert conflict(reads("api"), writes("api")) == Clash("api", "api", i_write=False)


def test_two_readers_run_side_by_side() -> None:
    assert conflict(reads("lib/**", "a"), reads("lib/x", "a")) is None


def test_a_token_read_and_written_counts_as_written() -> None:
    assert conflict(Footprint(write=("a",), read=("a",)), reads("a")) is not None
    assert conflict(reads("a"), Footprint(write=("a",), read=("a",))) is not None


def test_a_folder_clashes_with_its_content() -> None:
    assert conflict(writes("pages"), writes("pages/hello.md")) == Clash("pages", "pages/hello.md")


def test_a_task_that_touches_nothing_clashes_with_no_task_that_declares() -> None:
    assert conflict(Footprint(), writes("**")) is None
    assert conflict(writes("**"), Footprint()) is None
    assert conflict(Footprint(), Footprint()) is None


def test_one_of_many_tokens_is_enough() -> None:
    mine = Footprint(write=("x", "y"), read=("lib/**",))
    theirs = Footprint(write=("lib/a.py",), read=("z",))
    assert conflict(mine, theirs) == Clash("lib/**", "lib/a.py", i_write=False)


@every(
    "mine, theirs, words",
    [
        (writes("pages/hello*"), reads("pages/**"), "writes pages/hello*, which t-3 reads as pages/**"),
        (reads("lib"), writes("lib"), "reads lib, which t-3 writes"),
        (None, writes("lib"), "declares no footprint, so it cannot run beside t-3"),
        (None, None, "declares no footprint, so it cannot run beside t-3"),
        (writes("lib"), None, "cannot run beside t-3, which declares no footprint"),
    ],
)
def test_a_clash_says_which_tokens(mine: Footprint | None, theirs: Footprint | None, words: str) -> None:
    clash = conflict(mine, theirs)
    assert clash is not None
    assert clash.words("t-3") == words


# -- many at once ------------------------------------------------------------------------------------------

_PLAIN = ["a", "a/b", "a/b.x", "c", "c/dd", "c/ddx"]
_GLOBS = [
    "a/*",
    "a/x*",
    "a/**",
    "*/b",
    "*/b.x",
    "**/b.x",
    "**",
    "c/d*",
    "c/dd*x",
    "c/*d",
    "[ac]/?",
    "a/**/c/*d",
]
_SOME = st.lists(st.sampled_from([*_PLAIN, *_GLOBS, "x["]), max_size=2).map(tuple)
footprints = st.none() | st.builds(Footprint, write=_SOME, read=_SOME)


@given(footprints, footprints)
def test_clashing_is_the_same_both_ways(a: Footprint | None, b: Footprint | None) -> None:
    there, back = conflict(a, b), conflict(b, a)
    assert (there is None) == (back is None)


@settings(max_examples=300)
@given(st.lists(footprints, max_size=6), footprints)
def test_what_is_taken_answers_as_each_alone_would(
    others: list[Footprint | None], mine: Footprint | None
) -> None:
    taken = Taken()
    for n, other in enumerate(others):
        taken.add(other, owner=str(n))
    found = taken.clash(mine)
    clashing = [n for n, other in enumerate(others) if conflict(mine, other)]
    assert (found is None) == (not clashing)
    if found is not None:
        assert int(found[0]) in clashing
        token = found[1].theirs
        other = others[int(found[0])]
        assert token is None or (other is not None and token in (*other.write, *other.read))


@pytest.mark.parametrize("token", ["c/dd1x", "c/d1", "a/b.x"])
def test_all_globs_at_a_place_are_looked_at(token: str) -> None:
    taken = Taken()
    for other in ("a/x*", "*/b.x", "c/dd*x", "c/d*"):
        taken.add(writes(other), owner=other)
    assert taken.clash(writes(token)) is not None
    assert taken.clash(writes("c/x", "a/b.y", "d.y")) is None


def test_an_answer_changes_when_something_is_taken() -> None:
    taken = Taken()
    assert taken.clash(writes("a")) is None
    taken.add(reads("b"), owner="t-1")
    assert taken.clash(writes("a")) is None
    taken.add(reads("a/x"), owner="t-2")
    assert taken.clash(writes("a")) == ("t-2", Clash("a", "a/x", they_write=False))


# -- where a footprint comes from --------------------------------------------------------------------------


@every(
    "declared, labels, expected",
    [
        (None, [], None),
        (None, ["backend", "res:docker"], None),
        (Footprint(), [], Footprint()),
        (writes("a"), [], writes("a")),
        (None, ["fp:api"], writes("api")),
        (None, ["fp:read:lib/**"], reads("lib/**")),
        (None, ["fp:read"], writes("read")),
        (writes("a"), ["fp:b", "fp:read:c"], Footprint(write=("a", "b"), read=("c",))),
        (writes("a"), ["area:api"], writes("a")),
        (Footprint(), ["area:api"], Footprint()),
        (None, ["area:api"], writes("src/api/**", "docs/api")),
        (None, ["area:api", "area:web"], writes("src/api/**", "docs/api", "web/")),
        (None, ["fp:x", "area:api"], writes("x")),
        (None, ["fp:read:lib", "area:web"], Footprint(write=("web/",), read=("lib",))),
        (None, ["area:unknown"], None),
        (None, ["area:web", "area:unknown"], None),
        (None, ["area:empty"], None),
        (None, ["fp:read:lib", "area:unknown"], None),
        (writes("a"), ["area:unknown"], writes("a")),
    ],
)
def test_a_footprint_is_declared_or_labelled_or_an_area(
    declared: Footprint | None, labels: list[str], expected: Footprint | None
) -> None:
    assert effective_footprint(declared, labels, AREAS) == expected


def test_a_label_without_a_token_may_touch_anything() -> None:
    found = effective_footprint(None, ["fp:"], {})
    assert conflict(found, reads("somewhere")) is not None


# -- checking ----------------------------------------------------------------------------------------------


def test_a_footprint_with_a_bad_token_is_refused() -> None:
    with pytest.raises(UsageError, match="is not closed"):
        check_footprint(reads("lib", "x[a"))


def test_a_footprint_of_too_many_tokens_is_refused() -> None:
    with pytest.raises(UsageError, match=f"at most {TOKENS_LIMIT}"):
        check_footprint(writes(*(f"f{n}" for n in range(TOKENS_LIMIT + 1))))


def test_a_checked_footprint_has_its_tokens_in_normal_form() -> None:
    assert check_footprint(Footprint(("./a//b",), ("lib/",))) == Footprint(("a/b",), ("lib/",))
