"""Entries go into settings beside what is there, and come out without a trace."""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path

import pytest

from flyball.cli.main import main
from flyball.hooks.installation import read_installed
from flyball.hooks.registry import NAMES, load_hooks

SETTINGS = """\
// mine
{
    "model": "opus", // keep
    "hooks": {
        "SessionStart": [
            {"hooks": [{"type": "command", "command": "true"}]}
        ]
    },
    "env": {"A": "b"}
}
"""
every = pytest.mark.parametrize("name", NAMES)
by_settings = pytest.mark.parametrize("name", ["claude", "codex", "gemini"])


def settings_of(name: str) -> Path:
    return load_hooks(name).settings_path(os.environ)


def write(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


@every
def test_install_and_remove_where_nothing_was_leave_nothing(name: str, person: Path) -> None:
    assert main(["hooks", "install", name]) == 0
    assert settings_of(name).exists()
    assert main(["hooks", "remove", name]) == 0
    assert [path for path in person.rglob("*") if path.is_file()] == []


@by_settings
def test_remove_leaves_the_file_byte_for_byte_as_it_was(name: str, person: Path) -> None:
    path = write(settings_of(name), SETTINGS)
    assert main(["hooks", "install", name]) == 0
    assert path.read_text() != SETTINGS
    assert main(["hooks", "remove", name]) == 0
    assert path.read_text() == SETTINGS


@by_settings
def test_what_a_person_changed_meanwhile_stays_when_ours_is_removed(name: str, person: Path) -> None:
    path = write(settings_of(name), SETTINGS)
    main(["hooks", "install", name])
    path.write_text(path.read_text().replace('"opus"', '"sonnet"'))
    main(["hooks", "remove", name])
    assert path.read_text() == SETTINGS.replace('"opus"', '"sonnet"')


def test_a_hook_that_a_person_put_into_our_own_entry_stays(person: Path) -> None:
    path = settings_of("claude")
    main(["hooks", "install", "claude"])
    settings = json.loads(path.read_text())
    mine = {"type": "command", "command": "true"}
    settings["hooks"]["SubagentStart"][0]["hooks"].append(mine)
    path.write_text(json.dumps(settings))
    main(["hooks", "remove", "claude"])
    assert json.loads(path.read_text()) == {"hooks": {"SubagentStart": [{"hooks": [mine]}]}}


@every
def test_install_twice_is_install_once(name: str, person: Path) -> None:
    main(["hooks", "install", name])
    once = settings_of(name).read_bytes()
    assert main(["hooks", "install", name]) == 0
    assert settings_of(name).read_bytes() == once


@by_settings
def test_another_wait_takes_the_place_of_the_first_and_remove_still_finds_the_way_back(
    name: str, person: Path
) -> None:
    path = write(settings_of(name), SETTINGS)
    main(["hooks", "install", name])
    main(["hooks", "install", name, "--wait", "9m"])
    installed = read_installed(load_hooks(name), os.environ)
    assert installed is not None
    assert installed.wait_s == 540.0
    assert path.read_text().count("-P -m flyball.hooks") == len(load_hooks(name).entries)
    main(["hooks", "remove", name])
    assert path.read_text() == SETTINGS


def test_entries_of_a_flyball_elsewhere_are_replaced(person: Path) -> None:
    path = settings_of("claude")
    main(["hooks", "install", "claude"])
    path.write_text(path.read_text().replace("[ -x ", "[ -x /old").replace("exec ", "exec /old"))
    main(["hooks", "install", "claude"])
    assert "/old" not in path.read_text()


@by_settings
@pytest.mark.parametrize(
    "text", ["[]", '{"hooks": []}', '{"hooks": {"SessionStart": [{"hooks": 1}]}}', "{,}"]
)
def test_odd_settings_are_refused_and_not_touched(
    name: str, text: str, person: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = write(settings_of(name), text)
    for action in ("install", "remove", "show"):
        assert main(["hooks", action, name]) == 2
        assert "nothing was written. Mend it, or move it away" in capsys.readouterr().err
    assert path.read_text() == text


def test_a_link_stays_a_link_and_its_file_keeps_its_mode(person: Path) -> None:
    real = write(person / "dotfiles" / "claude.json", "{}")
    real.chmod(0o640)
    path = settings_of("claude")
    path.parent.mkdir()
    path.symlink_to(real)
    main(["hooks", "install", "claude"])
    assert path.is_symlink()
    assert "flyball.hooks" in real.read_text()
    assert stat.S_IMODE(real.stat().st_mode) == 0o640
    main(["hooks", "remove", "claude"])
    assert path.is_symlink()
    assert real.read_text() == "{}"


def test_a_new_file_is_private_and_so_is_what_is_kept_of_the_old(person: Path, tmp_path: Path) -> None:
    main(["hooks", "install", "claude"])
    kept = list((tmp_path / "flyball" / "hooks").glob("claude-*.json"))
    assert [stat.S_IMODE(path.stat().st_mode) for path in (settings_of("claude"), *kept)] == [0o600, 0o600]


def test_a_plugin_that_is_not_ours_is_left_alone(person: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write(settings_of("opencode"), "export const Mine = async () => ({});\n")
    assert main(["hooks", "install", "opencode"]) == 2
    assert "not of flyball's making" in capsys.readouterr().err
    assert main(["hooks", "remove", "opencode"]) == 0
    assert path.read_text().startswith("export const Mine")


def test_without_a_name_the_agents_whose_folder_is_there_are_installed(
    person: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["hooks", "install"]) == 2
    assert "flyball hooks install claude" in capsys.readouterr().err
    (person / ".claude").mkdir()
    (person / ".config" / "opencode").mkdir(parents=True)
    assert main(["hooks", "install"]) == 0
    capsys.readouterr()
    assert main(["hooks", "show", "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)["hooks"]
    assert {each["agent"]: each["installed"] for each in shown} == {
        "claude": True,
        "codex": False,
        "gemini": False,
        "opencode": True,
    }


def test_show_says_which_events_and_how_long_a_subagent_waits(
    person: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    main(["hooks", "install", "claude", "--wait", "90s"])
    capsys.readouterr()
    main(["hooks", "show", "claude", "--json"])
    (shown,) = json.loads(capsys.readouterr().out)["hooks"]
    assert shown["wait_s"] == 90.0
    assert {"SessionStart", "PreToolUse", "SubagentStart", "SubagentStop"} <= set(shown["events"])
    assert shown["lost"] == []
