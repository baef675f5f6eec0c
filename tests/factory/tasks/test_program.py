"""Asking another program: bounded, and never left half done."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from flyball.errors import SourceError
from flyball.factory.tasks.command import Program
from flyball.host.process import exists


def program(folder: Path, script: str, *, timeout_s: float = 60.0) -> Program:
    return Program(("sh", "-c", script, "sh"), folder, "install it", timeout_s=timeout_s)


def test_it_gets_arguments_and_stdin_and_gives_its_answer(tmp_path: Path) -> None:
    answer = program(tmp_path, 'cat; pwd; printf "%s|" "$@"; echo oh >&2; exit 3').run(
        "a b", "", stdin="wörter\n"
    )
    assert answer.out.decode() == f"wörter\n{tmp_path}\na b||"
    assert (answer.err, answer.code) == (b"oh\n", 3)


def test_much_output_and_no_utf8_are_kept_as_they_are(tmp_path: Path) -> None:
    out = program(tmp_path, "head -c 3000000 /dev/zero; printf '\\377'").run("x").out
    assert (len(out), out[-1:]) == (3_000_001, b"\xff")


@pytest.mark.parametrize(
    ("made", "words"),
    [
        (
            Program(("no-such-program",), Path("/"), "get it there"),
            "no-such-program was not found; get it there",
        ),
        (Program(("sh",), Path("/no/such/folder"), ""), "there is no folder /no/such/folder"),
        (Program(("/",), Path("/"), ""), "cannot be started"),
    ],
)
def test_what_cannot_be_started_is_said(made: Program, words: str) -> None:
    with pytest.raises(SourceError, match=words):
        made.run("x")


def test_an_argument_that_no_program_can_get_is_an_error(tmp_path: Path) -> None:
    for argument in ("a\0b", "x" * (1 << 22)):
        with pytest.raises(SourceError, match="cannot be started"):
            program(tmp_path, "true").run(argument)


def test_one_that_takes_too_long_is_ended_with_its_children(tmp_path: Path) -> None:
    slow = program(tmp_path, "sleep 300 & echo $! > child; wait", timeout_s=0.5)
    with pytest.raises(SourceError, match=r"sh x took longer than 0\.5 s"):
        slow.run("x")
    child = int((tmp_path / "child").read_text())
    deadline = time.monotonic() + 20
    while exists(child) and time.monotonic() < deadline:
        os.sched_yield()
    assert not exists(child)


def test_an_interrupt_lets_it_finish_what_it_writes(tmp_path: Path) -> None:
    """Ctrl-C reaches the whole group of a terminal; the program is in none of ours."""
    code = (
        "from pathlib import Path; from flyball.factory.tasks.command import Program;"
        "Program(('sh', '-c', 'touch began; sleep 1; touch written'), Path.cwd(), '').run()"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", code], cwd=tmp_path, start_new_session=True, stderr=subprocess.DEVNULL
    )
    while not (tmp_path / "began").exists():
        assert process.poll() is None, "it ended before it began"
        os.sched_yield()
    os.killpg(process.pid, signal.SIGINT)
    process.wait(30)
    assert (tmp_path / "written").exists()
