"""``flyball task``: adding, listing, showing; what could start now."""

from __future__ import annotations

import io
import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.kit import Cli

SETTINGS = """[project]
id = "blog"
[run]
width = 2
[areas]
web = ["pages/**"]
"""


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project that is the current folder."""
    root = tmp_path / "blog"
    root.mkdir()
    (root / "flyball.toml").write_text(SETTINGS)
    monkeypatch.chdir(root)
    return root


def write(project: Path, name: str, *lines: str, body: str = "") -> None:
    path = project / "tasks" / f"{name}.md"
    path.parent.mkdir(exist_ok=True)
    head = "\n".join([f"id: {name}", f"title: Do {name}", *lines])
    path.write_text(f"---\n{head}\n---\n{body}")


# -- add ------------------------------------------------------------------------------------------


def test_a_title_is_enough(cli: Cli, project: Path) -> None:
    assert cli("task", "add", "Add the hello page").out == "added t-1: tasks/t-1.md\n"
    assert (project / "tasks/t-1.md").exists()


def test_everything_that_a_task_can_say_can_be_added(cli: Cli, project: Path) -> None:
    write(project, "e-1", "type: epic")
    words = ["task", "add", "--json", "--id", "x", "--type", "bug", "--priority", "0", "--parent", "e-1"]
    words += ["--need", "t-1", "--need", "t-2"]
    words += ["--label", "area:web", "--write", "pages/*", "--read", "lib/**", "--body", "Some words"]
    added = cli(*words, "--acceptance", "it is green", "--acceptance", "it is quick", "A title: yes").json
    assert added.pop("created") > 0
    assert added == {
        "id": "x",
        "title": "A title: yes",
        "status": "open",
        "type": "bug",
        "priority": 0,
        "needs": ["t-1", "t-2"],
        "parent": "e-1",
        "labels": ["area:web"],
        "footprint": {"write": ["pages/*"], "read": ["lib/**"]},
        "acceptance": "- it is green\n- it is quick",
        "body": "Some words",
        "where": "tasks/x.md",
        "missing": ["t-1", "t-2"],
        "notes": [],
    }
    shown = cli("task", "show", "x", "--json").json
    assert shown == {key: value for key, value in added.items() if key not in ("missing", "notes")} | {
        "created": shown["created"]
    }


def test_a_need_that_does_not_exist_yet_is_allowed_and_said(cli: Cli, project: Path) -> None:
    result = cli("task", "add", "T", "--need", "t-7", "--parent", "t-8")
    assert result.code == 0
    assert "there is no task 't-7' yet; t-1 waits until it is closed\n" in result.out
    assert "there is no task 't-8' yet\n" in result.out


def test_a_label_that_cannot_be_made_out_is_said(cli: Cli, project: Path) -> None:
    out = cli("task", "add", "T", "--label", "merge:manuel", "--label", "area:wbe").out
    assert "t-1: there is no policy 'manuel'" in out
    assert "did you mean merge:manual?" in out
    assert "t-1: its label area:wbe names no area" in out
    [note] = cli("task", "add", "T", "--label", "rt:9", "--json").json["notes"]
    assert "rt:9" in note


def test_a_type_that_is_not_dispatched_is_said_with_the_way_out(cli: Cli, project: Path) -> None:
    assert cli("task", "add", "T", "--type", "feature").out == (
        "added t-1: tasks/t-1.md\n"
        "t-1: is of type feature, which is not dispatched; make its type task in tasks/t-1.md, "
        "or add its parts: flyball task add TITLE --parent t-1\n"
    )


def test_words_may_come_on_stdin(cli: Cli, project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO("Wörter\nund mehr\n".encode())))
    cli("task", "add", "T", "--body", "-")
    assert cli("task", "show", "t-1", "--json").json["body"] == "Wörter\nund mehr"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["a\nb"], "one line of printable text"),
        (["T", "--id", "a b"], "cannot be a task's id"),
        (["T", "--id", "T-1"], "there is a task 'T-1' already"),
        (["T", "--priority", "high"], "'high' is not a whole number"),
        (["T", "--priority", "-1"], "'-1' is below 0"),
        (["T", "--priority", "100"], "the priority '100' is not a whole number from 0"),
        (["T", "--write", "/etc/*"], "footprint: "),
        ([], "TITLE"),
    ],
)
def test_what_cannot_be_meant_is_refused_and_nothing_is_added(
    cli: Cli, project: Path, words: list[str], message: str
) -> None:
    write(project, "t-1")
    result = cli("task", "add", *words)
    assert result.code == 2
    assert message in result.err
    assert os.listdir(project / "tasks") == ["t-1.md"]


def test_outside_a_project_it_says_how_to_make_one(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    result = cli("task", "list")
    assert result.code == 2
    assert "flyball init" in result.err


# -- list -----------------------------------------------------------------------------------------


def test_a_new_project_says_how_to_begin(cli: Cli, project: Path) -> None:
    assert "flyball task add" in cli("task", "list").out
    assert cli("task", "list", "--json").json == {"tasks": [], "problems": []}


def test_open_tasks_are_listed_in_the_order_in_which_they_would_start(cli: Cli, project: Path) -> None:
    write(project, "t-10")
    write(project, "t-2", "status: blocked", "type: bug")
    write(project, "t-3", "priority: 0", "status: in_progress")
    write(project, "t-4", "status: closed")
    assert cli("task", "list").out == (
        "TASK  P  STATUS       TITLE\n"
        "t-3   0  in_progress  Do t-3\n"
        "t-2   2  blocked      Do t-2 (bug)\n"
        "t-10  2  open         Do t-10\n"
        "1 open, 1 in progress, 1 blocked, 1 closed; --all shows the closed ones\n"
    )
    assert "t-4" in cli("task", "list", "--all").out
    assert [task["id"] for task in cli("task", "list", "--all", "--json").json["tasks"]][-2:] == [
        "t-4",
        "t-10",
    ]


def test_problems_come_last_each_with_its_file(cli: Cli, project: Path) -> None:
    write(project, "t-1")
    write(project, "t-2", "need: t-1")
    result = cli("task", "list")
    assert result.code == 0
    assert result.out.endswith(
        "1 problem; these are not used as they are:\n"
        "  tasks/t-2.md: 'need' is not a key of a task; did you mean 'needs'?\n"
    )
    [problem] = cli("task", "list", "--json").json["problems"]
    assert (problem["where"], problem["task"]) == ("tasks/t-2.md", "t-2")


def test_on_a_terminal_a_huge_list_is_cut_short(cli: Cli, project: Path) -> None:
    for n in range(510):
        write(project, f"t-{n}")
    leader, follower = pty.openpty()
    try:
        process = subprocess.Popen(
            [sys.executable, "-m", "flyball", "task", "list"], stdout=follower, stdin=subprocess.DEVNULL
        )
        os.close(follower)
        shown = b""
        while b"510 open" not in shown:
            shown += os.read(leader, 65536)
        assert process.wait(30) == 0
    finally:
        os.close(leader)
    assert b"and 10 more; flyball task list | less shows all" in shown
    assert len(cli("task", "list").out.splitlines()) == 512


# -- ready ----------------------------------------------------------------------------------------


def test_what_could_start_now_and_why_the_others_wait(cli: Cli, project: Path) -> None:
    write(project, "t-1", "footprint: {write: [a]}")
    write(project, "t-2", "labels: [area:web]", "priority: 1")
    write(project, "t-3", "footprint: {write: [pages/x]}")
    write(project, "t-4", "needs: [t-1]")
    write(project, "t-5", "footprint: {write: [b]}")
    out = cli("task", "ready").out
    assert "2 tasks could start now, of 2 that run at once" in out
    assert out.index("t-2") < out.index("t-1")
    assert "t-4   needs t-1, which is not merged" in out
    answer = cli("task", "ready", "--json", "--width", "9").json
    assert [task["id"] for task in answer["ready"]] == ["t-2", "t-1", "t-5"]
    assert [(each["id"], each["reason"], each["blocker"]) for each in answer["waiting"]] == [
        ("t-3", "footprint", "t-2"),
        ("t-4", "needs", "t-1"),
    ]


def test_nothing_to_start_is_said(cli: Cli, project: Path) -> None:
    assert "Nothing is left to do." in cli("task", "ready").out
    write(project, "t-1", "needs: [t-1]")
    assert "Nothing could start now." in cli("task", "ready").out


def test_a_long_line_of_waiters_is_cut_short(cli: Cli, project: Path) -> None:
    for n in range(30):
        write(project, f"t-{n}", "type: epic")
    assert "and 10 more" in cli("task", "ready").out


# -- show -----------------------------------------------------------------------------------------


def test_a_task_is_shown_with_those_around_it(cli: Cli, project: Path) -> None:
    write(project, "e-1", "type: epic")
    write(project, "t-1", "status: closed")
    more = ["needs: [t-1, t-9]", "parent: e-1", "acceptance: it works", "created: 2026-11-01T10:00:00Z"]
    write(
        project, "t-2", *more, "footprint: {write: [a, b], read: [c]}", "labels: [quick]", body="One\n\nTwo\n"
    )
    assert cli("task", "show", "t-2").out == (
        "t-2 Do t-2\n"
        "  status    open, priority 2\n"
        "  needs     t-1 (closed), t-9 (does not exist)\n"
        "  part of   e-1 (open)\n"
        "  labels    quick\n"
        "  writes    a, b\n"
        "  reads     c\n"
        "  created   2026-11-01 10:00 UTC\n"
        "  where     tasks/t-2.md\n"
        "\n"
        "Done when\n"
        "it works\n"
        "\n"
        "One\n"
        "\n"
        "Two\n"
    )
    assert "  parts     t-2 (open)\n" in cli("task", "show", "e-1").out


def test_the_body_of_a_closed_task_is_shown_too(cli: Cli, project: Path) -> None:
    write(project, "t-1", "status: closed", "footprint: {}", body="long ago")
    out = cli("task", "show", "t-1").out
    assert "long ago" in out
    assert "touches   nothing" in out


def test_a_task_that_does_not_exist_is_refused_with_the_nearest(cli: Cli, project: Path) -> None:
    write(project, "t-14")
    result = cli("task", "show", "t-15")
    assert result.code == 2
    assert "there is no task 't-15'; did you mean 't-14'?" in result.err
    assert "flyball task list" in cli("task", "show", "zzz").err


def test_a_task_that_cannot_be_used_is_shown_with_the_reason(cli: Cli, project: Path) -> None:
    write(project, "t-1", "priority: high")
    result = cli("task", "show", "t-1")
    assert result.code == 1
    assert "t-1 cannot be used as it is written in tasks/t-1.md: the priority 'high'" in result.out
    assert cli("task", "show", "t-1", "--json").json["problems"][0]["where"] == "tasks/t-1.md"


def test_nothing_in_a_task_steers_the_terminal(cli: Cli, project: Path) -> None:
    write(project, "t-1", body="a\x1b[2Jb")
    assert "\x1b" not in cli("task", "show", "t-1").out
