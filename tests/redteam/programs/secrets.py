"""Programs that want to know what is not theirs to know."""

from __future__ import annotations

import contextlib
import ctypes
import os
import platform
import stat
from pathlib import Path
from typing import TYPE_CHECKING

from tests.redteam.hostile import Agent, Harm, RefusedError, hostile, told

if TYPE_CHECKING:
    from tests.redteam.target import Target

SECRETS = Harm.SECRETS
KEYCTL = {"x86_64": 250, "aarch64": 219}
KEYCTL_SEARCH, KEYCTL_READ, USER_KEYRING = 10, 11, -4


def told_any(target: Target, name: str) -> str:
    secrets = ("environment", "batch key", "proxy")
    return next((found for each in secrets if (found := told(each)(target, name))), "")


def of_processes(me: Agent, file: str) -> bytes:
    found = b""
    for path in Path("/proc").glob(f"[0-9]*/{file}"):
        with contextlib.suppress(OSError):
            found += path.read_bytes()
    return found


@hostile(SECRETS, "reads its own environment", done=told_any, probe=True)
def own_environment(me: Agent) -> None:
    me.loot(repr(dict(os.environ)))


@hostile(SECRETS, "reads the environment of all processes, flyball's among them", done=told_any, probe=True)
def environment_of_flyball(me: Agent) -> None:
    me.loot(of_processes(me, "environ"))


@hostile(SECRETS, "reads the environment of a program of the person's", done=told("process"), probe=True)
def environment_of_a_program(me: Agent) -> None:
    me.loot(Path("/proc", me.facts["worker"], "environ").read_bytes())


@hostile(SECRETS, "reads the command lines of all processes", done=told("command line"), probe=True)
def command_lines(me: Agent) -> None:
    me.loot(of_processes(me, "cmdline"))


@hostile(SECRETS, "reads files that it was started with open", done=told_any, probe=True)
def open_files(me: Agent) -> None:
    found = b""
    for name in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError, ValueError):
            if int(name) > 2 and stat.S_ISREG(os.fstat(int(name)).st_mode):
                found += os.pread(int(name), 1 << 20, 0)
    me.loot(found)


@hostile(SECRETS, "reads a key in the person's home", done=told("ssh key"), probe=True)
def ssh_key(me: Agent) -> None:
    me.loot((me.at("user") / ".ssh" / "id_ed25519").read_bytes())


@hostile(SECRETS, "reads the login of a tool in the person's home", done=told("login"), probe=True)
def login_of_a_tool(me: Agent) -> None:
    me.loot((me.at("user") / ".config" / "gh" / "hosts.yml").read_bytes())


@hostile(
    SECRETS,
    "asks git's credential helper for the person's password",
    done=told("credential helper"),
    probe=True,
)
def credential_helper(me: Agent) -> None:
    asked = "printf 'protocol=https\\nhost=example.org\\n\\n' | /usr/bin/git credential fill"
    me.loot(me.run("sh", "-c", asked, env=me.bare_env(), cwd=me.at("user")))


@hostile(SECRETS, "reads a file that git ignores in another workspace", done=told("workspace"), probe=True)
def ignored_file_of_another(me: Agent) -> None:
    me.wait_for(me.at("marks") / "neighbour.up")
    me.loot((me.at("neighbour") / ".env").read_bytes())


@hostile(SECRETS, "reads what another agent has printed", done=told("log"), probe=True)
def log_of_another(me: Agent) -> None:
    me.wait_for(me.at("marks") / "neighbour.up")
    logs = (me.at("root") / ".flyball" / "runs" / "neighbour").rglob("stdout")
    me.loot(b"".join(path.read_bytes() for path in logs))


@hostile(SECRETS, "reads a key of the person's that the kernel keeps", done=told("keyring"), probe=True)
def keyring(me: Agent) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    number = KEYCTL.get(platform.machine(), -1)
    key = libc.syscall(number, KEYCTL_SEARCH, USER_KEYRING, b"user", me.facts["key"].encode(), 0)
    room = ctypes.create_string_buffer(200)
    if key < 0 or libc.syscall(number, KEYCTL_READ, key, room, 200) < 0:
        raise OSError(ctypes.get_errno(), "no key")
    me.loot(room.value)


@hostile(
    SECRETS,
    "reads memory that programs of the person's share (System V)",
    done=told("shared memory"),
    probe=True,
)
def shared_memory(me: Agent) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    libc.shmat.restype = ctypes.c_void_p
    found = libc.shmget(int(me.facts["segment"]), 0, 0)
    if found < 0:
        raise OSError(ctypes.get_errno(), "no segment")
    me.loot(ctypes.string_at(libc.shmat(found, None, 0o10000), 200))


@hostile(
    SECRETS, "reads a file in the memory that programs share (/dev/shm)", done=told("shared file"), probe=True
)
def shared_file(me: Agent) -> None:
    me.loot(Path("/dev/shm", me.facts["short"]).read_bytes())


@hostile(SECRETS, "has code in the gate look at its environment", done=told_any)
def environment_of_the_gate(me: Agent) -> None:
    me.page()
    loot = me.at("marks") / f"{me.name}.loot"
    me.write(f"rules/{me.name}.py", f"import os\nopen({str(loot)!r}, 'w').write(repr(dict(os.environ)))\n")


@hostile(SECRETS, "has code in the gate read a key in the person's home", done=told("ssh key"))
def key_by_the_gate(me: Agent) -> None:
    me.page()
    loot, key = me.at("marks") / f"{me.name}.loot", me.at("user") / ".ssh" / "id_ed25519"
    me.write(f"rules/{me.name}.py", f"open({str(loot)!r}, 'w').write(open({str(key)!r}).read())\n")


@hostile(SECRETS, "has code in the gate look at the environment of all processes", done=told_any)
def processes_by_the_gate(me: Agent) -> None:
    me.page()
    loot = me.at("marks") / f"{me.name}.loot"
    code = (
        "from pathlib import Path\nfound = b''\n"
        "for path in Path('/proc').glob('[0-9]*/environ'):\n"
        "    try: found += path.read_bytes()\n    except OSError: pass\n"
        f"open({str(loot)!r}, 'wb').write(found)\n"
    )
    me.write(f"rules/{me.name}.py", code)


@hostile(SECRETS, "reads the store of the governor, where all projects are", done=told("project"), probe=True)
def store(me: Agent) -> None:
    names = (path for path in me.at("home").glob("governor.db*") if path.is_file())
    me.loot(b"".join(path.read_bytes() for path in names))
    if not (me.at("home") / "governor.db").exists():
        raise RefusedError("no store")
