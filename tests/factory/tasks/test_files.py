"""Task files: what is read, what is a problem, what is not even looked at."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from flyball.core.tasks.footprint import Footprint
from flyball.core.tasks.task import Task, TaskStatus
from flyball.errors import SourceError
from flyball.factory.tasks import folder as task_folder
from flyball.factory.tasks.files import FilesSource
from flyball.factory.tasks.folder import read_at
from tests.factory.tasks.kit import Project

WHOLE = """---
id: t-1
title: Add the hello page
status: in_progress
type: bug
priority: 1
needs: [t-0, 7]
parent: t-9
labels: [area:web, "no-dispatch"]
footprint: {write: ["pages/hello*"], read: ["lib/**"]}
acceptance:
  - it says hello
  - it is green
created: 2026-11-01T10:00:00Z
x-mine: {anything: [goes]}
---

What to do, in words.
"""


def test_every_key_is_read(project: Project) -> None:
    project.write("t-1.md", WHOLE)
    assert project.tasks() == {
        "t-1": Task(
            id="t-1",
            title="Add the hello page",
            status=TaskStatus.IN_PROGRESS,
            type="bug",
            priority=1,
            needs=("t-0", "7"),
            parent="t-9",
            labels=("area:web", "no-dispatch"),
            footprint=Footprint(write=("pages/hello*",), read=("lib/**",)),
            acceptance="- it says hello\n- it is green",
            body="What to do, in words.",
            created=1793527200.0,
            where="tasks/t-1.md",
        )
    }
    assert not project.problems()


def test_id_and_title_are_enough(project: Project) -> None:
    project.write("x.md", "---\nid: t-1\ntitle: T\n---\n")
    assert project.tasks()["t-1"] == Task(id="t-1", title="T", where="tasks/x.md")


def test_a_bom_and_windows_line_ends_change_nothing(project: Project) -> None:
    project.write("t-1.md", WHOLE)
    plain = project.tasks()
    project.write("t-1.md", "\ufeff" + WHOLE.replace("\n", "\r\n"), at_ns=None)
    assert project.tasks() == plain


@pytest.mark.parametrize(
    ("line", "key", "value"),
    [
        ("title: no", "title", "no"),
        ("title: 2026-11-01", "title", "2026-11-01"),
        ("created: 2026-11-01", "created", 1793491200.0),
        ("created: 2026-11-01 10:00:00", "created", 1793527200.0),
        ("created: 2026-11-01T11:00:00+01:00", "created", 1793527200.0),
        ("status: done", "status", TaskStatus.CLOSED),
        ("status: todo", "status", TaskStatus.OPEN),
        ("status: In Progress", "status", TaskStatus.IN_PROGRESS),
        ("status: in-progress", "status", TaskStatus.IN_PROGRESS),
        ("status:", "status", TaskStatus.OPEN),
        ("priority: P0", "priority", 0),
        ("type: Epic", "type", "epic"),
        ("needs: t-1", "needs", ("t-1",)),
        ("needs: t-1, t-2", "needs", ("t-1", "t-2")),
        ("needs: [1, 007, 1]", "needs", ("1", "007")),
        ("needs:", "needs", ()),
        ("parent: ~", "parent", None),
        ("labels: no-dispatch", "labels", ("no-dispatch",)),
        ("footprint:", "footprint", None),
        ("footprint: {}", "footprint", Footprint()),
        ("footprint: {write: src/a.py}", "footprint", Footprint(write=("src/a.py",))),
        ('footprint: {read: ["./*.py", a//b]}', "footprint", Footprint(read=("*.py", "a/b"))),
        ("acceptance: it works", "acceptance", "it works"),
        ("acceptance: |\n  a\n  b", "acceptance", "a\nb"),
    ],
)
def test_what_people_write_is_understood(project: Project, line: str, key: str, value: object) -> None:
    title = "" if line.startswith("title") else "title: T\n"
    project.write("x.md", f"---\nid: x\n{title}{line}\n---\n")
    assert not project.problems()
    assert getattr(project.tasks()["x"], key) == value


@pytest.mark.parametrize(("written", "task_id"), [("007", "007"), ("1", "1"), ("'1'", "1"), ("1.10", "1.10")])
def test_an_id_of_digits_stays_as_it_is_written(project: Project, written: str, task_id: str) -> None:
    project.write("x.md", f"---\nid: {written}\ntitle: T\n---\n")
    assert list(project.tasks()) == [task_id]


# -- problems -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("---\ntitle: T\n---\n", "there is no id; add one"),
        ("---\nid: ''\ntitle: T\n---\n", "there is no id"),
        ("---\nid: [a]\ntitle: T\n---\n", "id must be one text"),
        ("---\nid: a b\ntitle: T\n---\n", "'a b' cannot be a task's id: it has a space"),
        ("---\nid: ../etc\ntitle: T\n---\n", "cannot be a task's id"),
        ("---\nid: x\n---\n", "there is no title"),
        ('---\nid: x\ntitle: "a\\nb"\n---\n', "one line of printable text"),
        ('---\nid: x\ntitle: "\\e[2J"\n---\n', "one line of printable text"),
        (f"---\nid: x\ntitle: {'T' * 501}\n---\n", "501 characters long; at most 500"),
        ("---\nid: x\ntitle: T\nstatus: opne\n---\n", "the status 'opne' is unknown; did you mean 'open'?"),
        ("---\nid: x\ntitle: T\nstatus: 7\n---\n", "use one of open, in_progress, blocked, deferred, closed"),
        ("---\nid: x\ntitle: T\npriority: high\n---\n", "the priority 'high' is not a whole number"),
        ("---\nid: x\ntitle: T\npriority: -1\n---\n", "the priority '-1' is not a whole number"),
        ("---\nid: x\ntitle: T\nneed: [a]\n---\n", "'need' is not a key of a task; did you mean 'needs'?"),
        ("---\nid: x\nTitle: T\n---\n", "'Title' is not a key of a task; did you mean 'title'?"),
        ("---\nid: x\ntitle: T\nzzz: 1\n---\n", "'zzz' is not a key of a task; known are id, title"),
        ("---\nid: x\ntitle: T\nneeds: {a: b}\n---\n", "needs must be a list of texts"),
        ("---\nid: x\ntitle: T\nneeds: [[a]]\n---\n", "needs must be a list of texts"),
        ("---\nid: x\ntitle: T\nfootprint: [a]\n---\n", "footprint must be {write:"),
        ("---\nid: x\ntitle: T\nfootprint: {wirte: a}\n---\n", "footprint must be {write:"),
        ("---\nid: x\ntitle: T\nfootprint: {write: [/etc]}\n---\n", "footprint: "),
        ("---\nid: x\ntitle: T\ncreated: soon\n---\n", "created is 'soon'; write a time such as"),
        ("---\nid: x\ntitle: T\nid: y\n---\n", "line 4: 'id' is there twice"),
        ("---\nid: x\n\ttitle: T\n---\n", "line 3: indented with a tab"),
        ("---\nid: x\ntitle: &a T\nlabels: [*a]\n---\n", "aliases are not used here"),
        ("---\nid: x\ntitle: T\n", "never ends"),
        ("---\n---\n", "there is no id"),
        (b"---\nid: x\ntitle: \xff\n---\n", "line 3: not UTF-8 (byte 0xff)"),
        (b"---\nid: x\ntitle: T\n---\nbody \xc3", "line 5: not UTF-8"),
        ("---\nid: x\ntitle: T\n---\n".encode("utf-16"), "line 1: not UTF-8"),
        (b"---\nid: x\ntitle: T\x00\n---\n", "cannot be read"),
        ("---\nid: x\ntitle: T\n---\n" + "x" * (10 << 20), "larger than 1 MiB"),
        ("---\nid: x\ntitle: T\n---\n" + "ü" * (1 << 20), "larger than 1 MiB"),
    ],
)
def test_a_bad_task_is_a_problem_beside_the_good_ones(
    project: Project, text: str | bytes, words: str
) -> None:
    project.task("good")
    project.write("bad.md", text)
    assert list(project.tasks()) == ["good"]
    assert project.problem().where == "tasks/bad.md"
    assert words in project.problem().words


def test_everything_that_is_wrong_is_said_at_once_with_the_id(project: Project) -> None:
    project.write("x.md", "---\nid: x\npriority: high\nfoo: 1\n---\n")
    assert project.problem().task == "x"
    assert project.problem().words == (
        "'foo' is not a key of a task; known are id, title, status, type, priority, needs, parent, labels, "
        "footprint, acceptance, created. "
        "Also: there is no title; add one, such as 'title: Add the hello page'. "
        "Also: the priority 'high' is not a whole number from 0 (first) to 99"
    )


@pytest.mark.parametrize("other", ["t-1", "T-1"])
def test_of_two_files_with_one_id_neither_is_used_and_both_are_named(project: Project, other: str) -> None:
    project.write("a.md", "---\nid: t-1\ntitle: A\n---\n")
    project.write("sub/b.md", f"---\nid: {other}\ntitle: B\n---\n")
    project.task("good")
    assert list(project.tasks()) == ["good"]
    assert (project.problem().where, project.problem().task) == ("tasks/a.md", "t-1")
    assert "'t-1' is also in tasks/sub/b.md" in project.problem().words


def test_once_one_of_the_two_is_gone_the_other_is_used(project: Project) -> None:
    project.write("a.md", "---\nid: t-1\ntitle: A\n---\n")
    second = project.write("b.md", "---\nid: t-1\ntitle: B\n---\n")
    assert not project.tasks()
    second.unlink()
    assert project.tasks()["t-1"].title == "A"
    assert not project.problems()


def test_links_are_not_followed(project: Project, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "x.md").write_text("---\nid: x\ntitle: X\n---\n")
    project.task("good")
    (project.folder / "x.md").symlink_to(outside / "x.md")
    (project.folder / "twin.md").symlink_to(project.folder / "good.md")
    (project.folder / "dangling.md").symlink_to("nowhere")
    (project.folder / "sub").symlink_to(outside)
    assert list(project.tasks()) == ["good"]
    assert sorted(project.problems()) == [
        f"tasks/{name}" for name in ("dangling.md", "sub", "twin.md", "x.md")
    ]
    assert all("symbolic link" in problem.words for problem in project.problems().values())


def test_a_folder_or_a_pipe_in_the_place_of_a_task_is_a_problem(project: Project) -> None:
    project.task("good")
    (project.folder / "x.md").mkdir()
    os.mkfifo(project.folder / "pipe.md")
    assert list(project.tasks()) == ["good"]
    assert "take .md off its name" in project.problems()["tasks/x.md"].words
    assert "not a plain file" in project.problems()["tasks/pipe.md"].words


def test_a_file_that_may_not_be_read_is_a_problem(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    project.task("good")
    project.task("shut")

    def refuse(name: str, *, limit: int) -> bytes:
        if name.endswith("shut.md"):
            raise PermissionError(13, "Permission denied", name)
        return read_at(name, limit=limit)

    monkeypatch.setattr(task_folder, "read_at", refuse)
    assert list(project.tasks()) == ["good"]
    assert project.problem().words == "cannot be read: Permission denied"


@pytest.mark.skipif(os.geteuid() == 0, reason="nothing is unreadable to root")
def test_files_and_folders_without_permission_are_problems_until_they_have_it(project: Project) -> None:
    path = project.task("shut")
    inner = project.task("sub/inner").parent
    path.chmod(0)
    inner.chmod(0)
    assert "Permission denied" in project.problems()["tasks/shut.md"].words
    assert "Permission denied" in project.problems()["tasks/sub"].words
    path.chmod(0o644)
    inner.chmod(0o755)
    assert set(project.tasks()) == {"shut", "inner"}


def test_a_name_that_is_not_text_is_a_problem_that_can_be_shown(project: Project) -> None:
    project.task("good")
    try:
        (project.folder / os.fsdecode(b"\xff.md")).write_text("---\nid: x\ntitle: T\n---\n")
    except OSError:
        pytest.skip("this file system takes only UTF-8")
    assert project.problem().where == "tasks/\\xff.md"
    project.problem().where.encode()


# -- what is not looked at ------------------------------------------------------------------------


def test_other_files_are_neither_tasks_nor_problems(project: Project) -> None:
    for name in ("README.md", "readme.md", ".hidden.md", "notes.txt", "x.md~", ".git/x.md", "sub/README.md"):
        project.write(name, "---\nid: x\ntitle: T\n---\n")
    project.write("notes.md", "# Notes\n\nNo front matter.\n")
    project.write("empty.md", "")
    project.write("long.md", "words\n" * 400_000)
    assert not project.tasks()
    assert not project.problems()


def test_subfolders_count_too(project: Project) -> None:
    project.write("web/pages/x.md", "---\nid: x\ntitle: T\n---\n")
    assert project.tasks()["x"].where == "tasks/web/pages/x.md"
    assert set(project.source.watch_folders()) == {
        project.folder,
        project.folder / "web",
        project.folder / "web/pages",
    }


def test_no_folder_means_no_tasks_yet_and_the_project_is_watched_for_it(project: Project) -> None:
    assert not project.tasks()
    assert not project.problems()
    assert project.source.watch_folders() == [project.root]


def test_a_folder_that_cannot_be_used_at_all_is_an_error(project: Project) -> None:
    project.folder.write_text("a file")
    with pytest.raises(SourceError, match="tasks cannot be read: Not a directory"):
        project.source.load()


@pytest.mark.parametrize("folder", ["../tasks", "/tmp", ".", "a/../..", "link", "link/tasks"])
def test_the_folder_lies_in_the_project_and_is_not_a_link(project: Project, folder: str) -> None:
    (project.root / "link").symlink_to("/tmp")
    with pytest.raises(SourceError, match=r"tasks\.folder"):
        FilesSource(project.root, folder)


def test_another_folder_can_be_named(project: Project) -> None:
    (project.root / "docs/work").mkdir(parents=True)
    (project.root / "docs/work/x.md").write_text("---\nid: x\ntitle: T\n---\n")
    [task] = FilesSource(project.root, "./docs//work/").load().tasks
    assert task.where == "docs/work/x.md"
