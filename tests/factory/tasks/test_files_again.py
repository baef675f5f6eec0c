"""Looking again: what has not changed is not read, what has is seen."""

from __future__ import annotations

import os
import time
import tracemalloc

import pytest

from flyball.factory.tasks import folder
from flyball.factory.tasks.folder import read_at
from tests.factory.tasks.kit import LONG_AGO_NS, Project


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the files that were read, in order."""
    read: list[str] = []

    def noted(name: str, *, limit: int) -> bytes:
        read.append(os.path.basename(name))
        return read_at(name, limit=limit)

    monkeypatch.setattr(folder, "read_at", noted)
    return read


def test_nothing_changed_nothing_read_and_the_same_answer(project: Project, reads: list[str]) -> None:
    project.task("a")
    project.write("b.md", "---\nbad")
    first = project.source.load()
    assert sorted(reads) == ["a.md", "b.md"]
    assert project.source.load() is first
    assert len(reads) == 2


def test_only_what_changed_is_read(project: Project, reads: list[str]) -> None:
    project.task("a")
    project.task("b")
    project.source.load()
    reads.clear()
    project.write("b.md", "---\nid: b\ntitle: New\n---\n", at_ns=LONG_AGO_NS + 1)
    assert project.tasks()["b"].title == "New"
    assert reads == ["b.md"]


def test_a_change_that_keeps_time_and_size_is_seen_by_its_inode(project: Project) -> None:
    path = project.task("a", "status: open  ")
    assert project.tasks()["a"].status.value == "open"
    before = path.stat()
    os.replace(project.write("new", "---\nid: a\ntitle: Do a\nstatus: closed\n---\n"), path)
    after = path.stat()
    assert (before.st_mtime_ns, before.st_size) == (after.st_mtime_ns, after.st_size)
    assert project.tasks()["a"].status.value == "closed"


def test_a_file_written_a_moment_ago_is_read_again(project: Project, reads: list[str]) -> None:
    """It may change once more within the same tick of the file system's clock."""
    path = project.task("a")
    soon_ns = time.time_ns() - 1_000_000
    os.utime(path, ns=(soon_ns, soon_ns))
    first = project.source.load()
    assert project.source.load() is first
    assert reads == ["a.md", "a.md"]


def test_files_come_go_and_move(project: Project) -> None:
    project.task("a")
    assert list(project.tasks()) == ["a"]
    project.task("b")
    assert list(project.tasks()) == ["a", "b"]
    (project.folder / "sub").mkdir()
    (project.folder / "a.md").rename(project.folder / "sub" / "renamed.md")
    assert project.tasks()["a"].where == "tasks/sub/renamed.md"
    (project.folder / "b.md").unlink()
    assert list(project.tasks()) == ["a"]


def test_a_file_that_is_deleted_while_we_look_is_gone_and_no_problem(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    project.task("a")
    project.task("b")

    def too_late(name: str, *, limit: int) -> bytes:
        if name.endswith("b.md"):
            os.unlink(name)
        return read_at(name, limit=limit)

    monkeypatch.setattr(folder, "read_at", too_late)
    assert list(project.tasks()) == ["a"]
    assert not project.problems()


def test_the_body_of_a_closed_task_is_not_kept_but_can_be_read(project: Project) -> None:
    project.task("a", "status: closed", body="long ago")
    project.task("b", body="to do")
    assert [task.body for task in project.source.load().tasks] == ["", "to do"]
    for name, body in (("a", "long ago"), ("b", "to do")):
        task = project.source.read(name)
        assert task is not None
        assert task.body == body


def test_what_is_not_there_or_ambiguous_cannot_be_read(project: Project) -> None:
    project.task("a")
    project.write("a2.md", "---\nid: a\ntitle: T\n---\n")
    assert project.source.read("a") is None
    assert project.source.read("nobody") is None


def test_ten_thousand_tasks_are_looked_at_again_within_a_tenth_of_a_second(project: Project) -> None:
    words = "What to do, in words. " * 50
    for n in range(10_000):
        status = "open" if n % 2 else "closed"
        project.task(f"t-{n}", f"status: {status}", f"needs: [t-{n + 1}]", body=words)
    tracemalloc.start()
    first = project.source.load()
    size, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert len(first.tasks) == 10_000
    assert size < 40 << 20
    took = []
    for _ in range(5):
        began = time.process_time()  # whatever else this machine does
        assert project.source.load() is first
        took.append(time.process_time() - began)
    assert min(took) < 0.1, f"{min(took) * 1000:.0f} ms"
