"""A project folder with task files in it."""

from __future__ import annotations

import os
from pathlib import Path

from flyball.core.tasks.task import Task
from flyball.factory.tasks.files import FilesSource
from flyball.factory.tasks.port import TaskProblem

LONG_AGO_NS = 1_700_000_000_000_000_000


class Project:
    """``project.write("a.md", "---...")``; a source that reads it is ``project.source``."""

    def __init__(self, root: Path) -> None:
        self.root = root
        root.mkdir(exist_ok=True)
        self.source = FilesSource(root, wall=lambda: 1_793_527_200.0)

    @property
    def folder(self) -> Path:
        return self.root / "tasks"

    def write(self, name: str, text: str | bytes, *, at_ns: int | None = LONG_AGO_NS) -> Path:
        """Write a file that was last changed long ago, so that it is not read twice for safety."""
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text.encode() if isinstance(text, str) else text)
        if at_ns is not None:
            os.utime(path, ns=(at_ns, at_ns))
        return path

    def task(self, name: str, *lines: str, body: str = "") -> Path:
        """A good task: ``lines`` are added to its front matter."""
        head = "\n".join([f"id: {name}", f"title: Do {name}", *lines])
        return self.write(f"{name}.md", f"---\n{head}\n---\n{body}")

    def tasks(self) -> dict[str, Task]:
        return {task.id: task for task in self.source.load().tasks}

    def problems(self) -> dict[str, TaskProblem]:
        return {problem.where: problem for problem in self.source.load().problems}

    def problem(self) -> TaskProblem:
        [problem] = self.source.load().problems
        return problem
