"""New task files: written so that they read back as what was asked for."""

from __future__ import annotations

import threading
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flyball.core.tasks.footprint import Footprint
from flyball.core.tasks.globs import check_token
from flyball.core.tasks.task import Task, TaskStatus
from flyball.errors import SourceError, UsageError
from flyball.factory.tasks.files import FilesSource
from flyball.factory.tasks.port import NewTask
from flyball.factory.tasks.task_text import new_text, read_task
from tests.factory.tasks.kit import Project


def test_the_file_looks_as_a_person_would_write_it(project: Project) -> None:
    project.source.add(
        NewTask(
            title="Add the hello page",
            priority=1,
            needs=["t-9"],
            labels=["area:web", "quick"],
            footprint=Footprint(write=("pages/hello*",), read=("lib/**",)),
            acceptance="- it says hello\n- it is green",
            body="What to do, in words.\n",
        )
    )
    assert (project.folder / "t-1.md").read_text() == (
        "---\n"
        "id: t-1\n"
        "title: Add the hello page\n"
        "status: open\n"
        "priority: 1\n"
        "needs: [t-9]\n"
        'footprint: {write: ["pages/hello*"], read: ["lib/**"]}\n'
        "acceptance:\n"
        "  - it says hello\n"
        "  - it is green\n"
        'labels: ["area:web", quick]\n'
        "created: 2026-11-01T10:00:00.000Z\n"
        "---\n"
        "What to do, in words.\n"
    )


def test_what_is_returned_is_what_the_next_load_says(project: Project) -> None:
    task = project.source.add(NewTask(title="no", id="007", type="bug", parent="1", acceptance="a\n\nb"))
    assert project.source.load().tasks == (task,)
    assert task == Task(
        id="007",
        title="no",
        type="bug",
        parent="1",
        acceptance="a\n\nb",
        created=1793527200.0,
        where="tasks/007.md",
    )


def test_ids_are_counted_on_from_the_highest_that_any_file_has(project: Project) -> None:
    assert project.source.add(NewTask(title="A")).id == "t-1"
    project.task("t-7")
    project.write("T-9.md", "---\nbroken")
    project.write("x.md", "---\nid: t-11\ntitle: T\nbad: key\n---\n")
    assert project.source.add(NewTask(title="B")).id == "t-12"


@pytest.mark.parametrize("name", ["t-1", "T-1"])
def test_an_id_that_is_taken_is_refused(project: Project, name: str) -> None:
    project.write("other.md", "---\nid: t-1\ntitle: T\n---\n")
    with pytest.raises(UsageError, match="there is a task"):
        project.source.add(NewTask(title="A", id=name))


def test_a_file_that_is_in_the_way_is_never_overwritten(project: Project) -> None:
    path = project.write("x.md", "# no task\n")
    with pytest.raises(UsageError, match="already"):
        project.source.add(NewTask(title="A", id="x"))
    assert path.read_text() == "# no task\n"


@pytest.mark.parametrize(
    ("new", "words"),
    [
        (NewTask(title=""), "there is no title"),
        (NewTask(title="a\nb"), "one line"),
        (NewTask(title="T", id="a b"), "cannot be a task's id"),
        (NewTask(title="T", id="README"), "would not be taken for a task"),
        (NewTask(title="T", priority=-1), "the priority '-1'"),
        (NewTask(title="T", body="x" * (2 << 20)), "larger than 1 MiB"),
    ],
)
def test_what_could_not_be_read_back_is_refused_and_nothing_is_written(
    project: Project, new: NewTask, words: str
) -> None:
    with pytest.raises(UsageError, match=words):
        project.source.add(new)
    assert not project.folder.exists()


def test_two_who_add_at_once_get_two_tasks(project: Project) -> None:
    made: list[Task] = []

    def add() -> None:
        source = FilesSource(project.root)
        made.extend(source.add(NewTask(title="T")) for _ in range(20))

    threads = [threading.Thread(target=add) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len({task.id for task in made}) == 80
    assert len(project.tasks()) == 80
    assert not project.problems()


def test_a_folder_that_cannot_be_made_is_an_error_with_the_reason(project: Project) -> None:
    source = FilesSource(project.root, "a/tasks")
    (project.root / "a").write_text("in the way")
    with pytest.raises(SourceError, match=r"Not a directory|File exists"):
        source.add(NewTask(title="T"))


def _is_token(text: str) -> bool:
    try:
        return check_token(text) == text.strip() == text
    except UsageError:
        return False


_WORDS = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=30).filter(
    lambda s: s.strip()
)
_NAMES = st.lists(_WORDS, max_size=3, unique_by=lambda s: s.strip())
_TOKENS = st.lists(st.text("ab é*?{}#:'\"&!", min_size=1).filter(_is_token), max_size=3, unique=True)


@given(
    title=_WORDS.filter(lambda s: s.strip().isprintable()),
    kind=_WORDS,
    needs=_NAMES,
    labels=_NAMES,
    sides=st.none() | st.tuples(_TOKENS, _TOKENS),
    acceptance=st.text(st.characters(exclude_categories=["Cs"])),
    body=st.text(st.characters(exclude_categories=["Cs"])),
)
def test_any_task_reads_back_as_what_it_was_made_from(
    title: str,
    kind: str,
    needs: list[str],
    labels: list[str],
    sides: tuple[list[str], list[str]] | None,
    acceptance: str,
    body: str,
) -> None:
    def clean(items: list[str]) -> tuple[str, ...]:
        return tuple(item.strip() for item in items)

    footprint = None if sides is None else Footprint(clean(sides[0]), clean(sides[1]))
    new = NewTask(
        title=title,
        type=kind,
        needs=needs,
        labels=labels,
        footprint=footprint,
        acceptance=acceptance,
        body=body,
    )
    read = read_task(new_text(new, "x", created=1.5).encode(), "here")
    assert isinstance(read, Task), read
    assert read == Task(
        id="x",
        title=title.strip(),
        status=TaskStatus.OPEN,
        type=kind.strip().casefold(),
        needs=clean(needs),
        labels=clean(labels),
        footprint=footprint,
        acceptance=acceptance.strip(),
        body=body.replace("\r\n", "\n").replace("\r", "\n").strip(),
        created=1.5,
        where="here",
    )
    assert replace(read, where="") != read


def test_a_task_may_be_added_before_there_is_a_folder(tmp_path: Path) -> None:
    FilesSource(tmp_path, "docs/work").add(NewTask(title="T"))
    assert (tmp_path / "docs/work/t-1.md").exists()
