"""Sixteen processes acquire and release while a killer shoots at them at random.

The witness is outside the governor: as many lock files as there are slots. A worker with a slot must
find one of them unlocked; the kernel unlocks those of the killed. If none is free, the cap was exceeded.

Run as ``python -m tests.faults.storm SECONDS CAP WITNESSES``; prints one JSON object.
"""

from __future__ import annotations

import fcntl
import json
import os
import random
import signal
import sys
import time
from pathlib import Path
from typing import Any

import flyball
from flyball.governor.governor import Governor

WORKERS = 16
POOL = "storm"


class Witness:
    """One lock file per slot, and a gate: while one looks for a free file, no other may take one."""

    def __init__(self, folder: Path, slots: int) -> None:
        self._gate = os.open(folder / "witness-gate", os.O_RDWR | os.O_CREAT, 0o600)
        self._files = [os.open(folder / f"witness-{n}", os.O_RDWR | os.O_CREAT, 0o600) for n in range(slots)]
        self._mine = -1

    def enter(self) -> bool:
        fcntl.lockf(self._gate, fcntl.LOCK_EX)
        try:
            return self._take()
        finally:
            fcntl.lockf(self._gate, fcntl.LOCK_UN)

    def _take(self) -> bool:
        for fd in self._files:
            try:
                fcntl.lockf(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                continue
            self._mine = fd
            return True
        return False

    def leave(self) -> None:
        if self._mine >= 0:
            fcntl.lockf(self._mine, fcntl.LOCK_UN)
            self._mine = -1


def worker(folder: Path, number: int, witnesses: int, cycles: int) -> None:
    chance = random.Random(f"{number}-{os.getpid()}")
    witness, gov = Witness(folder, witnesses), Governor()
    for _ in range(cycles):
        try:
            lease = _ask(gov, chance, number)
        except flyball.RefusedError:
            continue
        if not witness.enter():
            (folder / f"violation-{os.getpid()}").write_text(str(gov.status().pools))
        time.sleep(chance.random() * 0.01)
        witness.leave()
        lease.release()


def _ask(gov: Governor, chance: random.Random, number: int) -> flyball.Lease:
    project = f"project {number % 3}"
    if chance.random() < 0.2:
        return gov.acquire_nowait(POOL, project=project)
    timeout = 0.02 if chance.random() < 0.1 else 60
    return gov.acquire(POOL, project=project, priority=chance.choice([0, 0, 1]), timeout=timeout)


def start(folder: Path, number: int, witnesses: int, cycles: int = 1_000_000) -> int:
    pid = os.fork()
    if pid == 0:
        try:
            worker(folder, number, witnesses, cycles)
        except BaseException as error:
            (folder / f"crash-{os.getpid()}").write_text(repr(error))
        finally:
            os._exit(0)
    return pid


def storm(seconds: float, cap: int, witnesses: int) -> dict[str, Any]:
    folder = Path(os.environ["FLYBALL_HOME"])
    gov = Governor()
    gov.set_pool(POOL, cap=cap, adaptive=False)
    chance = random.Random(1)
    pids = [start(folder, number, witnesses) for number in range(WORKERS)]
    kills, end = 0, time.monotonic() + seconds
    while time.monotonic() < end:
        time.sleep(chance.random() * 0.06)
        victim = chance.randrange(WORKERS)
        os.kill(pids[victim], signal.SIGKILL)
        os.waitpid(pids[victim], 0)
        kills += 1
        pids[victim] = start(folder, victim, witnesses)
    served = _claims_so_far(gov)
    _end_all(pids)
    after_storm = gov.status().pools[0]
    finished = _finish_fresh_workers(folder, witnesses)
    free = 0
    while free < cap:
        gov.acquire_nowait(POOL, name=f"after-{free}")
        free += 1
    left = gov.status().pools[0]
    return {
        "kills": kills,
        "asks": served,
        "left_by_the_dead": len(after_storm.leases) + after_storm.waiting,
        "violations": len(list(folder.glob("violation-*"))),
        "crashes": [path.read_text() for path in folder.glob("crash-*")],
        "finished": finished,
        "slots_free_again": free,
        "waiting_left": left.waiting,
        "count_is_true": left.in_use == sum(lease.slots for lease in left.leases) == cap,
    }


def _claims_so_far(gov: Governor) -> int:
    lease = gov.acquire(POOL, priority=1000, timeout=60)
    lease.release()
    return lease.id


def _end_all(pids: list[int]) -> None:
    for pid in pids:
        os.kill(pid, signal.SIGKILL)
    for pid in pids:
        os.waitpid(pid, 0)


def _finish_fresh_workers(folder: Path, witnesses: int) -> int:
    """After the storm: fresh workers, among the asks and leases of the dead, finish their cycles."""
    pids = [start(folder, number, witnesses, cycles=20) for number in range(WORKERS)]
    end, finished = time.monotonic() + 60, 0
    while pids and time.monotonic() < end:
        for pid in list(pids):
            if os.waitpid(pid, os.WNOHANG)[0]:
                pids.remove(pid)
                finished += 1
        time.sleep(0.01)
    _end_all(pids)
    return finished


if __name__ == "__main__":
    print(json.dumps(storm(float(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))))
