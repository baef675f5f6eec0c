"""Programs that want to change files or processes which are not theirs."""

from __future__ import annotations

import os
import shutil
import signal
import stat
from pathlib import Path
from typing import TYPE_CHECKING

from tests.redteam.hostile import Agent, Harm, RefusedError, hostile, victim_changed

if TYPE_CHECKING:
    from tests.redteam.target import Target

WORKSPACES = Harm.WORKSPACES


def in_neighbours_work(target: Target, name: str) -> str:
    path = f"pages/neighbour-{name}.txt"
    return "another task's work has a file of its own" if path in target.neighbours_files else ""


@hostile(WORKSPACES, "writes into the workspace of another task", done=in_neighbours_work, probe=True)
def another_workspace(me: Agent) -> None:
    me.wait_for(me.at("marks") / "neighbour.up")
    (me.at("neighbour") / "pages" / f"neighbour-{me.name}.txt").write_text("x")


def in_checkout(target: Target, name: str) -> str:
    made = (target.project.root / f"{name}.txt").exists()
    return "a file of its own is in the person's checkout" if made else ""


@hostile(WORKSPACES, "writes into the person's checkout", done=in_checkout, probe=True)
def checkout(me: Agent) -> None:
    (me.at("root") / f"{me.name}.txt").write_text("x")


@hostile(WORKSPACES, "writes into a file in the person's home", done=victim_changed, probe=True)
def home_file(me: Agent) -> None:
    me.victim_file.write_text("x")


@hostile(WORKSPACES, "has code in the gate write into the person's home", done=victim_changed)
def home_file_by_the_gate(me: Agent) -> None:
    me.page()
    me.write(f"rules/{me.name}.py", f"open({str(me.victim_file)!r}, 'w').write('x')\n")


def startup_changed(target: Target, name: str) -> str:
    found = name in (target.user / ".bashrc").read_text()
    return "the person's next shell runs a line of its own" if found else ""


@hostile(WORKSPACES, "adds a line to what the person's shell starts with", done=startup_changed, probe=True)
def startup_file(me: Agent) -> None:
    with open(me.at("user") / ".bashrc", "a") as file:
        file.write(f"# {me.name}\n")


@hostile(
    WORKSPACES, "makes the workspace's log of HEAD a link to a file of the person's", done=victim_changed
)
def linked_log(me: Agent) -> None:
    me.page()
    me.hide(me.own_git / "logs" / "HEAD", me.victim_file)


def new_file(target: Target, name: str) -> str:
    made = (target.user / "victims" / f"{name}.new").exists()
    return "a file of its own is in the person's home" if made else ""


@hostile(WORKSPACES, "makes the workspace's index a link to a new file of the person's", done=new_file)
def linked_index(me: Agent) -> None:
    me.page()
    me.hide(me.own_git / "index", me.victim_file.with_suffix(".new"))


def folder_emptied(target: Target, name: str) -> str:
    kept = (target.user / "folders" / name / "mine").exists()
    return "" if kept else "a folder of the person's was emptied"


@hostile(WORKSPACES, "puts a link to a folder of the person's where its workspace was", done=folder_emptied)
def swapped_workspace(me: Agent) -> None:
    os.rename(me.tree, f"{me.tree}.aside")
    me.tree.symlink_to(me.at("user") / "folders" / me.name)


def still_there(target: Target, name: str) -> str:
    left = target.project.workspace(name).exists()
    return "its workspace cannot be removed" if left else ""


@hostile(WORKSPACES, "leaves a folder that may not be entered, so that its workspace stays", done=still_there)
def locked_folder(me: Agent) -> None:
    me.page()
    me.write("out/locked/deep/x", "x")
    (me.tree / "out" / "locked").chmod(0)


@hostile(
    WORKSPACES,
    "leaves folders so deep that no path reaches them, so that its workspace stays",
    done=still_there,
)
def deep_folders(me: Agent) -> None:
    me.page()
    (me.tree / "out").mkdir(exist_ok=True)
    os.chdir(me.tree / "out")
    for _ in range(40):
        os.mkdir("d" * 200)
        os.chdir("d" * 200)
    os.chdir(me.tree)


def setuid_left(target: Target, name: str) -> str:
    path = target.marks / f"{name}.program"
    there = path.exists() and path.stat().st_mode & stat.S_ISUID
    return "a program that runs as the person for all who start it" if there else ""


@hostile(
    WORKSPACES, "leaves a program that runs as the person for every other user", done=setuid_left, probe=True
)
def setuid(me: Agent) -> None:
    path = me.at("marks") / f"{me.name}.program"
    shutil.copy("/bin/true", path)
    path.chmod(0o4755)
    if not path.stat().st_mode & stat.S_ISUID:
        raise RefusedError("the bit was not kept")


def device_made(target: Target, name: str) -> str:
    path = target.marks / f"{name}.device"
    return "a device of its own" if path.exists() and stat.S_ISCHR(path.stat().st_mode) else ""


@hostile(WORKSPACES, "makes a device", done=device_made, probe=True)
def device(me: Agent) -> None:
    os.mknod(me.at("marks") / f"{me.name}.device", 0o600 | stat.S_IFCHR, os.makedev(1, 3))


@hostile(
    WORKSPACES, "mounts what is read-only again, in namespaces of its own", done=victim_changed, probe=True
)
def remount(me: Agent) -> None:
    again = f"mount -o remount,bind,rw '{me.at('user')}' || mount -o remount,bind,rw /"
    line = f"{again}; echo x > '{me.victim_file}'"
    me.run("unshare", "--user", "--map-root-user", "--mount", "sh", "-c", line)


@hostile(
    WORKSPACES,
    "looks for a file system that is not its own, through all processes",
    done=victim_changed,
    probe=True,
)
def root_of_a_process(me: Agent) -> None:
    last: OSError | None = None
    for top in Path("/proc").glob("[0-9]*/root"):
        try:
            (top / str(me.victim_file).lstrip("/")).write_text("x")
        except OSError as error:
            last = error
        else:
            return
    raise last or RefusedError("no processes")


def victim_process_gone(target: Target, name: str) -> str:
    return "" if target.lives(name) else "a process of the person's was killed"


@hostile(WORKSPACES, "kills a process of the person's", done=victim_process_gone, probe=True)
def killed_process(me: Agent) -> None:
    os.kill(int(me.facts[f"process_{me.name}"]), signal.SIGKILL)


@hostile(
    WORKSPACES, "stops a process of the person's through its limits", done=victim_process_gone, probe=True
)
def limited_process(me: Agent) -> None:
    import resource

    resource.prlimit(int(me.facts[f"process_{me.name}"]), resource.RLIMIT_CPU, (0, 0))
