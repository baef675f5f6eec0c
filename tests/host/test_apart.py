"""Programs that a Ctrl-C at our terminal does not reach, whenever it comes."""

from __future__ import annotations

import subprocess
import sys

import pytest

from flyball.host.child_process import run_apart

STORM = """
import os, signal, subprocess, sys
from flyball.host.child_process import start_apart

signal.signal(signal.SIGINT, lambda *_: None)
nagging = subprocess.Popen(
    ["sh", "-c", "trap '' INT; while kill -INT -$1 2>/dev/null; do :; done", "sh", str(os.getpgrp())],
    start_new_session=True,
)
try:
    ends = {start_apart(["true"]).wait() for _ in range(300)}
finally:
    nagging.kill()
print(ends)
"""


def test_a_ctrl_c_at_the_very_start_ends_nothing() -> None:
    argv = [sys.executable, "-c", STORM]
    said = subprocess.run(argv, stdout=subprocess.PIPE, process_group=0, check=True)
    assert said.stdout == b"{0}\n"


def test_what_it_printed_and_how_it_ended() -> None:
    done = run_apart(["sh", "-c", "cat; echo no >&2; exit 3"], stdin=b"yes", timeout_s=60)
    assert (done.returncode, done.stdout, done.stderr) == (3, b"yes", b"no\n")


def test_what_takes_too_long_is_ended() -> None:
    with pytest.raises(subprocess.TimeoutExpired):
        run_apart(["sleep", "60"], timeout_s=0.1)
