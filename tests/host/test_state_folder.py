"""Whose folder the state lies in."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from flyball.errors import UsageError
from flyball.host.state_folder import home

NOBODY = 65534
as_root = pytest.mark.skipif(os.getuid() != 0, reason="only root can give a folder away")


@as_root
@pytest.mark.parametrize("link", [False, True])
@pytest.mark.parametrize(
    "verb", [["status"], ["exec", "--", "true"], ["pool", "set", "p", "--cap", "1"], ["doctor"]]
)
def test_the_state_folder_of_another_user_is_refused(tmp_path: Path, verb: list[str], link: bool) -> None:
    theirs, named = tmp_path / "theirs", tmp_path / "link"
    theirs.mkdir()
    os.chown(theirs, NOBODY, NOBODY)
    named.symlink_to(theirs)
    env = {**os.environ, "FLYBALL_HOME": str(named if link else theirs)}
    done = subprocess.run([sys.executable, "-m", "flyball", *verb], env=env, capture_output=True, text=True)
    assert done.returncode == 2
    assert f"belongs to user {NOBODY}" in done.stderr
    assert list(theirs.iterdir()) == []


@as_root
def test_the_folder_below_a_home_of_another_user_is_refused_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("FLYBALL_HOME", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    folder = tmp_path / ".flyball"
    assert home() == folder
    folder.mkdir()
    assert home() == folder
    os.chown(folder, NOBODY, NOBODY)
    with pytest.raises(UsageError, match="chown"):
        home()
