"""Entries go into settings beside what is there, and come out without a trace."""

from __future__ import annotations

import json
import os
import shutil
import stat
import subprocess
import sys
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
ODD = {
    "compact": '{"model":"opus"}',
    "one line": '{"model": "opus"}\n',
    "tabs": '{\n\t"model": "opus",\n\t"hooks": {\n\t\t"Stop": []\n\t}\n}\n',
    "no end of line": '{\n    "model": "opus"\n}',
    "windows": '{\r\n  "model": "opus", // mine\r\n  "hooks": {}\r\n}\r\n',
    "byte order mark": '\ufeff{\n  "model": "opus"\n}\n',
    "hooks of one's own": SETTINGS,
    "empty lists": '{"hooks": {"SessionStart": [], "SessionEnd": [ ]}, "model": "opus" }\n\n',
    "comment at the end": '{\n  "model": "opus" // {"hooks": [],\n}\n// end',
    "comment in empty hooks": '{\n  "model": "opus",\n  "hooks": { // none\n  }\n}',
}
odd = pytest.mark.parametrize("text", ODD.values(), ids=ODD)
every = pytest.mark.parametrize("name", NAMES)
by_settings = pytest.mark.parametrize("name", ["claude", "codex", "gemini"])


def settings_of(name: str) -> Path:
    return load_hooks(name).settings_path(os.environ)


def write(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(text.encode())
    return path


def replace(path: Path, old: str, new: str) -> None:
    path.write_bytes(path.read_bytes().replace(old.encode(), new.encode()))


@every
def test_install_and_remove_where_nothing_was_leave_nothing(name: str, person: Path) -> None:
    assert main(["hooks", "install", name]) == 0
    assert settings_of(name).exists()
    assert main(["hooks", "remove", name]) == 0
    assert list(person.iterdir()) == []


@every
def test_a_folder_that_was_there_before_stays(name: str, person: Path) -> None:
    settings_of(name).parent.mkdir(parents=True)
    main(["hooks", "install", name])
    main(["hooks", "remove", name])
    assert list(settings_of(name).parent.iterdir()) == []


@by_settings
@odd
def test_remove_leaves_the_file_byte_for_byte_as_it_was(name: str, text: str, person: Path) -> None:
    path = write(settings_of(name), text)
    assert main(["hooks", "install", name]) == 0
    assert path.read_bytes() != text.encode()
    assert main(["hooks", "remove", name]) == 0
    assert path.read_bytes() == text.encode()


@by_settings
@odd
def test_what_a_person_changed_meanwhile_is_all_that_differs_when_ours_is_removed(
    name: str, text: str, person: Path
) -> None:
    path = write(settings_of(name), text)
    main(["hooks", "install", name])
    replace(path, '"opus"', '"sonnet"')
    main(["hooks", "remove", name])
    assert path.read_bytes() == text.replace('"opus"', '"sonnet"').encode()


@odd
def test_a_change_between_two_installs_is_all_that_differs_when_ours_is_removed(
    text: str, person: Path
) -> None:
    path = write(settings_of("claude"), text)
    main(["hooks", "install", "claude"])
    replace(path, '"opus"', '"sonnet"')
    main(["hooks", "install", "claude", "--wait", "9m"])
    main(["hooks", "remove", "claude"])
    assert path.read_bytes() == text.replace('"opus"', '"sonnet"').encode()


def test_settings_that_the_agent_wrote_anew_meanwhile_are_as_it_would_have_written_them(person: Path) -> None:
    kept = {"model": "opus", "hooks": {"Stop": [{"hooks": [{"type": "command", "command": "true"}]}]}}
    path = write(settings_of("claude"), json.dumps(kept))
    main(["hooks", "install", "claude"])
    path.write_text(json.dumps({**json.loads(path.read_text()), "theme": "dark"}, indent=2))
    main(["hooks", "remove", "claude"])
    assert path.read_text() == json.dumps({**kept, "theme": "dark"}, indent=2)


def test_settings_that_only_ours_were_in_are_gone_though_the_agent_wrote_them_anew(person: Path) -> None:
    main(["hooks", "install", "claude"])
    path = settings_of("claude")
    path.write_text(json.dumps(json.loads(path.read_text()), indent=4))
    main(["hooks", "remove", "claude"])
    assert list(person.iterdir()) == []


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


def test_what_is_wrong_with_one_agents_settings_does_not_keep_the_others(
    person: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("codex", "opencode"):
        main(["hooks", "install", name])
    write(settings_of("claude"), "{,}")
    capsys.readouterr()
    assert main(["hooks", "remove"]) == 2
    assert "claude: cannot understand" in capsys.readouterr().err
    assert not settings_of("codex").exists()
    assert not settings_of("opencode").exists()


def powerless(*words: str) -> subprocess.CompletedProcess[str]:
    """Root may write anything; read-only means something only without its powers."""
    command = [sys.executable, "-m", "flyball", *words]
    if os.geteuid() == 0:
        if shutil.which("setpriv") is None:
            pytest.skip("running as root without setpriv: nothing is read-only here")
        command = ["setpriv", "--bounding-set=-all", "--inh-caps=-all", "--", *command]
    return subprocess.run(command, capture_output=True, text=True, timeout=60)


@pytest.mark.parametrize("content", [b'{"a": "caf\xe9"}', "{}".encode("utf-16"), b"{}\0", b'{"a": 1,}'])
@pytest.mark.parametrize("verb", ["install", "remove", "show"])
def test_settings_that_are_not_json_in_utf8_are_refused_in_words(
    verb: str, content: bytes, person: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    settings = write(settings_of("claude"), "")
    settings.write_bytes(content)
    assert main(["hooks", verb, "claude"]) == 2
    assert f"cannot understand {settings}" in capsys.readouterr().err
    assert settings.read_bytes() == content


@pytest.mark.parametrize("verb", ["install", "remove", "show"])
def test_settings_that_are_a_pipe_are_neither_waited_for_nor_replaced(
    verb: str, person: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    settings = settings_of("claude")
    settings.parent.mkdir()
    os.mkfifo(person / "pipe")
    settings.symlink_to(person / "pipe")
    assert main(["hooks", verb, "claude"]) == 2
    assert "a device or a pipe" in capsys.readouterr().err
    assert stat.S_ISFIFO(os.stat(settings).st_mode)


@pytest.mark.parametrize("barred", ["file", "folder"])
def test_settings_that_are_read_only_are_left_as_they_are(barred: str, person: Path) -> None:
    path = write(settings_of("claude"), SETTINGS)
    path.chmod(0o400)
    if barred == "folder":
        path.chmod(0o600)
        path.parent.chmod(0o500)
    done = powerless("hooks", "install", "claude")
    path.parent.chmod(0o700)
    assert (done.returncode, path.read_text()) == (2, SETTINGS)
    assert f"cannot write {path}" in done.stderr


@pytest.mark.skipif(os.geteuid() != 0, reason="only root has settings of others to change")
def test_settings_of_another_user_stay_that_users(person: Path) -> None:
    path = write(settings_of("claude"), "{}")
    os.chown(path, 65534, 65534)
    main(["hooks", "install", "claude"])
    main(["hooks", "remove", "claude"])
    assert (path.stat().st_uid, path.stat().st_gid) == (65534, 65534)


def test_installs_at_once_leave_one_of_them_and_the_way_back(person: Path) -> None:
    path = write(settings_of("claude"), ODD["empty lists"])
    argv = [sys.executable, "-m", "flyball", "hooks", "install", "claude", "--wait"]
    at_once = [subprocess.Popen([*argv, f"{wait}s"]) for wait in range(60, 66)]
    assert [process.wait() for process in at_once] == [0] * 6
    assert path.read_text().count("-P -m flyball.hooks") == len(load_hooks("claude").entries)
    main(["hooks", "remove", "claude"])
    assert path.read_text() == ODD["empty lists"]


@pytest.mark.parametrize("after_s", [0.02 * step for step in range(1, 11)])
def test_an_install_that_is_killed_leaves_the_settings_whole_and_the_way_back(
    after_s: float, person: Path
) -> None:
    path = write(settings_of("claude"), ODD["windows"])
    for wait in ("60s", "70s"):
        process = subprocess.Popen(
            [sys.executable, "-m", "flyball", "hooks", "install", "claude", "--wait", wait]
        )
        try:
            process.wait(after_s)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
    (path.parent / ".flyball-killed.tmp").write_text("what one leaves that is killed as it writes")
    assert main(["hooks", "install", "claude"]) == 0
    main(["hooks", "remove", "claude"])
    assert path.read_bytes() == ODD["windows"].encode()
    assert list(path.parent.iterdir()) == [path]


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
