"""The tutorial's ten lines, typed as they stand, end in merged work."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

PAGE = Path(__file__).parents[1] / "docs" / "tutorial" / "from-init-to-merged.md"


def _lines() -> str:
    found = re.search(r"```sh\n(.*?)```", PAGE.read_text(encoding="utf-8"), flags=re.DOTALL)
    assert found is not None
    return found[1]


def test_the_tutorial_is_ten_lines() -> None:
    assert len(_lines().splitlines()) == 10


def test_following_the_tutorial_ends_in_merged_work(tmp_path: Path) -> None:
    scripts = str(Path(sys.executable).parent)
    env = {
        **{key: value for key, value in os.environ.items() if not key.startswith(("FLYBALL", "GIT_"))},
        "PATH": f"{scripts}{os.pathsep}{os.environ['PATH']}",
        "HOME": str(tmp_path / "home"),
    }
    (tmp_path / "home").mkdir()
    setup = "set -e\ngit config --global user.name You\ngit config --global user.email you@localhost\n"
    done = subprocess.run(
        ["bash", "-c", setup + _lines()], cwd=tmp_path, env=env, capture_output=True, text=True, timeout=100
    )
    assert done.returncode == 0, done.stdout + done.stderr
    site = tmp_path / "site"
    assert (site / "index.md").read_text() == "hello, about\n"
    assert "status: closed" in (site / "tasks" / "t-3.md").read_text()
    history = done.stdout.splitlines()[-4:]
    assert [line.partition(" ")[2] for line in history][-1] == "Start"
    assert {line.partition(" ")[2] for line in history[:-1]} == {
        "Write the hello page",
        "Write the about page",
        "Link them",
    }
