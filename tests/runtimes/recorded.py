"""The recorded runs of real command lines, with the endings that are right for them.

They were made against a fake provider; a label is what the provider did. Where nothing in the output shows
it, *unknown* is right as well.
"""

from __future__ import annotations

import json
from functools import lru_cache
from pathlib import Path

from flyball.core.signals import End
from flyball.testing import Recording

FOLDER = Path(__file__).parent / "recordings"
_ENDS = {
    "success": End.FINISHED,
    "limited": End.LIMITED,
    "other_failure": End.FAILED,
    "killed_from_outside": End.KILLED,
}
INDISTINGUISHABLE = frozenset({"gemini/midstream_cut"})
"""Labelled as visible, yet it prints what gemini/midstream_overloaded prints, byte for byte but for ids and
times, and that one is labelled as hidden. Both cannot be told."""


@lru_cache(maxsize=1)
def recordings() -> tuple[tuple[str, Recording], ...]:
    """Every recording beside the name of its runtime."""
    lines = (FOLDER / "index.jsonl").read_text().splitlines()
    return tuple(_recording(json.loads(line)) for line in lines)


def recording(name: str) -> Recording:
    """``claude/err_429``."""
    return next(found for _, found in recordings() if found.name == name)


def of(runtime: str) -> list[Recording]:
    return [found for name, found in recordings() if name == runtime]


def _recording(row: dict[str, object]) -> tuple[str, Recording]:
    name = f"{row['cli']}/{row['recording']}"
    right = {_ENDS[str(row["verdict"])]}
    if not row["cause_visible_in_output"]:
        right.add(End.UNKNOWN)
    code = row["exit_code"]
    assert isinstance(code, int)
    found = Recording(
        name=name,
        stdout=(FOLDER / str(row["stdout"])).read_bytes(),
        stderr=(FOLDER / f"{name}.stderr.txt").read_bytes(),
        exit_code=code,
        right=frozenset(right),
    )
    return str(row["cli"]).partition("-")[0], found
