"""What the page about admission over HTTP says is true: its commands run, and print what it shows."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from flyball.governor.governor import Governor
from tests.service.kit import Running

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "admission-over-http.md"
ADDRESS = "http://127.0.0.1:8790"
END = "-- end of block --"


@pytest.mark.skipif(
    shutil.which("curl") is None, reason="NOTICE: curl is not installed, the page was not run"
)
def test_the_commands_print_what_the_page_shows(tmp_path: Path) -> None:
    blocks = re.findall(r"```(sh|text)\n(.*?)```", PAGE.read_text(encoding="utf-8"), flags=re.DOTALL)
    with Running(Governor(f"sqlite://{tmp_path / 'governor.db'}"), tmp_path) as server:
        script = "".join(f"{code}echo; echo '{END}'\n" for kind, code in blocks if kind == "sh")
        command = ["bash", "-eu", "-c", script.replace(ADDRESS, server.url)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    printed = done.stdout.replace("\r", "").split(END)
    number = -1
    for kind, text in blocks:
        if kind == "sh":
            number += 1
            continue
        for line in text.splitlines():
            pattern = ".*".join(map(re.escape, line.split("...")))
            assert re.search(pattern, printed[number]), f"{line!r} is not in\n{printed[number]}"


def test_the_python_example_runs(tmp_path: Path) -> None:
    (code,) = re.findall(r"```py\n(.*?)```", PAGE.read_text(encoding="utf-8"), flags=re.DOTALL)
    with Running(Governor(f"sqlite://{tmp_path / 'governor.db'}"), tmp_path) as server:
        exec(compile(code.replace(ADDRESS, server.url), "page", "exec"), {})
        assert server.client.get("/v1/pools/gpu").json()["in_use"] == 0
