"""bd in the tests: the real one where it is found, and recordings of two of its versions everywhere.

FLYBALL_BD=/path/to/bd     use this one (default: the one on PATH, or that of `make tools`)
FLYBALL_RECORD=1           write recordings/beads/<its version> anew while the real one is tested
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from dataclasses import asdict, dataclass
from pathlib import Path

import pytest

from flyball.factory.tasks.beads import BeadsSource
from flyball.testing.task_checks import MakeSource
from tests.tools import find_bd

TAPES = Path(__file__).parent / "recordings" / "beads"
TAPE = str(Path(__file__).parent / "tape.py")
VERSIONS = sorted(path.name for path in TAPES.iterdir())


def playing(tape: Path, cursor: Path) -> list[str]:
    return [sys.executable, "-IS", TAPE, "play", str(tape), str(cursor)]


@dataclass(frozen=True, slots=True)
class Call:
    """What a made-up program answers; ``argv`` None: to whatever it is asked."""

    out: str = ""
    err: str = ""
    code: int = 0
    argv: list[str] | None = None
    stdin: str = ""


def scripted(folder: Path, *calls: Call) -> list[str]:
    """A program that gives these answers, one after the other."""
    tape, cursor = folder / "tape.jsonl", folder / "cursor"
    tape.write_text("".join(json.dumps(asdict(call)) + "\n" for call in calls), "utf-8")
    cursor.unlink(missing_ok=True)
    return playing(tape, cursor)


def recorded(version: str, scene: str, folder: Path) -> MakeSource:
    """Sources that talk to a recording."""
    tape = TAPES / version / f"{scene}.jsonl"
    return lambda root: BeadsSource(root, command=playing(tape, folder / "cursor"))


def live(scene: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> MakeSource:
    """Sources that talk to the real bd, in a home of their own and without its daemon."""
    bd = find_bd()
    if bd is None:
        pytest.skip("bd is not installed; its recordings are tested all the same")
    monkeypatch.setenv("HOME", str(folder))
    monkeypatch.setenv("BEADS_NO_DAEMON", "1")
    command = [bd]
    if os.environ.get("FLYBALL_RECORD"):
        tape = TAPES / _version(bd) / f"{scene}.jsonl"
        tape.parent.mkdir(exist_ok=True)
        tape.unlink(missing_ok=True)
        command = [sys.executable, TAPE, "record", str(tape), bd]

    def make(root: Path) -> BeadsSource:
        settings = ["-c", "user.name=n", "-c", "user.email=n@example.org"]
        subprocess.run(["git", *settings, "init", "--quiet"], cwd=root, check=True)
        subprocess.run(
            [bd, "init", "--quiet", "--prefix=bd", "--skip-hooks"], cwd=root, check=True, capture_output=True
        )
        return BeadsSource(root, command=command)

    return make


def _version(bd: str) -> str:
    said = subprocess.run([bd, "version"], capture_output=True, text=True, check=True).stdout
    found = re.search(r"\d+\.\d+\.\d+", said)
    assert found is not None, said
    return found[0]
