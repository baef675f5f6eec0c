"""Real processes that really die, started cheaply: one process imports everything, then forks.

Run as ``python -m tests.faults.nursery SCENARIO STRIDE``; prints one JSON object. A scenario forks children
that die by SIGKILL at a chosen step and then looks at what they left behind.

A step is a call of a Python function of flyball: ``die_at(n)`` kills the process at the n-th, so every place
between two calls is tried, with no hook in the product.
"""

from __future__ import annotations

import ctypes
import json
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import flyball
from flyball.cli.main import main as flyball_main
from flyball.governor.governor import Governor

_OURS = str(Path(flyball.__file__).parent)
POOL = "anthropic"


def die_at(step: int) -> Callable[[], int]:
    """Kill this process at the given call into flyball; 0 never kills. Returns the counter."""
    seen = 0

    def on_call(frame: FrameType, event: str, _arg: object) -> None:
        nonlocal seen
        if event == "call" and frame.f_code.co_filename.startswith(_OURS):
            seen += 1
            if seen == step:
                os.kill(os.getpid(), signal.SIGKILL)

    sys.setprofile(on_call)
    return lambda: seen


def forked(work: Callable[[], None]) -> int:
    """Run ``work`` in a child; its pid."""
    pid = os.fork()
    if pid == 0:
        try:
            work()
        finally:
            os._exit(0)
    return pid


def counted_steps(work: Callable[[], None]) -> int:
    """How many steps ``work`` takes, measured in a child."""
    reader, writer = os.pipe()

    def measure() -> None:
        count = die_at(0)
        work()
        sys.setprofile(None)
        os.write(writer, str(count()).encode())

    os.waitpid(forked(measure), 0)
    os.close(writer)
    with open(reader) as file:
        return int(file.read())


def every_step(work: Callable[[], None], check: Callable[[int], list[str]], stride: int) -> dict[str, Any]:
    """Kill ``work`` at each step in turn; gather what ``check`` complains about."""
    total, wrong, deaths = counted_steps(work), [], 0

    def doomed(step: int) -> Callable[[], None]:
        def run() -> None:
            die_at(step)
            work()

        return run

    for step in range(1, total + 1, stride):
        pid = forked(doomed(step))
        _, status = os.waitpid(pid, 0)
        deaths += os.WIFSIGNALED(status)
        wrong += [f"step {step}: {words}" for words in check(pid)]
    return {"steps": total, "deaths": deaths, "wrong": wrong}


def all_slots_free(gov: Governor, cap: int) -> list[str]:
    """Every slot can be had at once, and the counts tell the truth."""
    wrong = []
    held = []
    for number in range(cap):
        try:
            held.append(gov.acquire_nowait(POOL, name=f"check-{number}"))
        except flyball.RefusedError as refused:
            wrong.append(f"slot {number} is lost: {refused}")
            break
    pool = next(p for p in gov.status().pools if p.name == POOL)
    counted = sum(lease.slots for lease in pool.leases)
    if pool.in_use != counted:
        wrong.append(f"in_use says {pool.in_use}, the leases say {counted}")
    for lease in held:
        lease.release()
    return wrong


def acquire_release(stride: int) -> dict[str, Any]:
    gov = Governor()
    gov.set_pool(POOL, cap=2, adaptive=False)

    def work() -> None:
        Governor().acquire(POOL, name="doomed").release()

    return every_step(work, lambda _pid: all_slots_free(gov, 2), stride)


def handing_over(stride: int) -> dict[str, Any]:
    """The killed process holds the only slot and releases it to a waiter, which must get it either way."""
    gov = Governor()
    gov.set_pool(POOL, cap=1, adaptive=False)
    got = threading.Semaphore(0)

    def wait_for_slot() -> None:
        with Governor().slot(POOL, name="waiter", timeout=30):
            got.release()

    def work() -> None:
        mine = Governor()
        lease = mine.acquire(POOL, name="doomed")
        while not any(pool.waiting for pool in mine.status().pools):
            time.sleep(0.001)
        lease.release()

    def check(_pid: int) -> list[str]:
        # The waiter of this round may have been first; what counts is that it is served.
        served = got.acquire(timeout=20)
        return [] if served else ["the waiter was never served"]

    total, wrong, deaths = 0, [], 0
    step = 1
    while True:
        waiter = threading.Thread(target=_after_held, args=(gov, wait_for_slot))
        finished = _run_doomed(work, step, waiter)
        waiter.join(timeout=60)
        wrong += [f"step {step}: {words}" for words in check(0)]
        total, deaths = step, deaths + (not finished)
        if finished:
            break
        step += stride
    return {"steps": total, "deaths": deaths, "wrong": wrong + all_slots_free(gov, 1)}


def _run_doomed(work: Callable[[], None], step: int, waiter: threading.Thread) -> bool:
    """Fork before the waiter's thread starts; True if the child outlived all its steps."""

    def run() -> None:
        die_at(step)
        work()
        sys.setprofile(None)

    pid = forked(run)
    waiter.start()
    _, status = os.waitpid(pid, 0)
    return not os.WIFSIGNALED(status)


def _after_held(gov: Governor, then: Callable[[], None]) -> None:
    """Wait a moment for the doomed one to be first; it may die before it ever asks."""
    end = time.monotonic() + 0.03
    while time.monotonic() < end and not any(pool.in_use for pool in gov.status().pools):
        time.sleep(0.001)
    then()


def exec_steps(stride: int) -> dict[str, Any]:
    """Kill ``flyball exec`` at every step: its command never runs without a live lease of its own."""
    adopt_orphans()
    gov = Governor()
    gov.set_pool(POOL, cap=1, adaptive=False)
    marker = Path(os.environ["FLYBALL_HOME"]) / "marker"
    command = ["sh", "-c", f"echo $$ > {marker}.new && mv {marker}.new {marker} && exec sleep 60"]

    def doomed(step: int) -> None:
        die_at(step)
        flyball_main(["exec", "--quiet", "--", *command])

    def check() -> list[str]:
        wrong: list[str] = []
        if _command_started(marker):
            pid = int(marker.read_text())
            leases = [lease for pool in gov.status().pools for lease in pool.leases]
            if not any(lease.pid == pid and lease.alive for lease in leases):
                wrong.append(f"command {pid} runs without a lease; leases: {leases}")
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
            marker.unlink()
        return wrong + all_slots_free(gov, 1)

    # The command sleeps for a minute, so the steps are counted with one that ends at once.
    total = counted_steps(lambda: ignore(flyball_main(["exec", "--quiet", "--", "true"])))
    wrong, commands = [], 0
    for step in range(1, total, stride):
        wrapper = forked(lambda step=step: doomed(step))  # type: ignore[misc]
        while not marker.exists() and os.waitpid(wrapper, os.WNOHANG)[0] == 0:
            time.sleep(0.001)
        if marker.exists():
            # Past its last deadly step the wrapper sits with its command: kill it there.
            commands += 1
            _end(wrapper)
        wrong += [f"step {step}: {words}" for words in check()]
    return {"steps": total, "deaths": len(range(1, total, stride)), "commands": commands, "wrong": wrong}


def adopt_orphans() -> None:
    """Children of a killed wrapper become ours, so that we can tell when they are gone."""
    set_child_subreaper = 36
    ctypes.CDLL(None, use_errno=True).prctl(set_child_subreaper, 1, 0, 0, 0)


def _command_started(marker: Path) -> bool:
    """True once the command says so, False once no child is left that could."""
    while not marker.exists():
        try:
            os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return marker.exists()
        time.sleep(0.001)
    return True


def _end(pid: int) -> None:
    try:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
    except (ProcessLookupError, ChildProcessError):
        pass


def ignore(_result: object) -> None:
    return None


SCENARIOS = {"acquire": acquire_release, "handover": handing_over, "exec": exec_steps}

if __name__ == "__main__":
    print(json.dumps(SCENARIOS[sys.argv[1]](int(sys.argv[2]))))
