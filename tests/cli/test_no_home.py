"""A user without a home folder, as in a container that runs under any number: what to set is said."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

STRANGER = ("unshare", "--user", "--map-user=54321", "--map-group=54321")
"""A user that the password file does not know."""
VERBS = ["exec -- true", "status", "why x", "pool show", "doctor", "project list", "token list"]


def flyball(words: str, environment: dict[str, str], *before: str) -> subprocess.CompletedProcess[str]:
    passed = {name: value for name, value in os.environ.items() if not name.startswith("FLYBALL_")}
    passed.pop("HOME", None)
    return subprocess.run(
        [*before, sys.executable, "-m", "flyball", *words.split()],
        env={**passed, **environment},
        capture_output=True,
        text=True,
        timeout=60,
    )


@pytest.fixture
def stranger() -> tuple[str, ...]:
    allowed = shutil.which("unshare") and not subprocess.run([*STRANGER, "true"], check=False).returncode
    if not allowed:
        pytest.skip("this system does not allow user namespaces")
    return STRANGER


@pytest.mark.parametrize("words", VERBS)
def test_a_user_without_a_home_is_told_to_name_one(stranger: tuple[str, ...], words: str) -> None:
    done = flyball(words, {}, *stranger)
    assert done.returncode == 2
    assert "set FLYBALL_HOME" in done.stderr


@pytest.mark.parametrize("words", VERBS)
def test_a_user_without_a_home_goes_on_with_the_one_it_names(
    stranger: tuple[str, ...], tmp_path: Path, words: str
) -> None:
    named = {"FLYBALL_HOME": str(tmp_path / "state")}
    assert flyball("exec -- true", named, *stranger).returncode == 0
    done = flyball(words, named, *stranger)
    assert done.returncode == (1 if words == "why x" else 0), done.stderr
    assert "Traceback" not in done.stderr


def test_a_named_home_below_one_that_does_not_exist_is_refused(stranger: tuple[str, ...]) -> None:
    done = flyball("status", {"FLYBALL_HOME": "~/state"}, *stranger)
    assert done.returncode == 2
    assert "FLYBALL_HOME" in done.stderr


@pytest.mark.parametrize("home", ["", "relative/folder"])
def test_a_home_that_is_not_absolute_is_named(home: str) -> None:
    done = flyball("status", {"HOME": home})
    assert done.returncode == 2
    assert done.stderr.startswith(f"flyball: HOME is {home!r}")
    assert "FLYBALL_HOME" in done.stderr
