"""``python -m tests.redteam.trial none|bwrap``: every hostile agent once, in one mode, as this user.

Prints for each what it did and how that was told, or what stopped it, as JSON.
"""

from __future__ import annotations

import importlib
import json
import os
import pkgutil
import re
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from enum import Enum
from pathlib import Path

from tests.redteam import programs
from tests.redteam.hostile import PROGRAMS, Hostile
from tests.redteam.target import Target


class Stop(Enum):
    """What a program ran into."""

    SANDBOX = "the sandbox"
    FENCE = "the fence"
    RIGHTS = "the system"
    GOVERNOR = "the governor"
    SERVICE = "the service"
    PROTECTED = "protected paths"
    GATE = "the gate"
    PERSON = "a person is asked"
    FLYBALL = "flyball leaves it alone"
    NOTHING = "nothing came of it"


DONE = "DONE"
BROKEN = "broken"
NOT_TRIED = "not tried here"


@dataclass(frozen=True, slots=True)
class Trial:
    outcome: str
    """DONE, or what stopped it."""
    how: str
    """The evidence, or the words it was stopped with."""


_KINDS = {"protected": Stop.PROTECTED, "gate-failed": Stop.GATE, "no-changes": Stop.NOTHING}
_GOVERNOR = re.compile(r"flyball: refused: .* in use")
_FENCE = re.compile(r"flyball: refused: |flyball-refuses")
_SERVICE = "HTTP 403"


def load() -> Mapping[str, Hostile]:
    """All programs, by their names."""
    for module in pkgutil.iter_modules(programs.__path__):
        importlib.import_module(f"{programs.__name__}.{module.name}")
    return PROGRAMS


def run_trial(place: Path, sandbox: str, table: Mapping[str, Hostile]) -> dict[str, Trial]:
    with Target(place, sandbox, table) as target:
        target.attack()
        target.go_on()
        return {name: _judge(target, each) for name, each in table.items()}


def _judge(target: Target, program: Hostile) -> Trial:
    if program.name in target.not_tried:
        return Trial(NOT_TRIED, "this machine has not what it needs")
    report = target.marks / f"{program.name}.report"
    told = json.loads(report.read_text()) if report.exists() else {"met": BROKEN, "where": target.said}
    if told["met"] == BROKEN:
        return Trial(BROKEN, told["where"])
    evidence = program.done(target, program.name)
    if evidence:
        return Trial(DONE, evidence)
    task = target.task_of(program.name)
    words = target.blocked.get(task, "")
    how = "; ".join(each for each in (told["met"], told["where"], words) if each)
    if task in target.waiting and not told["met"]:
        return Trial(Stop.PERSON.value, how)
    return Trial(_stop(target, told["met"], words).value, how)


def _stop(target: Target, met: str, words: str) -> Stop:
    if met:
        system = Stop.SANDBOX if target.sandbox == "bwrap" else Stop.RIGHTS
        if _GOVERNOR.search(met):
            return Stop.GOVERNOR
        if _SERVICE in met:
            return Stop.SERVICE
        return Stop.FENCE if _FENCE.search(met) else system
    kind = words.partition(":")[0]
    return _KINDS.get(kind, Stop.FLYBALL if words and not words.startswith("failed") else Stop.NOTHING)


def main(arguments: list[str]) -> None:
    table = load()
    chosen = {name: table[name] for name in arguments[1:]} or table
    place = Path(tempfile.mkdtemp(prefix="fb-redteam-", dir="/var/tmp"))
    try:
        ended = run_trial(place, arguments[0], chosen)
        print(json.dumps({name: asdict(trial) for name, trial in ended.items()}, indent=1))
    finally:
        if not os.environ.get("REDTEAM_KEEP"):
            # Some leave folders that may not be entered, or that lie too deep for Python to remove.
            subprocess.run(["chmod", "-R", "u+rwX", str(place)], stderr=subprocess.DEVNULL)
            subprocess.run(["rm", "-rf", str(place)], check=True)


if __name__ == "__main__":
    main(sys.argv[1:])
