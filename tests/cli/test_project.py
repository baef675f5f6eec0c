"""``flyball project``: the registry as people see it."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from flyball.governor.ask import default_project
from tests.cli.kit import Cli


def make_project(root: Path, project: str) -> Path:
    root.mkdir()
    subprocess.run(["git", "init", "-q"], cwd=root, check=True)
    text = (
        f'[project]\nid = "{project}"\n[gate]\ncommands = ["make test"]\n[merge]\nprotected = ["secrets/"]\n'
    )
    (root / "flyball.toml").write_text(text, encoding="utf-8")
    return root


@pytest.fixture
def blog(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    root = make_project(tmp_path / "site", "blog")
    monkeypatch.chdir(root)
    return root


def test_a_folder_that_is_not_a_project_cannot_be_added(cli: Cli, tmp_path: Path) -> None:
    result = cli("project", "add", str(tmp_path))
    assert (result.code, "flyball init" in result.err) == (2, True)


def test_a_folder_that_is_not_there_cannot_be_added(cli: Cli, blog: Path) -> None:
    result = cli("project", "add", "typo")
    assert (result.code, "there is no folder typo" in result.err) == (2, True)


def test_a_project_with_a_broken_flyball_toml_cannot_be_added(cli: Cli, blog: Path) -> None:
    (blog / "flyball.toml").write_text("[project\n", encoding="utf-8")
    result = cli("project", "add", "--json")
    assert (result.code, result.json["error"]) == (2, "UsageError")


def test_a_second_project_of_the_same_id_is_refused_with_the_way_out(
    cli: Cli, blog: Path, tmp_path: Path
) -> None:
    cli("project", "add")
    other = make_project(tmp_path / "other", "blog")
    result = cli("project", "add", str(other))
    assert (result.code, "flyball project remove blog" in result.err) == (2, True)


def test_without_git_the_project_is_registered_and_the_trouble_said(
    cli: Cli, blog: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    with monkeypatch.context() as without:
        without.setenv("PATH", str(tmp_path))
        result = cli("project", "add")
    assert (result.code, "git was not found" in result.err) == (1, True)
    assert cli("project", "list", "--json").json["projects"][0]["id"] == "blog"


def test_a_damaged_entry_is_listed_as_a_problem_beside_the_good_ones(cli: Cli, blog: Path) -> None:
    cli("project", "add")
    (cli.home / "registry" / "projects" / "shop.json").write_text("{", encoding="utf-8")
    result = cli("project", "list")
    assert result.code == 1
    assert "blog" in result.out
    assert "problem: cannot understand" in result.out
    assert cli("project", "list", "--json").json["broken"][0]["id"] == "shop"


def test_a_project_whose_folder_is_gone_is_shown_as_gone(cli: Cli, blog: Path, tmp_path: Path) -> None:
    cli("project", "add")
    blog.rename(tmp_path / "moved")
    assert "the folder is gone" in cli("project", "list").out
    shown = cli("project", "show", "blog")
    assert (shown.code, "flyball project remove blog" in shown.out) == (1, True)
    assert cli("project", "show", "blog", "--json").json["exists"] is False


def test_nothing_registered_is_said(cli: Cli) -> None:
    result = cli("project", "list")
    assert (result.code, "no project is registered" in result.out) == (0, True)


def test_removing_or_showing_an_unknown_project_names_the_nearest(cli: Cli, blog: Path) -> None:
    cli("project", "add")
    for action in ("remove", "show"):
        result = cli("project", action, "blgo")
        assert (result.code, "did you mean 'blog'?" in result.err) == (2, True)


def test_add_list_show_remove_undo(cli: Cli, blog: Path) -> None:
    assert cli("project", "add").out == f"blog is now registered at {blog}\n"
    assert cli("project", "add").out == f"blog is already registered at {blog}\n"
    assert str(blog) in cli("project", "list").out
    assert "nothing in its folder has changed" in cli("project", "remove", "blog").out
    assert cli("project", "list", "--json").json["projects"] == []
    assert cli("project", "undo").out.startswith("took back: remove blog")
    assert cli("project", "list", "--json").json["projects"][0]["path"] == str(blog)


def test_every_change_speaks_json(cli: Cli, blog: Path) -> None:
    added = cli("project", "add", "--json").json
    assert (added["id"], added["changed"], added["exists"]) == ("blog", True, True)
    assert cli("project", "add", "--json").json["changed"] is False
    assert cli("project", "remove", "blog", "--json").json == {"id": "blog", "removed": True}
    assert "remove blog" in cli("project", "undo", "--json").json["undone"]


def test_show_says_what_the_settings_are(cli: Cli, blog: Path) -> None:
    result = cli("project", "show")
    assert result.code == 0
    for words in ("3 at once, rolling", "make test", "auto", "secrets/", "claude", "flyball project add"):
        assert words in result.out
    shown = cli("project", "show", "--json").json
    assert (shown["id"], shown["registered"], shown["config"]["gate"]) == ("blog", False, ["make test"])


def test_show_never_repeats_the_environment_of_agents(cli: Cli, blog: Path) -> None:
    with (blog / "flyball.toml").open("a", encoding="utf-8") as file:
        file.write('[agent.env]\nAPI_KEY = "hunter2"\n')
    assert "hunter2" not in cli("project", "show").out + cli("project", "show", "--json").out


def test_a_path_that_is_not_utf8_can_be_shown(cli: Cli, tmp_path: Path) -> None:
    root = make_project(tmp_path / os.fsdecode(b"caf\xe9"), "cafe")
    assert cli("project", "add", str(root)).code == 0
    assert "caf" in cli("project", "list").out
    assert "\\udce9" in cli("project", "list", "--json").json["projects"][0]["path"]
    assert default_project(root) == "cafe"


def test_a_registered_project_is_what_its_agents_compete_as(cli: Cli, blog: Path) -> None:
    assert default_project(blog) == "site"
    cli("project", "add")
    assert default_project(blog) == "blog"
