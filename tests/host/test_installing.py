from __future__ import annotations

import sys
from pathlib import Path

import pytest

from flyball.host.install_hints import extra_command, upgrade_command


def test_pip_of_this_very_environment_is_named() -> None:
    assert extra_command("serve") == f"{sys.executable} -m pip install 'flyball-governor[serve]'"
    assert upgrade_command() == f"git pull && {sys.executable} -m pip install ."


def test_an_environment_of_pipx_is_changed_by_pipx(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "pipx_metadata.json").touch()
    monkeypatch.setattr(sys, "prefix", str(tmp_path))
    assert extra_command("redis") == f"pipx inject --force {tmp_path.name} 'flyball-governor[redis]'"


def test_an_environment_without_pip_is_changed_by_uv(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "prefix", str(tmp_path / "my tools"))
    monkeypatch.setattr("flyball.host.install_hints.find_spec", lambda name: None)
    assert extra_command("otel").startswith(f"uv pip install --python '{tmp_path}/my tools' ")
