"""A home of its own for each test, a governor in memory, and a world whose sleeps take no time."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import httpx2
import pytest

from flyball import Governor
from tests.integrations.kit import Night


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    runtime = Path(tempfile.mkdtemp(prefix="fb-"))
    monkeypatch.setenv("FLYBALL_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(runtime))
    for name in ("FLYBALL_URL", "FLYBALL_LEASE", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.lower(), raising=False)
    yield tmp_path / "home"
    shutil.rmtree(runtime)


@pytest.fixture
def gov() -> Iterator[Governor]:
    """A governor with a pool ``p`` of one slot."""
    gov = Governor("memory:")
    gov.set_pool("p", cap=1, adaptive=False)
    yield gov
    gov.close()


@pytest.fixture
def night() -> Night:
    return Night()


@pytest.fixture(params=[httpx, httpx2], ids=["httpx", "httpx2"])
def lib(request: pytest.FixtureRequest) -> Any:
    return request.param
