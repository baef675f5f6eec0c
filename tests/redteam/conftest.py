"""Hostile agents: small programs that try what no agent may do, through the real ``flyball run``.

Each is tried behind the fence alone and, where bubblewrap works here, in the sandbox too.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from flyball.factory.guards.sandbox import sandbox_problem
from tests.factory.kit import Project

_PROBLEM = sandbox_problem()
needs_bwrap = pytest.mark.skipif(bool(_PROBLEM), reason=f"NO SANDBOX TESTED: {_PROBLEM}")


@pytest.fixture(params=["none", pytest.param("bwrap", marks=needs_bwrap)])
def hostile(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Project]:
    """A project whose agents are kept in one way or the other, and tried once."""
    project = Project(tmp_path)
    put_in(project, request.param)
    yield project
    project.end()


@pytest.fixture
def project(tmp_path: Path) -> Iterator[Project]:
    """A project whose agents are behind the fence alone."""
    project = Project(tmp_path)
    put_in(project, "none")
    yield project
    project.end()


@pytest.fixture
def walled(tmp_path: Path) -> Iterator[Project]:
    """A project whose agents are in the sandbox."""
    if _PROBLEM:
        pytest.skip(f"NO SANDBOX TESTED: {_PROBLEM}")
    project = Project(tmp_path)
    put_in(project, "bwrap")
    yield project
    project.end()


def put_in(project: Project, sandbox: str) -> None:
    project.configure(
        guard={"sandbox": sandbox, "writable": [str(project.folder)]}, run={"attempts": 1, "gate_retries": 0}
    )
    project.commit("the sandbox")
