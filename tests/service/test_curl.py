"""The examples with curl run as they are written."""

from __future__ import annotations

import re
import shutil
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from flyball.governor.governor import Governor
from tests.service.kit import Running

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "service-with-curl.md"
BLOCKS = re.findall(r"```sh\n(.*?)```", PAGE.read_text(encoding="utf-8"), flags=re.DOTALL)
STAND_IN = """\
#!{python}
import sys, httpx
words, method, body, headers, seconds, address, fails = sys.argv[1:], None, None, {{}}, 20.0, "", False
while words:
    word = words.pop(0)
    if word == "-X": method = words.pop(0)
    elif word == "-d": body = words.pop(0)
    elif word == "-H": name, _, value = words.pop(0).partition(": "); headers[name] = value
    elif word == "--max-time": seconds = float(words.pop(0))
    elif word.startswith("-"): fails = fails or "f" in word
    else: address = word
method = method or ("POST" if body else "GET")
try:
    with httpx.stream(method, address, content=body, headers=headers, timeout=seconds) as answer:
        for part in answer.iter_text():
            print(part, flush=True)
except httpx.TimeoutException:
    sys.exit(28)
sys.exit(22 if fails and answer.status_code >= 400 else 0)
"""
"""Does what curl does with the options of the page, where there is no curl."""


@pytest.fixture
def path(tmp_path: Path) -> str:
    if shutil.which("curl") is None:
        (tmp_path / "curl").write_text(STAND_IN.format(python=sys.executable))
        (tmp_path / "curl").chmod(stat.S_IRWXU)
    return f"{tmp_path}:/usr/local/bin:/usr/bin:/bin"


def test_every_example_works(tmp_path: Path, path: str) -> None:
    governor = Governor("memory:")
    governor.set_pool("anthropic", cap=4)
    with Running(governor, tmp_path) as server:
        done = subprocess.run(
            ["bash", "-eu", "-c", "\n".join(BLOCKS)],
            env={"PATH": path, "URL": server.url},
            capture_output=True,
            text=True,
            timeout=60,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        for said in ('"ready"', "event: state", "did you mean 'cap'?", "flyball_pool_cap", "no lease 12345"):
            assert said in done.stdout
        assert "wrong-token" in done.stdout
        assert '"openai/batch"' in done.stdout
        names = [pool["name"] for pool in server.client.get("/v1/pools").json()["pools"]]
        assert names == ["anthropic"], "openai/batch was made, and removed again"
