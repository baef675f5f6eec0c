"""Programs that want programs outside to do something for them."""

from __future__ import annotations

import os
import socket
import urllib.request
from typing import TYPE_CHECKING

from tests.redteam.hostile import Agent, Harm, RefusedError, hostile, ordered, ran_outside

if TYPE_CHECKING:
    from tests.redteam.target import Target

SOCKETS = Harm.SOCKETS


def order(me: Agent, address: str) -> None:
    with socket.socket(socket.AF_UNIX) as client:
        client.connect(address)
        client.sendall(f"run {me.name}\n".encode())
        client.recv(200)


@hostile(
    SOCKETS,
    "gives orders to a program that listens in /tmp, as tmux and ssh-agent do",
    done=ordered("tmp"),
    probe=True,
)
def socket_in_tmp(me: Agent) -> None:
    order(me, me.facts["tmp_socket"])


@hostile(
    SOCKETS, "gives orders to a program of the desktop (XDG_RUNTIME_DIR)", done=ordered("runtime"), probe=True
)
def socket_of_the_desktop(me: Agent) -> None:
    order(me, me.facts["runtime_socket"])


@hostile(
    SOCKETS,
    "gives orders to a program that listens in the home, as gpg-agent does",
    done=ordered("home"),
    probe=True,
)
def socket_in_the_home(me: Agent) -> None:
    order(me, me.facts["home_socket"])


@hostile(
    SOCKETS,
    "gives orders to a program that listens under a name without a file, as X11 does",
    done=ordered("abstract"),
    probe=True,
)
def socket_without_a_file(me: Agent) -> None:
    order(me, me.facts["abstract_socket"].replace("@", "\0", 1))


@hostile(
    SOCKETS,
    "takes a listener's folder off its mount, in namespaces of its own",
    done=ordered("tmp"),
    probe=True,
)
def unmounted_tmp(me: Agent) -> None:
    code = (
        "import socket; s = socket.socket(socket.AF_UNIX); "
        f"s.connect({me.facts['tmp_socket']!r}); s.sendall(b'run {me.name}')"
    )
    line = f'umount -l /tmp; exec "{me.facts["python"]}" -I -S -c "{code}"'
    me.run("unshare", "--user", "--map-root-user", "--mount", "sh", "-c", line)


@hostile(SOCKETS, "sends something to a service on the loopback", done=ordered("loopback"), probe=True)
def loopback(me: Agent) -> None:
    with socket.create_connection(("127.0.0.1", int(me.facts["port"])), timeout=10) as client:
        client.sendall(f"run {me.name}\n".encode())
        client.recv(200)


@hostile(SOCKETS, "has a terminal multiplexer run a command", done=ran_outside, probe=True)
def tmux(me: Agent) -> None:
    me.run("tmux", "-S", me.facts["tmux"], "run-shell", me.payload(""))


def typed(target: Target, name: str) -> str:
    return "the person's terminal shows its words" if name in target.typed else ""


@hostile(SOCKETS, "writes to the person's terminal", done=typed, probe=True)
def terminal(me: Agent) -> None:
    with open(me.facts["terminal"], "w") as file:
        file.write(f"{me.name}\n")


def saw_projects(target: Target, name: str) -> str:
    path = target.marks / f"{name}.loot"
    seen = path.exists() and "scarce-" in path.read_text()
    return "it knows what all projects do" if seen else ""


@hostile(SOCKETS, "asks flyball serve what all projects do", done=saw_projects, probe=True)
def service(me: Agent) -> None:
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    me.loot(opener.open(f"{me.facts['served']}v1/status", timeout=10).read())


def took_slots(target: Target, name: str) -> str:
    return "all slots of a pool are taken over HTTP" if target.holds(f"open-{name}") else ""


@hostile(SOCKETS, "takes all slots of a pool at flyball serve", done=took_slots, probe=True)
def slots_over_http(me: Agent) -> None:
    body = b'{"project": "x", "name": "x", "slots": 1, "ttl_s": 600}'
    asked = urllib.request.Request(
        f"{me.facts['served']}v1/pools/open-{me.name}/leases", data=body, method="POST"
    )
    asked.add_header("Content-Type", "application/json")
    asked.add_header("Idempotency-Key", me.name)
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        opener.open(asked, timeout=10).read()
    except OSError as error:
        raise RefusedError(f"HTTP: {error} {getattr(error, 'read', bytes)()[:300]!r}") from error


def says_so(target: Target, name: str) -> str:
    path = target.marks / f"{name}.loot"
    return path.read_text() if path.exists() else ""


@hostile(
    SOCKETS,
    "opens the switch by which the kernel runs a program when another crashes",
    done=says_so,
    probe=True,
)
def core_pattern(me: Agent) -> None:
    os.close(os.open("/proc/sys/kernel/core_pattern", os.O_WRONLY))
    me.loot("it may be written")
