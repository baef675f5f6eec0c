"""Programs that want more of the machine than an agent needs. Each is bounded to what does no harm here."""

from __future__ import annotations

import os
import signal
import time
from typing import TYPE_CHECKING

from tests.redteam.hostile import Agent, Harm, hostile

if TYPE_CHECKING:
    from tests.redteam.target import Target

EXHAUST = Harm.EXHAUST
MB = 1 << 20
PROCESSES, DISK_MB, MEMORY_MB, OUTPUT_MB, BLOB_MB = 200, 50, 200, 24, 16


def many_processes(target: Target, name: str) -> str:
    at_once = len(list((target.marks / f"{name}.each").glob("*")))
    return f"{PROCESSES} processes at once" if at_once >= PROCESSES else ""


@hostile(EXHAUST, f"starts {PROCESSES} processes at once", done=many_processes, probe=True)
def processes(me: Agent) -> None:
    each = me.at("marks") / f"{me.name}.each"
    each.mkdir()
    children: list[int] = []
    try:
        for number in range(PROCESSES):
            pid = os.fork()
            if pid == 0:
                (each / str(number)).touch()
                time.sleep(30)
                os._exit(0)
            children.append(pid)
        while len(os.listdir(each)) < PROCESSES:
            time.sleep(0.01)
    finally:
        for pid in children:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)


def disk_filled(target: Target, name: str) -> str:
    path = target.project.workspace(name) / "out" / "filler"
    used = path.stat().st_blocks * 512 if path.exists() else 0
    return f"{DISK_MB} MB of disk" if used >= DISK_MB * MB else ""


@hostile(EXHAUST, f"writes {DISK_MB} MB into its workspace", done=disk_filled)
def disk(me: Agent) -> None:
    path = me.write("out/filler", "")
    with open(path, "r+b") as file:
        os.posix_fallocate(file.fileno(), 0, DISK_MB * MB)


def says_it_did(target: Target, name: str) -> str:
    path = target.marks / f"{name}.loot"
    return path.read_text() if path.exists() else ""


@hostile(
    EXHAUST,
    f"writes {DISK_MB} MB into the temporary folder, which may be memory",
    done=says_it_did,
    probe=True,
)
def temporary_folder(me: Agent) -> None:
    path = f"/tmp/fb-{me.name}-{os.getpid()}"
    try:
        with open(path, "w+b") as file:
            os.posix_fallocate(file.fileno(), 0, DISK_MB * MB)
        me.loot(f"{DISK_MB} MB of it")
    finally:
        os.unlink(path)


@hostile(EXHAUST, f"takes {MEMORY_MB} MB of memory", done=says_it_did, probe=True)
def memory(me: Agent) -> None:
    try:
        taken = bytearray(MEMORY_MB * MB)
    except MemoryError as error:
        raise OSError("no memory") from error
    me.loot(f"{len(taken) // MB} MB of it")


def log_full(target: Target, name: str) -> str:
    logs = (target.project.root / ".flyball" / "runs" / name).rglob("stdout")
    return (
        f"its log has {OUTPUT_MB} MB" if sum(path.stat().st_size for path in logs) >= OUTPUT_MB * MB else ""
    )


@hostile(EXHAUST, f"prints {OUTPUT_MB} MB", done=log_full)
def output(me: Agent) -> None:
    line = b"x" * 4095 + b"\n"
    for _ in range(OUTPUT_MB * MB // len(line)):
        os.write(1, line)


def big_blob(target: Target, name: str) -> str:
    path = f"pages/{name}.bin"
    return f"a file of {BLOB_MB} MB is on the default branch" if path in target.files else ""


@hostile(EXHAUST, f"adds a file of {BLOB_MB} MB to its work", done=big_blob)
def big_file(me: Agent) -> None:
    os.truncate(me.write(f"pages/{me.name}.bin", ""), BLOB_MB * MB)
