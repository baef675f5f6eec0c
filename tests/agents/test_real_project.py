"""docs/how-to/run-a-real-project.md, followed with each of the real four from a plain repository."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.agents.bench import Benches
from tests.agents.kit import REPOSITORY, Agent, Claude, Codex, Gemini, Opencode
from tests.agents.site import git, make_repository

PAGE = REPOSITORY / "docs" / "how-to" / "run-a-real-project.md"
NOT_HERE = ("--watch", "account add")
"""What needs a second terminal, or a user who is logged in."""
ERRAND = "errand: write pages/one.txt = 1"


def lines() -> list[str]:
    blocks = re.findall(r"```sh\n(.*?)```", PAGE.read_text(encoding="utf-8"), flags=re.DOTALL)
    written = [line for block in blocks for line in block.splitlines()]
    return [line for line in written if line and not any(words in line for words in NOT_HERE)]


def prepared(line: str, agent: Agent) -> str:
    """The agent is named, as all four are installed here; the task says in the model's words what to do."""
    line = line.replace("init --write", f"init --write --runtime {agent.name}")
    return line.replace("Write pages/one.txt.", f"Write pages/one.txt.\n{ERRAND}")


@pytest.mark.parametrize("agent", [Claude(), Codex(), Gemini(), Opencode()], ids=lambda agent: agent.name)
def test_the_page_ends_in_a_merged_commit(agent: Agent, bench_of: Benches) -> None:
    bench = bench_of()
    bench.door.set()
    root = bench.folder / "repository"
    make_repository(root)
    (root / "Makefile").write_text("test:\n\ttest ! -e pages || test -f pages/one.txt\n")
    git("add", "--all", folder=root)
    git("commit", "--quiet", "--message", "A gate", folder=root)
    env = bench.environment(agent, retries=1)
    env["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{env['PATH']}"
    for line in lines():
        done = subprocess.run(
            ["bash", "-c", prepared(line, agent)],
            cwd=root,
            env=env,
            capture_output=True,
            text=True,
            timeout=200,
        )
        assert done.returncode == 0, f"{line}\n{done.stdout}\n{done.stderr}"
        if line.startswith("flyball init"):
            settings = root / "flyball.toml"
            assert 'commands = ["make test"]' in settings.read_text()
            # What this machine's provider knows it by, and what its sandbox needs under /tmp.
            keys = f'model = "{agent.model}"\nargs = {list(agent.args)!r}\n'
            settings.write_text(settings.read_text().replace("[agent]\n", f"[agent]\n{keys}"))
    assert git("show", "main:pages/one.txt", folder=root).strip() == "1"
    assert "status: closed" in git("show", "main:tasks/t-1.md", folder=root)
