from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from flyball.governor.governor import Governor
from flyball.testing import Scene, make_memory
from tests.service.kit import Running


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A FLYBALL_HOME of the test's own."""
    place = tmp_path / "home"
    monkeypatch.setenv("FLYBALL_HOME", str(place))
    for name in ("FLYBALL_URL", "FLYBALL_LEASE"):
        monkeypatch.delenv(name, raising=False)
    return place


@pytest.fixture
def scene() -> Scene:
    """A store in memory, in a simulated world."""
    return Scene(make_memory)


@pytest.fixture(scope="module")
def shared_home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("home")


@pytest.fixture(scope="module")
def running(shared_home: Path) -> Iterator[Running]:
    """One server for all tests of a module, each in pools of its own."""
    with Running(Governor(f"sqlite://{shared_home / 'governor.db'}"), shared_home) as server:
        yield server


@pytest.fixture(scope="module")
def guarded(shared_home: Path) -> Iterator[Running]:
    """One that asks for tokens."""
    with Running(
        Governor(f"sqlite://{shared_home / 'guarded.db'}"), shared_home, token_needed=True
    ) as server:
        yield server
