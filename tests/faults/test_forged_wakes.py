"""A wake is a hint: what is written into a mailbox starts nothing. The store says who has a slot."""

from __future__ import annotations

import asyncio
import socket
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import flyball
from flyball.errors import WaitTimeoutError
from flyball.wake.mailbox import path_of

EXEC = [sys.executable, "-m", "flyball", "exec"]


def waiting(home: Path) -> tuple[int, str]:
    """The only ask in line and its mailbox, read as any process of this user can read them."""
    end = time.monotonic() + 30
    while time.monotonic() < end:
        with sqlite3.connect(home / "governor.db") as connection:
            found = connection.execute("SELECT id, mailbox FROM claim WHERE granted_at IS NULL").fetchall()
        connection.close()
        if found:
            return found[0][0], found[0][1]
        time.sleep(0.005)
    raise AssertionError("no ask stood in line")


def forge(home: Path) -> None:
    """Every word that a mailbox was ever sent about a claim."""
    claim_id, mailbox = waiting(home)
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as forger:
        path, nonce = path_of(mailbox), mailbox.removeprefix(path_of(mailbox))[1:]
        for word in (-1 - claim_id, claim_id, -1):
            for told in (f"{word}", f"{nonce} {word}"):
                forger.sendto(told.encode(), path)


@pytest.fixture
def taken(home: Path) -> flyball.Lease:
    """The only slot of the pool."""
    gov = flyball.Governor()
    gov.set_pool("anthropic", cap=1, adaptive=False)
    return gov.acquire("anthropic", name="holder")


@pytest.mark.parametrize("options", [[], ["--replace"], ["--runtime", "claude"]])
def test_a_forged_wake_does_not_start_a_command(
    home: Path, taken: flyball.Lease, tmp_path: Path, options: list[str]
) -> None:
    ran = tmp_path / "ran"
    waiter = subprocess.Popen(
        [*EXEC, "--wait", "3", *options, "--", "touch", str(ran)], stderr=subprocess.PIPE, text=True
    )
    forge(home)
    waiter.communicate(timeout=60)
    assert waiter.returncode == 75
    assert not ran.exists()


async def in_a_loop() -> None:
    async with flyball.Governor().slot("anthropic", timeout=3):
        pass


def in_a_thread() -> None:
    with flyball.Governor().slot("anthropic", timeout=3):
        pass


@pytest.mark.parametrize("ask", [in_a_thread, lambda: asyncio.run(in_a_loop())])
def test_a_forged_wake_does_not_open_a_block(
    home: Path, taken: flyball.Lease, ask: Callable[[], None]
) -> None:
    with ThreadPoolExecutor() as aside:
        forged = aside.submit(forge, home)
        with pytest.raises(WaitTimeoutError):
            ask()
        forged.result()
