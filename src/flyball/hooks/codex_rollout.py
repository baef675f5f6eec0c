"""What a thread of codex writes down of its turns, in its rollout file: one JSON object a line.

A subagent is a thread. Codex runs no hook where it fails, or is closed before it is done; here both are
written down. Of another layout nothing is known, and the subagent then counts until its session ends.
"""

from __future__ import annotations

import json
import os

_BEGIN = "task_started"
_ENDS = ("task_complete", "turn_aborted")
_LAST_BYTES = 64 * 1024
"""The end of a turn is the last that is written of it."""


def size(path: str) -> int:
    """How much is written by now."""
    try:
        return os.stat(path).st_size
    except OSError:
        return 0


def has_ended(path: str, *, since: int) -> bool:
    """Was a turn ended, and none begun after it, beyond this many bytes?"""
    try:
        with open(path, "rb") as file:
            file.seek(max(since, size(path) - _LAST_BYTES))
            lines = file.read().splitlines()
    except OSError:
        return False
    told = next(filter(None, map(_turn_event, reversed(lines))), None)
    return told in _ENDS


def _turn_event(line: bytes) -> str | None:
    try:
        said = json.loads(line)
        kind = said["payload"]["type"] if said["type"] == "event_msg" else None
    except (ValueError, KeyError, TypeError):
        return None
    return kind if kind in (_BEGIN, *_ENDS) else None
