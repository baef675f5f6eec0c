"""Tokens: what they stand for, what is refused, and that two meet exactly if a path could be in both."""

from __future__ import annotations

import itertools
import re
import time
import unicodedata
from functools import cache

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flyball.core.tasks.footprint import Footprint, conflict
from flyball.core.tasks.globs import NAMES_LIMIT, TOKEN_LIMIT, check_token
from flyball.errors import UsageError
from tests.cases import every

REFUSED = {
    "": "must not be empty",
    "/etc/passwd": "begins with a slash",
    "../other": "leads out of the project",
    "a/../b": "leads out of the project",
    ".": "names the whole project",
    "./": "names the whole project",
    "a[bc": "is not closed",
    "a[]": "is not closed",
    "a[!]": "is not closed",
    "x/[a/b]": "is not closed",
    "[z-a]": "runs backwards",
    "[!\U00000000-\U0010ffff]": "control characters",
    "[.-/]x/[+--]": "is not closed",
    "src/**.py": "** inside a name",
    "a\\b": "backslash",
    "src/{a,b}.py": "one token for each",
    " api": "blank",
    "api ": "blank",
    "a\nb": "control characters",
    "a\x00b": "control characters",
    "x" * (TOKEN_LIMIT + 1): "characters long",
    "/".join("x" * (NAMES_LIMIT + 1)): "names between slashes",
}


def overlap(a: str, b: str) -> bool:
    """Whether some path could belong to both tokens."""
    return conflict(Footprint(write=(a,)), Footprint(write=(b,))) is not None


@every("token", REFUSED)
def test_a_token_without_a_possible_meaning_is_refused_with_words(token: str) -> None:
    with pytest.raises(UsageError, match=re.escape(REFUSED[token])):
        check_token(token)


@every("token", REFUSED)
def test_a_token_that_would_be_refused_meets_everything(token: str) -> None:
    assert overlap(token, "some/where")
    assert overlap("some/where", token)
    assert overlap(token, token)


def test_what_is_not_text_is_refused() -> None:
    with pytest.raises(UsageError, match="must be text, not int"):
        check_token(7)  # type: ignore[arg-type]


@every(
    "token, normal",
    [
        ("./x", "x"),
        ("x//y", "x/y"),
        ("x/./y/", "x/y/"),
        ("lib/**/", "lib/**"),
        ("api", "api"),
        ("db:schema", "db:schema"),
        ("[]x]", "[]x]"),
        ("{{cookiecutter}}/x", "{{cookiecutter}}/x"),
        (unicodedata.normalize("NFD", "caf\u00e9/x"), "caf\u00e9/x"),
        ("a b/c", "a b/c"),
    ],
)
def test_a_token_has_a_normal_form(token: str, normal: str) -> None:
    assert check_token(token) == normal
    assert check_token(normal) == normal
    assert overlap(token, normal)


MEET = [
    ("pages", "pages/hello.md"),
    ("pages", "pages"),
    ("pages", "**/*.md"),
    ("pages", "*/hello.md"),
    ("conf.d", "conf.d/x"),
    ("conf.d", "conf.d/*"),
    ("conf.d", "conf.d/**/x"),
    ("conf.d/", "**/x.conf"),
    ("src/My.Project", "src/**/*.cs"),
    (".github", ".github/workflows/*.yml"),
    (".github", "**/*.yml"),
    ("v1.2", "*/x"),
    ("pages/", "pages/hello.md"),
    ("pages/", "pages"),
    ("pages/hello*", "pages/**"),
    ("pages/hello*", "pages/hello"),
    ("lib/**", "lib/a/b/c.py"),
    ("lib/**", "lib"),
    ("**", "anything"),
    ("**/x.py", "x.py"),
    ("a/**/b", "a/b"),
    ("a/**/b", "a/x/y/b/c"),
    ("*/docs", "api/docs/index.md"),
    ("a/?.py", "a/b.py"),
    ("[ab]x", "?x"),
    ("[a-m]*", "[k-z]*"),
    ("[!a]x", "[!b]x"),
    ("[]]x", "]x"),
    ("a*c", "*b*"),
    ("a*x*c", "ab*y*c"),
    ("?b", "*?b"),
    ("?b*", "?b"),
    ("*ab*ba*", "abba"),
    ("x*", "*y"),
    ("./src//a", "src/a"),
    ("caf\u00e9", "cafe\u0301"),
    ("app/[slug]/page.tsx", "app/[slug]/page.tsx"),
    ("[*]", "[*]"),
]
APART = [
    ("pages", "page"),
    ("src/app.py", "**/*.md"),
    ("src/app.py", "src/*/x"),
    ("*/app.py", "*/*/x"),
    ("pages", "pages2"),
    ("src/*", "src/core/x.py"),
    ("src/*", "src/core/**"),
    ("docs/", "doc*"),
    ("pages/hello*", "pages/hello/x.md"),
    ("API", "api"),
    ("a/?.py", "a/bb.py"),
    ("a/?b", "a//b"),
    ("[ab]x", "[cd]x"),
    ("[!a]x", "ax"),
    ("[!a-z]", "[a-y]"),
    ("[.-0]", "[!.0]"),
    ("a*b", "*c"),
    ("a*b", "b*"),
    ("ab*ba", "aba"),
    ("*b*b", "ab"),
    ("*ab*ba*", "aba"),
    ("**/x.py", "**/y.py"),
    ("a/**/b/*", "a/*/c/*"),
    ("lib/**", "src/**"),
    ("[*]", "x"),
]


@every("a, b", MEET)
def test_two_tokens_meet_if_a_path_could_be_in_both(a: str, b: str) -> None:
    assert overlap(a, b)
    assert overlap(b, a)


@every("a, b", APART)
def test_two_tokens_stay_apart_if_no_path_could_be_in_both(a: str, b: str) -> None:
    assert not overlap(a, b)
    assert not overlap(b, a)


@every(
    "a, b",
    [
        ("/".join(["**/*a*"] * 20), "/".join(["**/*b*"] * 20)),
        ("/".join(["**", "*a*"] * 20 + ["x.py"]), "/".join(["**", "*b*"] * 20 + ["y.py"])),
        ("/".join(["**", "?"] * 30 + ["x.py"]), "/".join(["z"] * 60 + ["y.py"])),
        ("*a" * 200 + "c", "*b" * 200 + "d"),
        ("*a" * 200 + "c", "a" * 499 + "d"),
        ("?*" * 200 + "c", "*?" * 200 + "d"),
        ("[ab]*" * 99 + "c", "[bc]*" * 99 + "d"),
    ],
)
def test_patterns_made_to_explode_are_compared_quickly(a: str, b: str) -> None:
    check_token(a), check_token(b)
    start = time.perf_counter()
    overlap(a, b)
    overlap(b, a)
    assert time.perf_counter() - start < 2


# -- against brute force -----------------------------------------------------------------------------------

_NAME_PARTS = ["a", "b", "*", "?", "[ab]", "[!a]", "[b-z]"]
_NAMES = ["".join(chars) for size in range(1, 7) for chars in itertools.product("abc", repeat=size)]
_PATHS = [
    "/".join(names)
    for depth in range(1, 7)
    for names in itertools.product(["a", "b", "c", "b.x"], repeat=depth)
]
_ONE = ["a", "b", "b.x", "?", "*", "b*", "[ab]", "[!a]", "**"]

name_tokens = (
    st.lists(st.sampled_from(_NAME_PARTS), min_size=1, max_size=4)
    .map("".join)
    .filter(lambda name: "**" not in name)
)
path_tokens = st.builds(
    lambda names, tail: "/".join(names) + tail,
    st.lists(st.sampled_from(_ONE), min_size=1, max_size=3),
    st.sampled_from(["", "/"]),
).filter(lambda token: len(token.strip("/").split("/")) < 3 or not token.endswith("/"))


def _expression(token: str) -> re.Pattern[str]:
    """What the words of pattern.py say, written down once more and in another way."""
    names = [name for name in token.split("/") if name]
    beneath = token.endswith("/") or names[-1] == "**"
    while names and names[-1] == "**":
        names.pop()
    found = ""
    for name in names:
        found += "(?:[^/]+/)*" if name == "**" else _name_expression(name) + "/"
    if beneath:
        return re.compile(f"{found}[^/]+(?:/[^/]+)*")
    folder = not set("*?[.") & set(names[-1])
    return re.compile(found[:-1] + ("(?:/[^/]+)*" if folder else ""))


def _name_expression(name: str) -> str:
    return name.replace(".", "[.]").replace("[!", "[^/").replace("*", "[^/]*").replace("?", "[^/]")


def _leads_through(a: str, b: str) -> bool:
    return not set("*?[") & set(a) and f"{b}/".startswith(a.rstrip("/") + "/")


@cache
def _matches(token: str, *, names: bool) -> frozenset[str]:
    expression = _expression(token)
    return frozenset(text for text in (_NAMES if names else _PATHS) if expression.fullmatch(text))


@settings(max_examples=500)
@given(name_tokens, name_tokens)
def test_single_names_agree_with_brute_force(a: str, b: str) -> None:
    assert overlap(a, b) == bool(_matches(a, names=True) & _matches(b, names=True))


@settings(max_examples=500)
@given(path_tokens, path_tokens)
def test_paths_agree_with_brute_force(a: str, b: str) -> None:
    common = _matches(a, names=False) & _matches(b, names=False)
    assert overlap(a, b) == bool(common or _leads_through(a, b) or _leads_through(b, a))


@given(st.text(max_size=30) | path_tokens, st.text(alphabet="ab*?[]!-/.{},\\ ", max_size=12))
def test_comparing_never_raises_and_is_the_same_both_ways(a: str, b: str) -> None:
    assert overlap(a, b) == overlap(b, a)
    assert overlap(a, a)
    assert overlap(b, b)


@given(st.text(alphabet="ab*?[]!-/.{},\\ \u0301e", max_size=12))
def test_a_token_is_refused_or_has_a_normal_form_that_means_the_same(token: str) -> None:
    try:
        normal = check_token(token)
    except UsageError:
        return
    assert check_token(normal) == normal
    for other in ("a", "b/a", "*", "?b", "a/**/b", "[!a]/*"):
        assert overlap(token, other) == overlap(normal, other)
