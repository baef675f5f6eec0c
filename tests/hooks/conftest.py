"""A person's home with nothing in it, and flyball's beside it."""

from __future__ import annotations

from pathlib import Path

import pytest

KEPT = ("CLAUDE_CONFIG_DIR", "CODEX_HOME", "GEMINI_CLI_HOME", "OPENCODE_CONFIG_DIR", "XDG_CONFIG_HOME")


@pytest.fixture
def person(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    home = tmp_path / "person"
    home.mkdir()
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("FLYBALL_HOME", str(tmp_path / "flyball"))
    for name in (*KEPT, "FLYBALL_URL", "FLYBALL_LEASE", "FLYBALL_GATEWAY", "FLYBALL_HOOKS"):
        monkeypatch.delenv(name, raising=False)
    return home
