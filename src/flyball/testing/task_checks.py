"""The conformance suite any task source must pass.

    check_tasks(lambda root: FilesSource(root))

``make_source`` gets an empty folder, the project's, and returns a source with no tasks in it; each check asks
for one of its own. ``check_tasks`` runs every behaviour and names all that are broken. With pytest,
parametrize over ``TASK_CHECKS`` instead: each takes a ``TaskScene``.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from flyball.core.tasks.footprint import Footprint
from flyball.core.tasks.task import Task, TaskStatus, check_task_id
from flyball.errors import UsageError
from flyball.factory.git.git import Git
from flyball.factory.tasks.port import Closing, NewTask, TaskSource
from flyball.testing.store_checks.scenario import expect, expect_equal

MakeSource = Callable[[Path], TaskSource]
COMMIT = "8d5957d2e1f6a3b4c5d6e7f8091a2b3c4d5e6f70"


class TaskScene:
    """An empty source, the project's folder, and a worktree to land in."""

    def __init__(self, make_source: MakeSource, folder: Path) -> None:
        self.root = folder / "project"
        self.worktree = folder / "worktree"
        self.root.mkdir()
        self.worktree.mkdir()
        self.source = make_source(self.root)

    def task(self, task_id: str) -> Task:
        """A task as the next load has it."""
        found = [task for task in self.source.load().tasks if task.id == task_id]
        expect(len(found) == 1, f"{task_id} is loaded {len(found)} times")
        return found[0]

    def land(self, task_id: str) -> Closing:
        """Close a task the way a landing does: in the worktree, which then becomes the checkout."""
        closing = self.source.close_in(task_id, self.worktree)
        for path in closing.paths:
            target = self.root / path
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(self.worktree / path, target)
        self.source.close(task_id, commit=COMMIT)
        return closing


TaskCheck = Callable[[TaskScene], None]
TASK_CHECKS: list[TaskCheck] = []


def check_tasks(make_source: MakeSource) -> None:
    """Run every check on a source of its own. Raises one group with all that failed."""
    failed: list[Exception] = []
    for check in TASK_CHECKS:
        with tempfile.TemporaryDirectory() as folder:
            try:
                check(TaskScene(make_source, Path(folder)))
            except Exception as error:
                error.add_note(f"broken: {check.__name__.replace('_', ' ')}")
                failed.append(error)
    if failed:
        raise ExceptionGroup(f"{len(failed)} behaviours of the task source are broken", failed)


def _task_check(check: TaskCheck) -> TaskCheck:
    TASK_CHECKS.append(check)
    return check


# -- adding and loading ---------------------------------------------------------------------------


@_task_check
def a_new_source_has_no_tasks_and_no_problems(scene: TaskScene) -> None:
    loaded = scene.source.load()
    expect_equal((loaded.tasks, loaded.problems), ((), ()), "what is loaded")
    expect(bool(scene.source.name), "a source has a name")


@_task_check
def a_title_is_enough_and_the_source_makes_an_id(scene: TaskScene) -> None:
    first, second = (scene.source.add(NewTask(title="Do it")) for _ in range(2))
    expect(first.id != second.id, "two tasks have two ids")
    for task in (first, second):
        check_task_id(task.id)
        plain = Task(id=task.id, title="Do it", created=task.created, where=task.where)
        expect_equal(task, plain, "a task of which only the title was said")
    expect(bool(first.where), "a task says where a person finds it")


@_task_check
def what_was_added_is_what_is_loaded(scene: TaskScene) -> None:
    new = NewTask(
        title="Add the hello page",
        type="bug",
        priority=1,
        labels=["quick", "team-web"],
        footprint=Footprint(write=("lib/a", "pages/hello*"), read=("docs/**",)),
        acceptance="- it says hello\n- it is green",
        body="What to do.\n\n- in words\n\n```yaml\nid: x\n---\n```",
    )
    added = scene.source.add(new)
    for task in (added, scene.task(added.id), scene.source.read(added.id)):
        expect(task is not None, "a task that was added can be read")
        expect_equal(task, added, "the task")
    wanted = Task(
        id=added.id,
        title=new.title,
        type=new.type,
        priority=new.priority,
        labels=tuple(new.labels),
        footprint=new.footprint,
        acceptance=new.acceptance,
        body=new.body,
        created=added.created,
        where=added.where,
    )
    expect_equal(replace(added, labels=tuple(sorted(added.labels))), wanted, "what was asked for")
    expect_equal(scene.source.load().problems, (), "problems")


@_task_check
def odd_words_come_back_as_they_were(scene: TaskScene) -> None:
    titles = ["-n", "--force", "no", "007", "a: b # c", "\"quoted\" \\ 'twice'", "Größe 作業 😀", "* & ! | >"]
    made = {scene.source.add(NewTask(title=title, body=f"{title}\n{title}")).id: title for title in titles}
    loaded = {task.id: (task.title, task.body) for task in scene.source.load().tasks}
    expect_equal(
        loaded, {name: (title, f"{title}\n{title}") for name, title in made.items()}, "titles and bodies"
    )


@_task_check
def needs_and_parents_are_kept(scene: TaskScene) -> None:
    epic = scene.source.add(NewTask(title="All of it", type="epic"))
    first = scene.source.add(NewTask(title="First", parent=epic.id))
    other = scene.source.add(NewTask(title="Other"))
    last = scene.source.add(NewTask(title="Last", parent=epic.id, needs=[first.id, other.id]))
    expect_equal((first.parent, first.needs), (epic.id, ()), "parent and needs of the first")
    for task in (last, scene.task(last.id)):
        expect_equal((task.parent, set(task.needs)), (epic.id, {first.id, other.id}), "of the last")
    expect_equal(scene.task(epic.id).type, "epic", "the type of the parent")


@_task_check
def a_task_without_a_title_is_refused(scene: TaskScene) -> None:
    for title in ("", "  ", "two\nlines"):
        try:
            scene.source.add(NewTask(title=title))
        except UsageError:
            continue
        raise AssertionError(f"{title!r} was taken for a title")
    expect_equal(scene.source.load().tasks, (), "tasks")


@_task_check
def a_task_that_nobody_added_cannot_be_read(scene: TaskScene) -> None:
    scene.source.add(NewTask(title="Do it"))
    expect_equal(scene.source.read("nobody-7"), None, "what is read")


@_task_check
def loading_again_says_the_same(scene: TaskScene) -> None:
    scene.source.add(NewTask(title="One"))
    scene.source.add(NewTask(title="Two"))
    expect_equal(scene.source.load(), scene.source.load(), "what is loaded")


# -- claiming -------------------------------------------------------------------------------------


@_task_check
def a_claim_changes_at_most_the_status_and_can_be_taken_back(scene: TaskScene) -> None:
    task = scene.source.add(NewTask(title="Do it", labels=["quick"], body="words"))
    for _ in range(2):
        scene.source.claim(task.id)
        claimed = scene.task(task.id)
        expect(claimed.status in (TaskStatus.OPEN, TaskStatus.IN_PROGRESS), f"is {claimed.status.value}")
        expect_equal(replace(claimed, status=task.status), task, "the rest of the task")
    for _ in range(2):
        scene.source.unclaim(task.id)
        expect_equal(scene.task(task.id), task, "the task")


@_task_check
def a_closed_task_is_not_opened_by_a_claim(scene: TaskScene) -> None:
    task = scene.source.add(NewTask(title="Do it"))
    scene.land(task.id)
    for act in (scene.source.claim, scene.source.unclaim):
        act(task.id)
        expect_equal(scene.task(task.id).status, TaskStatus.CLOSED, f"status after {act.__name__}")


# -- closing --------------------------------------------------------------------------------------


@_task_check
def a_landing_closes_the_task_for_good(scene: TaskScene) -> None:
    task, other = (scene.source.add(NewTask(title=title, body="words")) for title in ("Do it", "Not this"))
    scene.source.claim(task.id)
    scene.land(task.id)
    expect_equal(scene.task(task.id).status, TaskStatus.CLOSED, "status")
    expect_equal(scene.task(other.id).status, TaskStatus.OPEN, "status of another")
    whole = scene.source.read(task.id)
    expect(whole is not None and whole.body == "words", "a closed task can be read with its text")


@_task_check
def closing_twice_changes_nothing(scene: TaskScene) -> None:
    task = scene.source.add(NewTask(title="Do it"))
    scene.land(task.id)
    before = scene.source.load()
    expect_equal(scene.land(task.id), Closing(), "what there is to commit")
    expect_equal(scene.source.load(), before, "what is loaded")


@_task_check
def closing_names_every_file_that_it_wrote(scene: TaskScene) -> None:
    task = scene.source.add(NewTask(title="Do it"))
    closing = scene.source.close_in(task.id, scene.worktree)
    written = [path for path in scene.worktree.rglob("*") if path.is_file()]
    expect_equal(
        {path.relative_to(scene.worktree).as_posix() for path in written}, set(closing.paths), "files"
    )
    expect_equal(set(closing.texts), set(closing.paths), "texts")
    for path, text in closing.texts.items():
        expect_equal((scene.root / path).read_bytes(), text, f"{path} in the checkout")


@_task_check
def a_parent_and_its_needs_do_not_keep_landed_work_open(scene: TaskScene) -> None:
    epic = scene.source.add(NewTask(title="All of it", type="epic"))
    first = scene.source.add(NewTask(title="First", parent=epic.id))
    last = scene.source.add(NewTask(title="Last", parent=epic.id, needs=[first.id]))
    for task in (last, epic):
        scene.land(task.id)
        expect_equal(scene.task(task.id).status, TaskStatus.CLOSED, f"status of {task.title}")
    expect_equal(scene.task(first.id).status, TaskStatus.OPEN, "status of what was not done")


@_task_check
def a_person_closes_a_task_without_a_landing(scene: TaskScene) -> None:
    task, other = (scene.source.add(NewTask(title=title, body="words")) for title in ("Do it", "Not this"))
    scene.source.drop(task.id, reason="not wanted any more")
    expect_equal(scene.task(task.id).status, TaskStatus.CLOSED, "status")
    expect_equal(scene.task(other.id).status, TaskStatus.OPEN, "status of another")
    before = scene.source.load()
    scene.source.drop(task.id)
    expect_equal(scene.source.load(), before, "what is loaded after it was closed once more")


@_task_check
def no_commit_says_what_was_never_committed(scene: TaskScene) -> None:
    task = scene.source.add(NewTask(title="Do it"))
    expect(not scene.source.closed_at(task.id, Git(scene.root), "HEAD"), "closed in a commit")


@_task_check
def what_is_watched_is_there(scene: TaskScene) -> None:
    scene.source.add(NewTask(title="Do it"))
    for folder in scene.source.watch_folders():
        expect(folder.is_dir(), f"{folder} is a folder")
