"""Running verbs in this process, and a state with something in it."""

from __future__ import annotations

import json
import sqlite3
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from flyball.cli.main import main
from flyball.core.pool.model import Ask
from flyball.governor.governor import Governor
from flyball.governor.internals import internals
from flyball.host.process import identify


@dataclass(frozen=True, slots=True)
class Result:
    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


class Cli:
    """``cli("status", "--json")``: what the command line would have printed and returned."""

    def __init__(self, capsys: pytest.CaptureFixture[str], home: Path) -> None:
        self._capsys = capsys
        self.home = home

    @property
    def database(self) -> Path:
        return self.home / "governor.db"

    def __call__(self, *words: str) -> Result:
        self._capsys.readouterr()
        try:
            code = main(list(words))
        except SystemExit as stop:  # argparse's own errors and --help
            code = int(stop.code or 0)
        captured = self._capsys.readouterr()
        return Result(code, captured.out, captured.err)


def edit(cli: Cli, statement: str) -> None:
    """Change the state without any command or governor."""
    connection = sqlite3.connect(cli.database)
    connection.execute(statement)
    connection.commit()
    connection.close()


class People:
    """Real processes that hold and wait; all of them are gone when the test ends."""

    def __init__(self, governor: Governor) -> None:
        self.governor = governor
        self._processes: dict[int, subprocess.Popen[bytes]] = {}

    def start(self) -> int:
        process = subprocess.Popen(["sleep", "600"])
        self._processes[process.pid] = process
        return process.pid

    def holds(self, pool: str, project: str, name: str, *, model: str = "", slots: int = 1) -> int:
        pid = self.start()
        self.governor.hold(pid, pool, project=project, name=name, model=model, slots=slots)
        return pid

    def waits(self, pool: str, project: str, name: str, *, slots: int = 1, priority: int = 0) -> int:
        """An ask parked in line for a process that does nothing but live."""
        pid = self.start()
        ask = Ask(pool=pool, project=project, name=name, holder=identify(pid), slots=slots, priority=priority)
        verdict, _ = internals(self.governor).store.admit(ask, park=True)
        assert not verdict.granted, verdict.words()
        return pid

    def is_refused(self, pool: str, project: str, name: str) -> None:
        ask = Ask(pool=pool, project=project, name=name, holder=identify(self.start()))
        verdict, _ = internals(self.governor).store.admit(ask, park=False)
        assert not verdict.granted, verdict.words()

    def dies(self, pid: int) -> None:
        process = self._processes.pop(pid)
        process.kill()
        process.wait()

    def all_die(self) -> None:
        for pid in list(self._processes):
            self.dies(pid)
