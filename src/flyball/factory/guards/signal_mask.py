"""In front of bubblewrap and behind it: whether what follows hears TERM, INT and HUP. A script.

    signal_mask.py deaf COMMAND ...    ignore them, from here on down
    signal_mask.py hear COMMAND ...    as usual again

Signals for an agent go to its whole process group. bubblewrap in between must not end by them: it would take
the agent along before it could tidy up.
"""

from __future__ import annotations

import os
import signal
import sys


def main(argv: list[str]) -> None:
    way = signal.SIG_IGN if argv[0] == "deaf" else signal.SIG_DFL
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, way)
    try:
        os.execvp(argv[1], argv[1:])  # noqa: S606 - what a doorway is for
    except OSError as error:
        os.write(2, f"flyball: cannot run {argv[1]}: {error.strerror}\n".encode())
        os._exit(127 if isinstance(error, FileNotFoundError) else 126)


if __name__ == "__main__":
    main(sys.argv[1:])
