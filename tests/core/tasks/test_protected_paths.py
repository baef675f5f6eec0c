"""Which paths no agent may change."""

from __future__ import annotations

import re
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flyball.core.tasks.protected_paths import DEFAULT_PROTECTED, protected_among
from tests.cases import every


def is_protected(path: str, *patterns: str, link: str | None = None) -> bool:
    return bool(protected_among([path], patterns or DEFAULT_PROTECTED, {path: link} if link else None))


@every(
    "path",
    [
        "flyball.toml",
        "tasks/t-1.md",
        "tasks/deep/t-1.md",
        ".flyball/ledger.db",
        "CLAUDE.md",
        "lib/deep/CLAUDE.md",
        "AGENTS.md",
        "MEMORY.md",
        ".claude/settings.json",
        "lib/.claude/settings.json",
        ".beads/db",
        ".github/workflows/ci.yml",
        ".gitlab-ci.yml",
        ".circleci/config.yml",
        "Jenkinsfile",
        "CODEOWNERS",
        "docs/CODEOWNERS",
        ".githooks/pre-commit",
        ".husky/pre-commit",
        ".gitignore",
        "lib/.gitignore",
        ".envrc",
        ".pre-commit-config.yaml",
        ".gitmodules",
    ],
)
def test_whatever_steers_agents_or_checks_is_protected_by_default(path: str) -> None:
    assert is_protected(path)
    assert is_protected(path.upper()), "some file systems ignore case"
    assert is_protected(path.swapcase())


@every(
    "path", ["src/main.py", "tasks.py", "mytasks/x", "docs/tasks.md", "flyball.toml.md", "lib/flyball.toml"]
)
def test_what_only_sounds_like_it_is_free(path: str) -> None:
    assert not is_protected(path)


@every("path", ["secrets", "secrets/key", "secrets/a/b", "SECRETS/key", "Secrets"])
@every("pattern", ["secrets", "secrets/", "/secrets", "./secrets"])
def test_a_name_means_the_path_and_all_beneath_it_with_or_without_a_slash(path: str, pattern: str) -> None:
    assert is_protected(path, pattern)


@pytest.mark.parametrize(
    ("path", "pattern"),
    [
        ("conf/keys/a", "conf/keys"),
        ("x/conf/keys/a/b", "**/keys"),
        ("secrets-2/key", "secrets*"),
        ("CLAUDE.md/x", "**/CLAUDE.md"),
    ],
)
def test_whatever_the_pattern_looks_like_all_beneath_is_protected_too(path: str, pattern: str) -> None:
    assert is_protected(path, pattern)


@every("path", ["lib/secrets/key", "secrets.txt", "secrets2/x", "mysecrets/x", "lib/secrets"])
@every("pattern", ["secrets", "secrets/"])
def test_a_pattern_stands_at_the_top_unless_it_says_otherwise(path: str, pattern: str) -> None:
    assert not is_protected(path, pattern)


def test_stars_stay_within_a_name_and_two_cross_folders() -> None:
    assert is_protected("a.pem", "*.pem")
    assert not is_protected("x/a.pem", "*.pem")
    assert is_protected("x/y/a.pem", "**/*.pem")
    assert is_protected("a.pem", "**/*.pem")
    assert is_protected("conf/a.b", "conf/?.b")
    assert not is_protected("conf/a/b", "conf/?/?/b")


@pytest.mark.parametrize("pattern", ["/secrets/", "./secrets/", "secrets/"])
def test_a_slash_or_a_dot_in_front_means_the_top(pattern: str) -> None:
    assert is_protected("secrets/key", pattern)


def test_composed_and_decomposed_letters_are_one() -> None:
    assert is_protected(unicodedata.normalize("NFD", "schl\u00fcssel"), "schl\u00fcssel")
    assert is_protected("schl\u00fcssel", unicodedata.normalize("NFD", "SCHL\u00dcSSEL"))


@pytest.mark.parametrize(
    "path", [".git\u200chub/workflows/x", "task\u200ds/t-1.md", "\ufeffCLAUDE.md", "CLAUDE\u2060.md"]
)
def test_letters_that_some_file_systems_do_not_see_hide_nothing(path: str) -> None:
    """HFS+ ignores them: there the two are one file."""
    assert is_protected(path)


@every(
    "path, target",
    [
        ("link", "secrets"),
        ("link", "secrets/"),
        ("link", "./secrets/key"),
        ("pages/link", "../secrets/key"),
        ("pages/link", "../SECRETS"),
        ("a/b/link", "../../secrets/x/../key"),
        ("link", "/etc/passwd"),
        ("link", ".."),
        ("link", "../other"),
        ("a/link", "../../other"),
        ("a/link", "b/../../../other"),
    ],
)
@every("pattern", ["secrets", "secrets/"])
def test_a_link_into_a_protected_place_or_out_of_the_repository_is_refused(
    path: str, target: str, pattern: str
) -> None:
    assert is_protected(path, pattern, link=target)


@every(
    "path, pattern",
    [
        ("conf", "conf/secret.toml"),
        ("CONF", "conf/secret.toml"),
        ("conf", "/conf/secret.toml"),
        ("conf", "conf/deep/keys/"),
        ("conf/deep", "conf/deep/keys/"),
        ("apps/one", "apps/*/secret.toml"),
        ("apps/one", "apps/**/secret.toml"),
        ("apps/one/two", "apps/**/secret.toml"),
        ("x/conf", "**/conf/secret.toml"),
        ("conf", "**/conf/secret.toml"),
    ],
)
def test_a_link_in_the_place_of_a_folder_above_a_protected_path_is_refused(path: str, pattern: str) -> None:
    """A reader of the protected path is led elsewhere, and nothing says that the path has changed."""
    assert protected_among([path], [pattern], {path: "lib"}) == [(path, pattern)]


@every(
    "path, pattern",
    [
        ("con", "conf/secret.toml"),
        ("lib/conf", "conf/secret.toml"),
        ("conf/other", "conf/secret.toml"),
        ("apps", "**/secret.toml"),
        ("lib/link", "**/CLAUDE.md"),
        ("lib/link", "**/.claude/"),
    ],
)
def test_a_link_beside_the_way_to_a_protected_path_is_free(path: str, pattern: str) -> None:
    assert not is_protected(path, pattern, link="x")


@pytest.mark.parametrize("path", ["conf", "conf/readme.md", "apps/readme.md"])
def test_a_file_above_or_beside_a_protected_path_is_free(path: str) -> None:
    """It holds nothing; a protected file that made room for it is among the changed paths itself."""
    assert protected_among([path], ["conf/secret.toml", "apps/*/secret.toml"], {path: ""}) == []


@pytest.mark.parametrize(("path", "target"), [("link", "lib/x"), ("pages/link", "../lib"), ("a/b", "c")])
def test_a_link_to_anywhere_else_is_free(path: str, target: str) -> None:
    assert not is_protected(path, "secrets/", link=target)
    assert not is_protected(path, link=target)


def test_a_file_is_not_taken_for_a_link_to_its_own_folder() -> None:
    assert protected_among(["a/b.txt"], ["a/c", "a?"], {"a/b.txt": ""}) == []


def test_every_protected_path_is_named_with_its_pattern() -> None:
    found = protected_among(["a", "secrets/x", "b.pem"], ["secrets/", "*.pem"])
    assert found == [("secrets/x", "secrets/"), ("b.pem", "*.pem")]


NAMES = st.text(st.characters(exclude_characters="/\0*?", exclude_categories=["Cs"]), min_size=1, max_size=8)


@given(NAMES, NAMES)
def test_whatever_a_folder_is_called_it_is_protected_in_any_case_and_form(folder: str, name: str) -> None:
    shown = "".join(char for char in folder if unicodedata.category(char) != "Cf")
    if shown.strip("."):
        for form in ("NFC", "NFD"):
            for pattern in (folder, f"{folder}/"):
                assert is_protected(unicodedata.normalize(form, f"{folder}/{name}"), pattern)


@pytest.mark.parametrize(("path", "refused"), [("deep", True), ("deep/secrets", True), ("lib", False)])
def test_a_submodule_above_a_protected_path_is_refused(path: str, refused: bool) -> None:
    found = protected_among([path], ["deep/secrets/key"], submodules={path})
    assert bool(found) is refused


GLOBS = {"**/": "(?:.*/)?", "**": ".*", "*": "[^/]*", "?": "[^/]"}


@given(
    st.lists(st.sampled_from(["a", "b", "ab", "/", "*", "**", "**/", "?"]), min_size=1, max_size=8).map(
        "".join
    ),
    st.text("ab/", min_size=1, max_size=10),
)
def test_a_pattern_means_what_it_says(pattern: str, path: str) -> None:
    plain = pattern.removeprefix("./").strip("/")
    pieces = re.split(r"(\*\*/|\*\*|\*|\?)", plain)
    meant = "".join(GLOBS.get(piece, re.escape(piece)) for piece in pieces) + "(/.*)?"
    assert is_protected(path, pattern) is bool(re.fullmatch(meant, path))


@pytest.mark.parametrize("pattern", ["**/a/**/a/**/a/**/a/**/b", "*a*a*a*a*a*b", "**/*a*/**/*a*/**/*a*/b"])
@pytest.mark.parametrize("path", ["/".join(["a"] * 5000), "a" * 5000, "a/" * 2500 + "b"])
def test_a_path_that_was_made_for_a_pattern_takes_no_time(pattern: str, path: str) -> None:
    """With backtracking each of these takes longer than a day."""
    assert is_protected(path, pattern) is (path[-1] == "b" and "/" in path and pattern[:2] == "**")
