from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.factory.kit import Project


@pytest.fixture
def project(tmp_path: Path) -> Iterator[Project]:
    """A project of its own; nothing of it outlives the test."""
    project = Project(tmp_path)
    yield project
    project.end()
