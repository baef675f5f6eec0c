"""Real processes that hold and wait (``people.py``), and what a test asks of them and of their pool."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import flyball
from flyball.governor.status import PoolStatus

REPOSITORY = Path(__file__).parents[2]

Start = Callable[..., subprocess.Popen[str]]


@contextmanager
def starting() -> Iterator[Start]:
    """Starts people; any that still runs at the end is killed."""
    running: list[subprocess.Popen[str]] = []

    def start(role: str, argument: object, *, before: tuple[str, ...] = ()) -> subprocess.Popen[str]:
        command = [*before, sys.executable, "-m", "tests.faults.people", role, str(argument)]
        process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=REPOSITORY
        )
        running.append(process)
        return process

    try:
        yield start
    finally:
        for process in running:
            process.kill()
            process.wait()
            for pipe in (process.stdin, process.stdout):
                if pipe is not None:
                    pipe.close()


def said(process: subprocess.Popen[str], timeout_s: float = 30) -> str:
    """The next line the process prints; fails the test if none comes."""
    assert process.stdout is not None
    timer = subprocess.Popen(["sh", "-c", f"sleep {timeout_s}; kill -9 {process.pid}"])
    try:
        return process.stdout.readline().strip()
    finally:
        timer.kill()
        timer.wait()


def pool() -> PoolStatus:
    return flyball.Governor().status().pools[0]


def cap_of(cap: int) -> flyball.Governor:
    gov = flyball.Governor()
    gov.set_pool("anthropic", cap=cap, adaptive=False)
    return gov
