from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from flyball.governor.governor import Governor
from tests.cli.kit import Cli, People


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
