"""Every behaviour of the suite, on every source."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from flyball.core.tasks.task import Task
from flyball.factory.tasks.files import FilesSource
from flyball.factory.tasks.github import GithubSource
from flyball.factory.tasks.port import NewTask
from flyball.testing.task_checks import TASK_CHECKS, TaskCheck, TaskScene, check_tasks
from tests.factory.tasks.beads_kit import VERSIONS, live, recorded

every_check = pytest.mark.parametrize("check", TASK_CHECKS, ids=lambda check: check.__name__)


@every_check
def test_files(check: TaskCheck, tmp_path: Path) -> None:
    check(TaskScene(FilesSource, tmp_path))


@every_check
@pytest.mark.parametrize("version", VERSIONS)
def test_recorded_beads(version: str, check: TaskCheck, tmp_path: Path) -> None:
    check(TaskScene(recorded(version, check.__name__, tmp_path), tmp_path))


@every_check
def test_real_beads(check: TaskCheck, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    check(TaskScene(live(check.__name__, tmp_path, monkeypatch), tmp_path))


@every_check
def test_github(check: TaskCheck, tmp_path: Path) -> None:
    command = [sys.executable, "-IS", str(Path(__file__).parent / "stand_in_gh.py"), str(tmp_path / "state")]
    check(TaskScene(lambda root: GithubSource(root, command=command), tmp_path))


def test_a_source_that_forgets_is_told_what_it_breaks() -> None:
    class Forgetful(FilesSource):
        def add(self, new: NewTask) -> Task:
            return super().add(NewTask(title=new.title))

    with pytest.raises(ExceptionGroup) as raised:
        check_tasks(Forgetful)
    notes = {note for error in raised.value.exceptions for note in error.__notes__}
    assert "broken: needs and parents are kept" in notes
    assert "broken: loading again says the same" not in notes
