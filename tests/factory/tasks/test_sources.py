"""Which source a project's settings name."""

from __future__ import annotations

from pathlib import Path

import pytest

from flyball.errors import UsageError
from flyball.factory.project.config import ProjectConfig, ProjectPart, TasksPart
from flyball.factory.tasks.registry import NAMES, open_source


def config(name: str) -> ProjectConfig:
    part = TasksPart(source=name, folder="work", label="agents")  # type: ignore[arg-type]
    return ProjectConfig(project=ProjectPart(id="blog"), tasks=part)


@pytest.mark.parametrize("name", NAMES)
def test_every_name_opens_its_source(name: str, tmp_path: Path) -> None:
    assert open_source(config(name), tmp_path).name == name


def test_the_folder_is_the_one_of_the_settings(tmp_path: Path) -> None:
    (tmp_path / "work").mkdir()
    (tmp_path / "work" / "x.md").write_text("---\nid: x\ntitle: T\n---\n")
    assert [task.id for task in open_source(config("files"), tmp_path).load().tasks] == ["x"]


def test_an_unknown_name_is_refused_with_the_nearest(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="there is no task source 'file'; did you mean 'files'"):
        open_source(config("file"), tmp_path)
