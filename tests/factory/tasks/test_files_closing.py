"""Closing a task in a landing's worktree."""

from __future__ import annotations

import os
import shutil
from difflib import SequenceMatcher
from pathlib import Path

import pytest

from flyball.core.tasks.task import TaskStatus
from flyball.errors import SourceError
from flyball.factory.tasks.files import FilesSource
from flyball.factory.tasks.port import Closing
from tests.factory.tasks.kit import Project

OPEN = "---\nid: t-1\ntitle: T\nstatus: open\n---\nbody\n"
CLOSED = OPEN.replace("open", "closed")


@pytest.fixture
def worktree(project: Project, tmp_path: Path) -> Path:
    """A worktree that has the tasks the project has when the test asks for it first."""
    place = tmp_path / "worktree"
    place.mkdir()
    return place


def committed(project: Project, worktree: Path) -> None:
    shutil.copytree(project.folder, worktree / "tasks", dirs_exist_ok=True)


def status_in(worktree: Path, task_id: str = "t-1") -> TaskStatus:
    [task] = [task for task in FilesSource(worktree).load().tasks if task.id == task_id]
    return task.status


def test_only_the_status_changes_and_the_checkout_stays_as_it_is(project: Project, worktree: Path) -> None:
    project.write("t-1.md", OPEN)
    committed(project, worktree)
    closing = project.source.close_in("t-1", worktree)
    assert closing == Closing(("tasks/t-1.md",), {"tasks/t-1.md": OPEN.encode()})
    assert (worktree / "tasks/t-1.md").read_text() == CLOSED
    assert (project.folder / "t-1.md").read_text() == OPEN


@pytest.mark.parametrize(
    "text",
    [
        "\ufeff---\r\nid: t-1\r\ntitle: Grüße\r\nstatus: open # ünï\r\n---\r\nno newline at the end",
        "---\nstatus: 'open'\n# why\nid: t-1\ntitle: T\n---\n\n\n",
        "---\nid: t-1\ntitle: T\n---",
        "---\n{id: t-1, title: T}\n---\n",
    ],
)
def test_every_other_byte_is_kept(project: Project, worktree: Path, text: str) -> None:
    project.write("t-1.md", text)
    committed(project, worktree)
    project.source.close_in("t-1", worktree)
    data = (worktree / "tasks/t-1.md").read_bytes()
    assert status_in(worktree) is TaskStatus.CLOSED
    same = SequenceMatcher(a=text.encode(), b=data, autojunk=False).get_matching_blocks()
    assert sum(block.size for block in same) >= len(text.encode()) - len("'open'")


def test_what_the_user_has_edited_meanwhile_is_taken_along(project: Project, worktree: Path) -> None:
    project.write("t-1.md", OPEN)
    committed(project, worktree)
    project.source.load()
    edited = OPEN + "one more line\n"
    project.write("t-1.md", edited, at_ns=None)
    closing = project.source.close_in("t-1", worktree)
    assert closing.texts == {"tasks/t-1.md": edited.encode()}
    assert (worktree / "tasks/t-1.md").read_text() == CLOSED + "one more line\n"


def test_a_task_that_was_never_committed_is_brought_into_the_worktree(
    project: Project, worktree: Path
) -> None:
    project.write("web/t-1.md", OPEN)
    closing = project.source.close_in("t-1", worktree)
    assert closing.paths == ("tasks/web/t-1.md",)
    assert (worktree / "tasks/web/t-1.md").read_text() == CLOSED


def test_a_task_that_the_user_closed_by_hand_is_closed_as_he_wrote_it(
    project: Project, worktree: Path
) -> None:
    project.write("t-1.md", OPEN)
    committed(project, worktree)
    done = OPEN.replace("open", "done")
    project.write("t-1.md", done, at_ns=None)
    assert project.source.close_in("t-1", worktree).texts == {"tasks/t-1.md": done.encode()}
    assert (worktree / "tasks/t-1.md").read_text() == done


def test_a_task_that_is_closed_in_the_worktree_already_is_left_alone(
    project: Project, worktree: Path
) -> None:
    project.write("t-1.md", OPEN)
    committed(project, worktree)
    project.source.close_in("t-1", worktree)
    assert project.source.close_in("t-1", worktree) == Closing()


def test_a_task_that_does_not_exist_is_nothing_to_commit(project: Project, worktree: Path) -> None:
    project.task("other")
    committed(project, worktree)
    assert project.source.close_in("t-1", worktree) == Closing()


def test_a_task_deleted_from_the_checkout_is_closed_as_the_worktree_has_it(
    project: Project, worktree: Path
) -> None:
    path = project.write("t-1.md", OPEN)
    committed(project, worktree)
    path.unlink()
    assert project.source.close_in("t-1", worktree).texts == {"tasks/t-1.md": OPEN.encode()}
    assert status_in(worktree) is TaskStatus.CLOSED


def test_a_task_renamed_in_the_checkout_is_closed_where_the_worktree_has_it_and_never_twice_there(
    project: Project, worktree: Path
) -> None:
    path = project.write("t-1.md", OPEN)
    committed(project, worktree)
    project.source.load()
    path.rename(project.folder / "new name.md")
    assert project.source.close_in("t-1", worktree).paths == ("tasks/t-1.md",)
    assert status_in(worktree) is TaskStatus.CLOSED
    assert os.listdir(worktree / "tasks") == ["t-1.md"]


def test_a_task_renamed_on_the_default_branch_is_closed_there(project: Project, worktree: Path) -> None:
    project.write("t-1.md", OPEN)
    (worktree / "tasks/done").mkdir(parents=True)
    (worktree / "tasks/done/first.md").write_text(OPEN)
    assert project.source.close_in("t-1", worktree).paths == ("tasks/done/first.md",)


def test_a_file_that_became_unreadable_meanwhile_is_closed_as_the_worktree_has_it(
    project: Project, worktree: Path
) -> None:
    project.write("t-1.md", OPEN)
    committed(project, worktree)
    project.write("t-1.md", OPEN.replace("title", "titel"), at_ns=None)
    assert project.source.close_in("t-1", worktree).texts == {"tasks/t-1.md": OPEN.encode()}
    assert (worktree / "tasks/t-1.md").read_text() == CLOSED


def test_of_two_copies_the_one_that_the_worktree_has_is_closed(project: Project, worktree: Path) -> None:
    project.write("t-1.md", OPEN)
    committed(project, worktree)
    project.write("copy.md", OPEN)
    assert project.source.close_in("t-1", worktree).paths == ("tasks/t-1.md",)


def test_of_two_copies_that_the_worktree_does_not_have_neither_is_closed(
    project: Project, worktree: Path
) -> None:
    project.write("t-1.md", OPEN)
    project.write("copy.md", OPEN)
    with pytest.raises(SourceError, match=r"tasks/copy.md and tasks/t-1.md have its id"):
        project.source.close_in("t-1", worktree)


@pytest.mark.parametrize("broken", ["", "bad: key\n"])
def test_another_task_in_its_place_is_not_overwritten(project: Project, worktree: Path, broken: str) -> None:
    project.write("t-1.md", OPEN)
    (worktree / "tasks").mkdir()
    other = OPEN.replace("t-1\n", f"t-2\n{broken}")
    (worktree / "tasks/t-1.md").write_text(other)
    with pytest.raises(SourceError, match=r"tasks/t-1.md is task t-2 there"):
        project.source.close_in("t-1", worktree)
    assert (worktree / "tasks/t-1.md").read_text() == other


@pytest.mark.parametrize("there", ["---\nid: t-1\ntitel: T\n---\n", "---\nbroken", "# notes\n"])
def test_a_task_that_is_broken_in_the_worktree_is_closed_as_the_checkout_has_it(
    project: Project, worktree: Path, there: str
) -> None:
    project.write("t-1.md", OPEN)
    (worktree / "tasks").mkdir()
    (worktree / "tasks/t-1.md").write_text(there)
    assert project.source.close_in("t-1", worktree).paths == ("tasks/t-1.md",)
    assert (worktree / "tasks/t-1.md").read_text() == CLOSED


# -- links in the worktree ------------------------------------------------------------------------


def test_a_file_that_is_a_link_is_not_written_through(
    project: Project, worktree: Path, tmp_path: Path
) -> None:
    project.write("t-1.md", OPEN)
    victim = tmp_path / "victim.md"
    victim.write_text(OPEN)
    (worktree / "tasks").mkdir()
    (worktree / "tasks/t-1.md").symlink_to(victim)
    with pytest.raises(SourceError, match="cannot be closed"):
        project.source.close_in("t-1", worktree)
    assert victim.read_text() == OPEN


@pytest.mark.parametrize("link", ["tasks", "tasks/sub"])
def test_a_folder_that_is_a_link_is_not_written_through(
    project: Project, worktree: Path, tmp_path: Path, link: str
) -> None:
    project.write("sub/t-1.md", OPEN)
    outside = tmp_path / "outside"
    (outside / "sub").mkdir(parents=True)
    (worktree / link).parent.mkdir(exist_ok=True)
    (worktree / link).symlink_to(outside)
    with pytest.raises(SourceError, match=r"cannot be closed|cannot be read"):
        project.source.close_in("t-1", worktree)
    assert not list(outside.rglob("*.md"))


def test_a_task_outside_that_a_link_leads_to_is_not_taken_for_the_worktrees_own(
    project: Project, worktree: Path, tmp_path: Path
) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "t-1.md").write_text(OPEN)
    (worktree / "tasks").mkdir()
    (worktree / "tasks/sub").symlink_to(outside)
    assert project.source.close_in("t-1", worktree) == Closing()
    assert (outside / "t-1.md").read_text() == OPEN


def test_a_file_keeps_its_permissions(project: Project, worktree: Path) -> None:
    project.write("t-1.md", OPEN)
    committed(project, worktree)
    (worktree / "tasks/t-1.md").chmod(0o600)
    project.source.close_in("t-1", worktree)
    assert (worktree / "tasks/t-1.md").stat().st_mode & 0o777 == 0o600


def test_closing_after_the_landing_and_claims_change_no_file(project: Project) -> None:
    path = project.write("t-1.md", OPEN)
    project.source.claim("t-1")
    project.source.unclaim("t-1")
    project.source.close("t-1", commit="abc")
    assert path.read_text() == OPEN
