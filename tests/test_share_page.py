"""The how-to about shared pools, typed as it stands, against a real server."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.redis_server import RedisServer

PAGE = Path(__file__).parents[1] / "docs" / "how-to" / "share-a-pool-between-machines.md"


def _blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", PAGE.read_text(encoding="utf-8"), flags=re.DOTALL)


@pytest.fixture
def server() -> Iterator[RedisServer]:
    running = RedisServer(tcp=True)
    yield running
    running.close()


def _typed(server: RedisServer, folder: Path, script: str) -> str:
    """What a shell prints that is told to type this; nothing that it started stays."""
    scripts = str(Path(sys.executable).parent)
    env = {
        **{key: value for key, value in os.environ.items() if not key.startswith("FLYBALL")},
        "PATH": f"{scripts}{os.pathsep}{os.environ['PATH']}",
        "HOME": str(folder),
        "FLYBALL_HOST_AGENT": "off",
    }
    text = f"trap 'kill $(jobs -p)' EXIT\n{script}".replace("127.0.0.1:6379", f"127.0.0.1:{server.port}")
    done = subprocess.run(
        ["bash", "-c", text], cwd=folder, env=env, capture_output=True, text=True, timeout=100
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def _until(command: str, *shown: str) -> str:
    """The last command of a block, until what was begun before it is there."""
    seen = " && ".join([f"{{ {command}; }} > seen", *(f"grep -Eq '{pattern}' seen" for pattern in shown)])
    return f"for _ in $(seq 300); do {seen} && break; sleep 0.1; done\ncat seen"


def test_two_hosts_share_a_pool_in_five_commands(server: RedisServer, tmp_path: Path) -> None:
    *begun, look = _blocks("sh")[0].splitlines()
    assert len(begun) == 4
    looked = _until(look, "left +1 +1 +[0-9]+ s ago", "right +1 +1 +[0-9]+ s ago")
    out = _typed(server, tmp_path, "\n".join([*begun, looked]))
    rows = [line.split() for line in out.splitlines() if line.startswith(("  left ", "  right "))]
    assert [row[:3] for row in rows] == [["left", "1", "1"], ["right", "1", "1"]]
    assert "2 of 4 slots in use, 2 free" in out
    assert {word for word in ("on left", "on right") if word in out} == {"on left", "on right"}


def test_two_processes_divide_a_pool(server: RedisServer, tmp_path: Path) -> None:
    (tmp_path / "worker.py").write_text(_blocks("py")[0], encoding="utf-8")
    first, second = _blocks("sh")[:2]
    *begun, look = second.splitlines()
    set_up = first.splitlines()[:2]
    # The first beats are the store's: it learns.
    script = [*set_up, *begun, _until(look, "shares +4 slots in 2 nodes, 4 in flight")]
    out = _typed(server, tmp_path, "\n".join(script))
    rows = [line.split() for line in out.splitlines() if line.startswith(("  left ", "  right "))]
    assert [(row[0], *row[2:5]) for row in rows] == [("left", "2", "2", "2"), ("right", "2", "2", "2")]
