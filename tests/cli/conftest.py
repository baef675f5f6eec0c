from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from flyball.governor.governor import Governor
from tests.cli.kit import Cli, People
from tests.factory.kit import Project


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A FLYBALL_HOME of the test's own that does not exist yet."""
    place = tmp_path / "home"
    monkeypatch.setenv("FLYBALL_HOME", str(place))
    monkeypatch.delenv("FLYBALL_URL", raising=False)
    monkeypatch.delenv("FLYBALL_LEASE", raising=False)
    return place


@pytest.fixture
def cli(home: Path, capsys: pytest.CaptureFixture[str]) -> Cli:
    return Cli(capsys, home)


@pytest.fixture
def governor(home: Path) -> Iterator[Governor]:
    governor = Governor()
    yield governor
    governor.close()


@pytest.fixture
def people(governor: Governor) -> Iterator[People]:
    people = People(governor)
    yield people
    people.all_die()


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Project]:
    """A project with a scripted agent, in whose folder we are."""
    project = Project(tmp_path)
    for name in ("HOME", "FLYBALL_HOME"):
        monkeypatch.setenv(name, project.env[name])
    for name in ("FLYBALL_URL", "FLYBALL_LEASE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(project.root)
    yield project
    project.end()


@pytest.fixture
def here(site: Project, capsys: pytest.CaptureFixture[str]) -> Cli:
    """The command line in that folder."""
    return Cli(capsys, site.home)
