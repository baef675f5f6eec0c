"""``ccusage``, where it is installed: it knows the prices, and reads what claude wrote down.

Its blocks begin where it thinks best, not where a window of ours begins, so a block is a piece of spending
between its first and its last entry. Nothing it says is taken on trust: a figure that cannot be a cost makes
the whole answer unusable, and the next source is asked.
"""

from __future__ import annotations

import math
import os
import shutil
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import msgspec

from flyball.core.budget.usage_windows import Spend, UsageItem
from flyball.core.durations import moment_s, number
from flyball.factory.budget.port import CONFIG_DIR, KEPT_S, UsageUnknown
from flyball.host.child_process import start_apart

TIMEOUT_S = 15.0
_LARGEST_BYTES = 64 << 20
_MOST_USD = 100_000.0


class Ccusage:
    name = "ccusage"

    def __init__(self, folder: Path, *, timeout_s: float = TIMEOUT_S) -> None:
        self._folder, self._timeout_s = folder, timeout_s

    def look(self, now: float) -> Spend:
        program = shutil.which("ccusage")
        if program is None:
            raise UsageUnknown("ccusage is not installed")
        since = time.strftime("%Y%m%d", time.gmtime(now - KEPT_S))
        said = self._said([program, "blocks", "--json", "--offline", "--since", since])
        return Spend(self.name, [piece for block in _blocks(said) if (piece := _piece(block, now))])

    def _said(self, argv: list[str]) -> bytes:
        environ = {**os.environ, CONFIG_DIR: str(self._folder)}
        pipe, nothing = subprocess.PIPE, subprocess.DEVNULL
        try:
            # A session of its own: it starts others, and they must end with it.
            with start_apart(argv, env=environ, stdin=nothing, stdout=pipe, stderr=nothing) as program:
                try:
                    said, _ = program.communicate(timeout=self._timeout_s)
                except subprocess.TimeoutExpired:
                    os.killpg(program.pid, signal.SIGKILL)
                    raise UsageUnknown(f"ccusage took longer than {self._timeout_s:g} s") from None
        except OSError as error:
            raise UsageUnknown(f"ccusage cannot be started ({error.strerror})") from error
        if program.returncode != 0:
            raise UsageUnknown(f"ccusage exited with status {program.returncode}")
        if len(said) > _LARGEST_BYTES:
            raise UsageUnknown("ccusage said more than can be meant")
        return said


def _blocks(said: bytes) -> list[dict[str, Any]]:
    try:
        found = msgspec.json.decode(said)
    except msgspec.DecodeError as error:
        raise UsageUnknown("ccusage printed no JSON") from error
    blocks = found.get("blocks") if isinstance(found, dict) else None
    if not isinstance(blocks, list) or not all(isinstance(block, dict) for block in blocks):
        raise UsageUnknown("ccusage printed no blocks")
    return blocks


def _piece(block: dict[str, Any], now: float) -> UsageItem | None:
    if block.get("isGap"):
        return None
    cost = number(block.get("costUSD"))
    start = moment_s(str(block.get("startTime")))
    end = moment_s(str(block.get("actualEndTime") or block.get("endTime")))
    if cost is None or not math.isfinite(cost) or not 0 <= cost <= _MOST_USD:
        raise UsageUnknown(f"ccusage told a cost that cannot be one: {block.get('costUSD')!r}")
    if start is None or end is None or start > now + 3600:
        raise UsageUnknown("ccusage told a block without its times")
    return UsageItem(start, max(start, min(end, now)), cost)
