"""Many worker processes against one provider, with or without the governor between them.

A trial starts its provider and its workers, waits until all of them are ready, starts the clock
of both at the same moment, and then reads the workers' output. ``step`` moves it on by at most the
given time, so the caller can draw the screen in between; leaving the ``with`` block ends every process,
however it is left.

The governor's state lies in the folder the caller gives, or where the caller says; the workers learn of it
through ``FLYBALL_HOME`` or ``FLYBALL_URL``, as any program would.
"""

from __future__ import annotations

import json
import os
import selectors
import shutil
import subprocess
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import IO

from flyball.core.pool.settings import DEFAULT_POOL, PoolChanges
from flyball.errors import AgentError, StoreError
from flyball.governor import inherited_lease
from flyball.governor.governor import Governor
from flyball.sim.demo.score import Record, Sample, ScoreRow, Standing
from flyball.sim.demo.worker import Team, Workload
from flyball.sim.provider.capacity import Capacity
from flyball.sim.provider.server import USUAL, Manner, Provider
from flyball.wake.mailbox import mail_folder

START_LIMIT_S = 60.0
SAMPLE_EVERY_S = 0.25


@dataclass(frozen=True, slots=True, kw_only=True)
class Setup:
    """What both trials of a comparison have in common."""

    workload: Workload
    capacity: Capacity
    manner: Manner = USUAL
    pool: str = DEFAULT_POOL
    settings: PoolChanges = field(default_factory=lambda: PoolChanges(profile="calls"))
    limit_s: float = 120.0
    """A trial that is not done by then is stopped, and says so."""


@dataclass(slots=True)
class Worker:
    """One process and what it last said."""

    team: Team
    process: subprocess.Popen[bytes]
    unread: bytes = b""
    ready: bool = False
    running: bool = False
    ended: bool = False


class TrialRun:
    """Use as a context manager, and call ``step`` until it is ``over``."""

    def __init__(self, setup: Setup, *, governed: bool, folder: Path, address: str | None = None) -> None:
        """``address``: where the governor's state is, if not in the folder."""
        self._address = address
        self.setup, self.governed = setup, governed
        self.record = Record([team.project for team in setup.workload.teams], setup.workload.calls_each)
        self.workers: list[Worker] = []
        self.story: list[str] = []
        """What the governor did, in words, once the trial is over."""
        self._calls = {
            team.project: iter(setup.workload.planned_calls(team.project)) for team in setup.workload.teams
        }
        self._home = folder / "home"
        self._errors_at = folder / "errors"
        self._provider = Provider(setup.capacity, setup.manner)
        self._governor: Governor | None = None
        self._selector = selectors.DefaultSelector()
        self._began_at = 0.0
        self._next_sample_s = 0.0

    # -- its life -----------------------------------------------------------------------------------

    def __enter__(self) -> TrialRun:
        self._provider.__enter__()
        try:
            self._begin()
        except BaseException:
            self.__exit__()
            raise
        return self

    def _begin(self) -> None:
        if self.governed:
            if self._address is None:
                self._home.mkdir(mode=0o700, parents=True)
            self._governor = Governor(self._address or f"sqlite://{self._home / 'governor.db'}")
            self._governor.set_pool(self.setup.pool, **self.setup.settings)
        with self._errors_at.open("ab") as errors:
            for team in self.setup.workload.teams:
                for number in range(team.workers):
                    self._spawn(team, number, errors)
        deadline = time.monotonic() + START_LIMIT_S
        while not all(worker.ready for worker in self.workers):
            if time.monotonic() > deadline:
                raise AgentError(f"the workers were not ready within {START_LIMIT_S:g} s")
            self._read_workers(0.1)
        self._provider.open()
        self._began_at = time.monotonic()
        for worker in self.workers:
            self._send_next_call(worker)

    def _spawn(self, team: Team, number: int, errors: IO[bytes]) -> None:
        told = {
            "url": self._provider.url,
            "project": team.project,
            "name": f"worker-{number}",
            "pool": self.setup.pool if self.governed else None,
            "seed": str(self.setup.workload.seed),
        }
        process = subprocess.Popen(
            [sys.executable, "-P", "-m", "flyball.sim.demo.worker", json.dumps(told)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            bufsize=0,
            env=self._environment(),
            # Ctrl-C at the terminal is meant for this process; the workers end when we end them.
            process_group=0,
        )
        worker = Worker(team, process)
        self.workers.append(worker)
        if process.stdout is not None:
            self._selector.register(process.stdout, selectors.EVENT_READ, worker)

    def _environment(self) -> Mapping[str, str]:
        ours = {"FLYBALL_URL", inherited_lease.VARIABLE}
        kept = {name: value for name, value in os.environ.items() if name not in ours}
        if self._address is not None:
            return {**kept, "FLYBALL_URL": self._address}
        return {**kept, "FLYBALL_HOME": str(self._home)}

    def __exit__(self, *_: object) -> None:
        for worker in self.workers:
            if worker.process.poll() is None:
                worker.process.kill()
        for worker in self.workers:
            worker.process.wait()
            for pipe in (worker.process.stdin, worker.process.stdout):
                if pipe is not None:
                    pipe.close()
        self._selector.close()
        self._provider.__exit__()
        if self._governor is not None and self._address is not None:
            with suppress(StoreError):
                self._governor.reap()
        if self._governor is not None:
            self._governor.close()
        if self._governor is not None and self._address is None:
            # Where the folder's path is too long for a socket, mail lies somewhere else.
            shutil.rmtree(mail_folder(self._home), ignore_errors=True)

    # -- moving on ----------------------------------------------------------------------------------

    @property
    def t_s(self) -> float:
        return time.monotonic() - self._began_at

    @property
    def over(self) -> bool:
        return self.record.stopped or all(worker.ended for worker in self.workers)

    def step(self, timeout_s: float) -> None:
        """Read the workers' words for at most this long, and take a sample when it is time."""
        self._read_workers(timeout_s)
        if self.t_s >= self._next_sample_s and not self.over:
            self._next_sample_s = self.t_s + SAMPLE_EVERY_S
            self.record.samples.append(self._sample())
        if self.over or self.t_s > self.setup.limit_s:
            self.record.close(self.t_s, self._provider.tally(), stopped=not self.over)
            if self._governor is not None:
                kinds = ("cut", "undo", "probe", "open", "trial", "close", "closed")
                facts = reversed(self._governor.facts(1000))
                self.story = [fact.words for fact in facts if fact.kind in kinds]

    def _read_workers(self, timeout_s: float) -> None:
        for key, _ in self._selector.select(timeout_s):
            worker: Worker = key.data
            read = os.read(key.fd, 4096)
            if not read:
                self._selector.unregister(key.fileobj)
                if worker.process.wait() != 0 or not worker.ended:
                    last = self._errors_at.read_text(errors="replace").strip().rpartition("\n")[2]
                    raise AgentError(f"a worker of {worker.team.project} died: {last or 'it gave no reason'}")
            *lines, worker.unread = (worker.unread + read).split(b"\n")
            for line in lines:
                self._handle_word(worker, line.decode())

    def _handle_word(self, worker: Worker, word: str) -> None:
        project = worker.team.project
        worker.running = word == "run"
        if word == "ready":
            worker.ready = True
        elif word == "done":
            self.record.add_done(project, self.t_s)
            self._send_next_call(worker)
        elif word == "429":
            self.record.add_throttle(project)

    def _send_next_call(self, worker: Worker) -> None:
        """Give a worker the next call of its project; when there is none, its work is done."""
        call = next(self._calls[worker.team.project], None)
        worker.ended = call is None
        stdin = worker.process.stdin
        if stdin is not None:
            with suppress(BrokenPipeError):  # it died, and the end of its output says so next
                stdin.write(json.dumps(asdict(call) if call is not None else None).encode() + b"\n")

    def _sample(self) -> Sample:
        tally = self._provider.tally()
        cap = in_use = None
        state = ""
        if self._governor is not None:
            pool = next(pool for pool in self._governor.status().pools if pool.name == self.setup.pool)
            cap, in_use = pool.cap, pool.in_use
            if pool.breaker != "closed":
                state = f"breaker {pool.breaker}"
            elif pool.closed_for_s is not None:
                state = "retry-after"
            elif pool.settling:
                state = f"settling after a {pool.settling}"
        return Sample(self.t_s, self._provider.capacity_now, tally.inside, tally.open, cap, in_use, state)

    def standing(self) -> Standing:
        """Everything a screen shows of this moment."""
        rows = []
        for team in self.setup.workload.teams:
            mine = [worker for worker in self.workers if worker.team is team]
            rows.append(
                ScoreRow(
                    team.project,
                    processes=len(mine),
                    running=sum(worker.running for worker in mine),
                    waiting=sum(not worker.running and not worker.ended for worker in mine),
                    throttles=self.record.throttles.get(team.project, 0),
                    done=self.record.count(team.project),
                    calls=self.record.calls_each,
                )
            )
        return Standing(self.governed, self.t_s, tuple(rows), tuple(self.record.samples))
