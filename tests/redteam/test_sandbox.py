"""Ways out of bubblewrap that are closed: sockets, shared memory, terminals, and an agent's own settings."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from flyball.factory.project.config import GuardPart
from tests.factory.guard_site import Site
from tests.factory.kit import Project
from tests.redteam.conftest import needs_bwrap


@pytest.fixture
def shared() -> Iterator[Path]:
    """A folder in the temporary folder that everything of the user's shares."""
    with tempfile.TemporaryDirectory(prefix="fb-", dir="/tmp") as folder:
        yield Path(folder)


def test_a_socket_in_the_temporary_folder_is_out_of_reach(walled: Project, shared: Path) -> None:
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(shared / "s"))
        server.listen()
        walled.task(
            "t-1",
            act="import socket\n"
            f"reached = socket.socket(socket.AF_UNIX).connect_ex({str(shared / 's')!r})\n"
            "(folder / 'reached').write_text(str(reached))\nwrite('pages/t-1.txt', '')",
        )
        ran = walled.run()
    assert ran.code == 0, ran.said
    assert (walled.folder / "reached").read_text() != "0"


@pytest.mark.skipif(shutil.which("tmux") is None, reason="NO TMUX HERE")
def test_an_agent_gives_no_orders_to_a_terminal_outside(walled: Project, shared: Path) -> None:
    tmux, mark = ["tmux", "-S", str(shared / "tmux")], walled.folder / "ran"
    subprocess.run([*tmux, "-f", "/dev/null", "new-session", "-d", "sleep 600"], check=True)
    try:
        walled.task(
            "t-1",
            act=f"subprocess.run({[*tmux, 'run-shell', f'readlink /proc/self/ns/pid > {mark}']!r})\n"
            "write('pages/t-1.txt', '')",
        )
        ran = walled.run()
    finally:
        subprocess.run([*tmux, "kill-server"], check=True)
    assert ran.code == 0, ran.said
    assert not mark.exists() or mark.read_text().strip() != os.readlink("/proc/self/ns/pid")


@pytest.fixture
def in_shared_memory() -> Iterator[Path]:
    """A name there that no other test has; nothing of it outlives the test."""
    path = Path("/dev/shm") / f"fb-{os.urandom(6).hex()}"
    yield path
    path.unlink(missing_ok=True)


def test_mailboxes_shared_memory_and_terminals_are_not_to_be_seen(
    walled: Project, in_shared_memory: Path
) -> None:
    (walled.home / "wake").mkdir(mode=0o700, parents=True)
    (walled.home / "wake" / "mailbox").touch()
    walled.task(
        "t-1",
        act=f"Path({str(in_shared_memory)!r}).touch()\n"
        "seen = [sorted(os.listdir(each)) for each in (os.environ['FLYBALL_HOME'] + '/wake', '/dev/pts')]\n"
        "(folder / 'seen').write_text(json.dumps(seen))\nwrite('pages/t-1.txt', '')",
    )
    ran = walled.run()
    assert ran.code == 0, ran.said
    assert not in_shared_memory.exists()
    assert (walled.folder / "seen").read_text() == '[[], ["ptmx"]]'


@needs_bwrap
@pytest.mark.parametrize("there", [True, False])
def test_settings_that_the_person_s_own_claude_runs_are_not_an_agent_s_to_write(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, there: bool
) -> None:
    own = tmp_path / "site" / "user" / ".claude"
    monkeypatch.setenv("HOME", str(own.parent))
    site = Site(tmp_path / "site", GuardPart(sandbox="bwrap", hooks=False))
    (own / "hooks").mkdir(parents=True)
    if there:
        (own / "settings.json").write_text("{}\n")
    line = (
        "cd ~/.claude; echo mine > sessions; for name in settings.json hooks/x; do (echo x > $name); done;"
        "mv settings.json aside; rm -r hooks; echo tried"
    )
    done = subprocess.run(
        site.launch("sh", "-c", line).argv,
        cwd=site.tree,
        env=site.env,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout == "tried\n", done.stderr
    assert (own / "sessions").read_text() == "mine\n"
    assert (own / "settings.json").read_text() == "{}\n"
    assert list((own / "hooks").iterdir()) == []
