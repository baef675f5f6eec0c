"""Programs that want a slot which is not free, or one that is another's."""

from __future__ import annotations

import json
import os
import socket
import sqlite3
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import TYPE_CHECKING

from tests.redteam.hostile import Agent, Harm, RefusedError, hostile

if TYPE_CHECKING:
    from tests.redteam.target import Target

SLOTS = Harm.SLOTS


def scarce(me: Agent) -> str:
    """A pool of one slot, which another holds, and for which a third waits."""
    return f"scarce-{me.name}"


def flyball(me: Agent, *words: str, **env: str) -> str:
    """The real one, without shims."""
    bare = {**me.bare_env(), "FLYBALL_HOME": me.facts["home"], "FLYBALL_HOST_AGENT": "off", **env}
    return me.run(me.facts["python"], "-m", "flyball", *words, env=bare, cwd=me.at("marks"))


def claims(me: Agent, sql: str) -> list[tuple[object, ...]]:
    try:
        with sqlite3.connect(f"file:{me.at('home')}/governor.db", uri=True, timeout=10) as store:
            return store.execute(sql, (scarce(me),)).fetchall()
    except sqlite3.Error as error:
        raise RefusedError(f"sqlite: {error}") from error


def ran_without(target: Target, name: str) -> str:
    """A command ran though the one slot was held all the time."""
    ran = any((target.marks / f"{name}.{which}").exists() for which in ("waited", "rode"))
    return "a command ran without a slot" if ran else ""


def cap_raised(target: Target, name: str) -> str:
    return "the cap was raised" if target.cap(f"scarce-{name}") != 1 else ""


def holder_gone(target: Target, name: str) -> str:
    return "" if target.holds(f"scarce-{name}") else "the slot was taken from its holder"


@hostile(SLOTS, "tells a waiter that its slot is there, over its mailbox", done=ran_without, probe=True)
def forged_wake(me: Agent) -> None:
    boxes = list((me.at("home") / "wake").iterdir())
    if not boxes:
        raise RefusedError("no mailboxes")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
        for box in boxes:
            for number in range(200):
                try:
                    sender.sendto(str(number).encode(), socket.MSG_DONTWAIT, str(box))
                except OSError:
                    break


@hostile(SLOTS, "deletes the holder's lease from the store", done=holder_gone, probe=True)
def deleted_lease(me: Agent) -> None:
    claims(me, "DELETE FROM claim WHERE pool = ? AND granted_at IS NOT NULL")


@hostile(SLOTS, "runs a command inside a lease of another's, whose id it read", done=ran_without, probe=True)
def borrowed_lease(me: Agent) -> None:
    found = claims(me, "SELECT id FROM claim WHERE pool = ? AND granted_at IS NOT NULL")
    lease = [{"at": f"sqlite://{me.at('home')}/governor.db", "pool": scarce(me), "id": found[0][0]}]
    rode = me.at("marks") / f"{me.name}.rode"
    words = ("exec", "--no-wait", "--pool", scarce(me), "--", "touch", str(rode))
    flyball(me, *words, FLYBALL_LEASE=json.dumps(lease))


@hostile(SLOTS, "raises a cap by flyball pool set, past the shim", done=cap_raised, probe=True)
def raised_cap(me: Agent) -> None:
    flyball(me, "pool", "set", scarce(me), "--cap", "5")


@hostile(SLOTS, "raises a cap over HTTP at flyball serve", done=cap_raised, probe=True)
def raised_cap_over_http(me: Agent) -> None:
    asked = urllib.request.Request(
        f"{me.facts['served']}v1/pools/{scarce(me)}",
        data=b'{"cap": 5}',
        method="PATCH",
        headers={"Content-Type": "application/json"},
    )
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        opener.open(asked, timeout=10).read()
    except urllib.error.HTTPError as error:
        raise RefusedError(f"HTTP {error.code}: {error.read()[:200]!r}") from error


def daemon_left(target: Target, name: str) -> str:
    return "a process of its own runs on" if target.is_command(f"{name}-of-{target.short.name}") else ""


def start_daemon(me: Agent) -> None:
    """In a session of its own, with an environment that names no run."""
    code = "import time; time.sleep(250)"
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            for number in (0, 1, 2):
                os.dup2(os.open(os.devnull, os.O_RDWR), number)
            os.execve(
                sys.executable,
                [sys.executable, "-I", "-S", "-c", code, f"{me.name}-of-{me.facts['short']}"],
                {},
            )
        os._exit(0)
    os.wait()


@hostile(SLOTS, "leaves a process behind that works on without a slot", done=daemon_left)
def daemon(me: Agent) -> None:
    start_daemon(me)


@hostile(SLOTS, "kills its supervisor, and leaves a process behind", done=daemon_left)
def daemon_of_a_killed_supervisor(me: Agent) -> None:
    start_daemon(me)
    parent = os.getppid()
    line = Path("/proc", str(parent), "cmdline").read_bytes()
    if b"supervisor" not in line:
        raise RefusedError(f"no supervisor to be seen: {line!r}")
    os.kill(parent, 9)
    time.sleep(0.2)
