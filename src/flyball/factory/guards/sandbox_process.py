"""The process on either side of bubblewrap. A script.

    sandbox_process.py outside COMMAND ...    COMMAND is bubblewrap
    sandbox_process.py inside COMMAND ...     COMMAND is the agent

Signals for an agent go to its whole process group. bubblewrap in between must not end by them: it would take
the agent along before it could tidy up. So outside they are ignored, from here on down, and inside they are
heard again.

What an agent reads and prints goes through pipes. A file that it had open it could open again, through
``/proc/self/fd``, to change or to empty it, whatever it was opened for: its own log, and what it was told.
"""

from __future__ import annotations

import os
import signal
import sys
import threading

TYPE_CHECKING = False  # importing typing would slow every start
if TYPE_CHECKING:
    from typing import NoReturn

_CHUNK_BYTES = 1 << 16


def main(argv: list[str]) -> None:
    side, command = argv[0], argv[1:]
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN if side == "outside" else signal.SIG_DFL)
    if side == "outside":
        _put_pipes_between()
    # Python ignores it at its start; a command expects the system's behaviour.
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    _become(command)


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
