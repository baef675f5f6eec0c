"""The project's ``.flyball``, and in it a folder per launch: ``runs/<task>/<number>`` with prompt, streams,
status, progress and summary."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path
from typing import Any

STATE = ".flyball"
"""The folder in a project with its ledger and its run folders."""
PROMPT, SUMMARY = "prompt.md", "summary.json"


def state_folder(root: Path) -> Path:
    """``.flyball`` in the project: private, and invisible to git."""
    state = root / STATE
    state.mkdir(mode=0o700, exist_ok=True)
    ignore = state / ".gitignore"
    if not ignore.exists():
        ignore.write_text("*\n", encoding="utf-8")
    return state


def new_folder(state: Path, task_id: str) -> Path:
    """The next free one of a task."""
    parent = state / "runs" / task_id
    parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    number = max((int(each.name) for each in parent.iterdir() if each.name.isdigit()), default=0) + 1
    while True:
        folder = parent / str(number)
        with contextlib.suppress(FileExistsError):
            folder.mkdir(mode=0o700)
            return folder
        number += 1


def last_folder(state: Path, task_id: str) -> Path | None:
    parent = state / "runs" / task_id
    if not parent.is_dir():
        return None
    numbers = [int(each.name) for each in parent.iterdir() if each.name.isdigit()]
    return parent / str(max(numbers)) if numbers else None


def write_summary(folder: Path, **fields: Any) -> None:
    """For people and scripts; the ledger has it too, so a full disk loses nothing."""
    with contextlib.suppress(OSError):
        text = json.dumps(fields, indent=2, ensure_ascii=False)
        (folder / SUMMARY).write_text(text + "\n", encoding="utf-8")
