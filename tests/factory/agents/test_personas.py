"""Who agents are told to be: the project's own first, bundled else, installed without losing anything."""

from __future__ import annotations

from pathlib import Path

import pytest

from flyball.core.tasks.model_routing import STAGE_TIERS
from flyball.core.tasks.protected_paths import DEFAULT_PROTECTED, protected_among
from flyball.errors import UsageError
from flyball.factory.agents.personas import (
    PLACES,
    InstallState,
    bundled_names,
    bundled_text,
    find_persona,
    known_names,
    plan_install,
    read_persona,
    with_mark,
    write_install,
)


def write(root: Path, path: str, text: str) -> Path:
    target = root / path
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(text, encoding="utf-8")
    return target


# -- finding ----------------------------------------------------------------------------------------------


def test_every_bundled_one_can_be_read_and_says_who_it_is() -> None:
    assert {"implementer", "reviewer", "docs", "test", "explore", "debug", "planning"} == set(bundled_names())
    for name in bundled_names():
        found = read_persona(name, bundled_text(name), where=name)
        assert found.description
        assert found.text
        assert not any(tier in bundled_text(name) for tier in STAGE_TIERS.values())


def test_the_projects_own_goes_first_and_that_of_claude_code_before_all(tmp_path: Path) -> None:
    assert find_persona(tmp_path, "reviewer").where == "bundled"
    write(tmp_path, ".agents/personas/reviewer.md", "You are strict.")
    assert find_persona(tmp_path, "reviewer").text == "You are strict."
    text = "---\ndescription: ours\nmodel: opus\ntools: Read\neffort: high\n---\n\nYou are kind.\n"
    write(tmp_path, ".claude/agents/reviewer.md", text)
    found = find_persona(tmp_path, "reviewer")
    assert (found.text, found.effort, found.description) == ("You are kind.", "high", "ours")
    write(tmp_path, ".agents/personas/lint.md", "You lint.")
    assert "lint" in known_names(tmp_path)


def test_no_agent_can_change_a_persona() -> None:
    paths = [f"{place}/reviewer.md" for place in PLACES]
    assert [path for path, _ in protected_among(paths, DEFAULT_PROTECTED)] == paths


@pytest.mark.parametrize("name", ["../../etc/passwd", "a/b", "", ".hidden", "a..b"])
def test_a_name_that_leads_elsewhere_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(UsageError, match="cannot be a persona"):
        find_persona(tmp_path, name)


def test_one_that_is_nowhere_says_how_to_make_it(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="did you mean 'reviewer'"):
        find_persona(tmp_path, "reviever")
    with pytest.raises(UsageError, match=r"write \.agents/personas/zzz\.md"):
        find_persona(tmp_path, "zzz")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("---\nname: x\n---\n \n", "says nothing"),
        ("---\neffort: extreme\n---\nx", "effort is 'extreme'"),
        ("---\nname: [\n---\nx", "cannot be read"),
        ("---\nname: x\n", "cannot be read"),
        ("x" * 100_001, "shorten it"),
    ],
)
def test_one_that_cannot_be_used_says_why(tmp_path: Path, text: str, said: str) -> None:
    write(tmp_path, ".agents/personas/x.md", text)
    with pytest.raises(UsageError, match=said):
        find_persona(tmp_path, "x")


def test_one_that_is_not_text_is_refused(tmp_path: Path) -> None:
    write(tmp_path, ".agents/personas/x.md", "").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(UsageError, match="cannot read the persona"):
        find_persona(tmp_path, "x")


# -- installing -------------------------------------------------------------------------------------------


def test_what_is_installed_is_found_and_says_the_same(tmp_path: Path) -> None:
    written = write_install(tmp_path, plan_install(tmp_path, [], runtime="codex"))
    assert written == [f".agents/personas/{name}.md" for name in bundled_names()]
    for name in bundled_names():
        found = find_persona(tmp_path, name)
        assert found.where == f".agents/personas/{name}.md"
        assert found.text == read_persona(name, bundled_text(name), where="").text
    assert {each.state for each in plan_install(tmp_path, [], runtime="codex")} == {InstallState.CURRENT}


def test_claude_code_gets_them_where_it_looks(tmp_path: Path) -> None:
    assert write_install(tmp_path, plan_install(tmp_path, ["docs"], runtime="claude")) == [
        ".claude/agents/docs.md"
    ]


def test_a_changed_file_stays_unless_told_otherwise(tmp_path: Path) -> None:
    write_install(tmp_path, plan_install(tmp_path, ["docs"], runtime="codex"))
    path = tmp_path / ".agents/personas/docs.md"
    path.write_text(path.read_text() + "\nIn verse.\n")
    (plan,) = plan_install(tmp_path, ["docs"], runtime="codex")
    assert (plan.state, plan.writes) == (InstallState.CHANGED, False)
    assert write_install(tmp_path, [plan]) == []
    assert "In verse." in path.read_text()
    write_install(tmp_path, plan_install(tmp_path, ["docs"], runtime="codex", force=True))
    assert path.read_text() == with_mark(bundled_text("docs"))


def test_an_untouched_file_of_another_flyball_is_brought_up_to_date(tmp_path: Path) -> None:
    old = with_mark("---\nname: docs\n---\nWhat it said once.\n")
    path = write(tmp_path, ".agents/personas/docs.md", old)
    (plan,) = plan_install(tmp_path, ["docs"], runtime="codex")
    assert (plan.state, plan.writes) == (InstallState.OUTDATED, True)
    write_install(tmp_path, [plan])
    assert path.read_text() == with_mark(bundled_text("docs"))


def test_a_file_of_another_author_is_theirs(tmp_path: Path) -> None:
    write(tmp_path, ".agents/personas/docs.md", bundled_text("docs"))
    (plan,) = plan_install(tmp_path, ["docs"], runtime="codex")
    assert plan.state is InstallState.CHANGED


def test_only_bundled_ones_can_be_installed(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no persona 'doc' is bundled"):
        plan_install(tmp_path, ["doc"], runtime="codex")
