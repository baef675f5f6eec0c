"""The task sources by name. Each is imported when a project uses it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from flyball.core.suggestions import did_you_mean
from flyball.errors import UsageError
from flyball.factory.tasks.port import TaskSource

if TYPE_CHECKING:
    from flyball.factory.project.config import ProjectConfig

NAMES = ("files", "beads", "github")


def open_source(config: ProjectConfig, root: Path) -> TaskSource:
    """Where the tasks of the project in ``root`` are kept, as its settings say."""
    name: str = config.tasks.source
    if name == "files":
        from flyball.factory.tasks.files import FilesSource

        return FilesSource(root, config.tasks.folder)
    if name == "beads":
        from flyball.factory.tasks.beads import BeadsSource

        return BeadsSource(root)
    if name == "github":
        from flyball.factory.tasks.github import GithubSource

        return GithubSource(root, config.tasks.label)
    hint = did_you_mean(name, NAMES) or f"use one of {', '.join(NAMES)}"
    raise UsageError(f"there is no task source {name!r}; {hint}")
