"""A home of its own for every test, and ways to run real processes in it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.factory.kit import Project

REPOSITORY = Path(__file__).parents[2]
SOAK = bool(os.environ.get("FLYBALL_SOAK"))

Scenario = Callable[..., dict[str, Any]]


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """``FLYBALL_HOME`` for this test and every process it starts."""
    folder = tmp_path / "home"
    monkeypatch.setenv("FLYBALL_HOME", str(folder))
    monkeypatch.delenv("FLYBALL_URL", raising=False)
    monkeypatch.delenv("FLYBALL_LEASE", raising=False)
    monkeypatch.setenv("PYTHONPATH", f"{REPOSITORY}{os.pathsep}{REPOSITORY / 'src'}")
    return folder


@pytest.fixture
def scenario(home: Path) -> Scenario:
    """Run a module of tests.faults as a process; the JSON it prints."""

    def run(module: str, *arguments: object, timeout: float = 280) -> dict[str, Any]:
        command = [sys.executable, "-m", f"tests.faults.{module}", *map(str, arguments)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=timeout, cwd=REPOSITORY)
        assert done.returncode == 0, done.stderr
        result: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
        return result

    return run


@pytest.fixture
def project(tmp_path: Path) -> Iterator[Project]:
    """A project with a scripted agent; nothing of it outlives the test."""
    project = Project(tmp_path)
    yield project
    project.end()
