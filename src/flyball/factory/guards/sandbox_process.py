"""The process on either side of bubblewrap. A script.

    sandbox_process.py outside COMMAND ...    COMMAND is bubblewrap
    sandbox_process.py inside COMMAND ...     COMMAND is the agent

Signals for an agent go to its whole process group. bubblewrap in between must not end by them: it would take
the agent along before it could tidy up. So outside they are ignored, from here on down, and inside they are
heard again.

What an agent reads and prints goes through pipes. A file that it had open it could open again, through
``/proc/self/fd``, to change or to empty it, whatever it was opened for: its own log, and what it was told.

Sockets on which a program listens, wherever they lie, are covered by nothing readable. They come and go, and
bubblewrap fails over one that is gone, so they are looked for just before it starts (``cover_sockets``).
"""

from __future__ import annotations

import os
import signal
import stat
import sys
import threading

TYPE_CHECKING = False  # importing typing would slow every start
if TYPE_CHECKING:
    from typing import NoReturn

_CHUNK_BYTES = 1 << 16
COVERED = "--flyball-cover-sockets"
"""In a command line for bubblewrap, before the paths that are mounted otherwise: here sockets are covered."""
_NAME_SERVICES = ("/run/nscd", "/var/lib/sss/pipes", "/run/systemd/userdb", "/run/systemd/resolve")
"""Sockets on which programs take questions about users and hosts, and no orders."""


def main(argv: list[str]) -> None:
    side, command = argv[0], argv[1:]
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN if side == "outside" else signal.SIG_DFL)
    if side == "outside":
        _put_pipes_between()
        command = cover_sockets(command)
    # Python ignores it at its start; a command expects the system's behaviour.
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    _become(command)


def cover_sockets(words: list[str]) -> list[str]:
    """A command line in which those sockets are covered that an agent could reach."""
    at = words.index(COVERED)
    otherwise = words[at + 1].split(os.pathsep)
    covers = [
        word
        for path in _listening_sockets()
        if not any(_within(path, each) for each in otherwise)
        for word in ("--ro-bind", os.devnull, path)
    ]
    return [*words[:at], *covers, *words[at + 2 :]]


def _listening_sockets() -> list[str]:
    """Those with a place in the file system that an agent could reach."""
    try:
        with open("/proc/net/unix", encoding="utf-8", errors="surrogateescape") as file:
            lines = [line.rstrip("\n").split(None, 7) for line in file]
    except OSError:
        return []
    paths = {os.path.realpath(fields[7]) for fields in lines if len(fields) == 8 and fields[7][:1] == "/"}
    services = [path for path in paths if any(_within(path, each) for each in _NAME_SERVICES)]
    return sorted(path for path in paths.difference(services) if _is_reachable(path))


def _is_reachable(path: str) -> bool:
    """Without root's powers, which nothing inside has."""
    groups = {os.getegid(), *os.getgroups()}
    try:
        if not stat.S_ISSOCK(os.stat(path).st_mode):
            return False
        folder = path
        while folder != os.sep:
            folder = os.path.dirname(folder)
            of = os.stat(folder)
            right = 0o100 if of.st_uid == os.geteuid() else 0o010 if of.st_gid in groups else 0o001
            if not of.st_mode & right:
                return False
    except OSError:
        return False
    return True


def _within(path: str, folder: str) -> bool:
    return path == folder or path.startswith(folder.rstrip("/") + "/")


def _put_pipes_between() -> None:
    """This process has pipes from here on; a child of it has the files, and ends with what it has to copy.

    The child and not the parent: bubblewrap ends the agent when its own parent, the supervisor, is gone.
    """
    pipes = [os.pipe() for _ in range(3)]
    copying = os.fork() == 0
    for number, (reading, writing) in enumerate(pipes):
        if copying:
            os.close(writing if number else reading)
        else:
            os.dup2(writing if number else reading, number)
    if copying:
        threading.Thread(target=_copy, args=(0, pipes[0][1]), daemon=True).start()
        printed = [threading.Thread(target=_copy, args=(pipes[number][0], number)) for number in (1, 2)]
        for thread in printed:
            thread.start()
        for thread in printed:
            thread.join()
        os._exit(0)


def _copy(source: int, target: int) -> None:
    """To the end. What cannot be written, on a full disk, is lost: the agent goes on."""
    while chunk := os.read(source, _CHUNK_BYTES):
        try:
            while chunk:
                chunk = chunk[os.write(target, chunk) :]
        except BrokenPipeError:
            break
        except OSError:
            continue
    os.close(target)


def _become(command: list[str]) -> NoReturn:
    try:
        os.execvp(command[0], command)  # noqa: S606 - what it is for
    except OSError as error:
        os.write(2, f"flyball: cannot run {command[0]}: {error.strerror}\n".encode())
        os._exit(127 if isinstance(error, FileNotFoundError) else 126)


if __name__ == "__main__":
    main(sys.argv[1:])
