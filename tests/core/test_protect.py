"""Which paths no agent may change."""

from __future__ import annotations

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flyball.core.protect import DEFAULT_PROTECTED, protected_among


def is_protected(path: str, *patterns: str, link: str | None = None) -> bool:
    return bool(protected_among([path], patterns or DEFAULT_PROTECTED, {path: link} if link else None))


@pytest.mark.parametrize(
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


@pytest.mark.parametrize(
    "path", ["src/main.py", "tasks.py", "mytasks/x", "docs/tasks.md", "flyball.toml.md", "lib/flyball.toml"]
)
def test_what_only_sounds_like_it_is_free(path: str) -> None:
    assert not is_protected(path)


@pytest.mark.parametrize("path", ["secrets", "secrets/key", "secrets/a/b", "SECRETS/key", "Secrets"])
def test_a_slash_at_the_end_means_the_folder_and_all_beneath_it(path: str) -> None:
    assert is_protected(path, "secrets/")


@pytest.mark.parametrize("path", ["lib/secrets/key", "secrets.txt", "mysecrets/x"])
def test_a_pattern_stands_at_the_top_unless_it_says_otherwise(path: str) -> None:
    assert not is_protected(path, "secrets/")


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


@pytest.mark.parametrize(
    ("path", "target"),
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
def test_a_link_into_a_protected_place_or_out_of_the_repository_is_refused(path: str, target: str) -> None:
    assert is_protected(path, "secrets/", link=target)


@pytest.mark.parametrize(("path", "target"), [("link", "lib/x"), ("pages/link", "../lib"), ("a/b", "c")])
def test_a_link_to_anywhere_else_is_free(path: str, target: str) -> None:
    assert not is_protected(path, "secrets/", link=target)


def test_every_protected_path_is_named_with_its_pattern() -> None:
    found = protected_among(["a", "secrets/x", "b.pem"], ["secrets/", "*.pem"])
    assert found == [("secrets/x", "secrets/"), ("b.pem", "*.pem")]


NAMES = st.text(st.characters(exclude_characters="/\0*?", exclude_categories=["Cs"]), min_size=1, max_size=8)


@given(NAMES, NAMES)
def test_whatever_a_folder_is_called_it_is_protected_in_any_case_and_form(folder: str, name: str) -> None:
    shown = "".join(char for char in folder if unicodedata.category(char) != "Cf")
    if shown.strip("."):
        for form in ("NFC", "NFD"):
            assert is_protected(unicodedata.normalize(form, f"{folder}/{name}"), f"{folder}/")
