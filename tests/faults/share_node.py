"""A process that works under a share lease until it is told to stop.

    python share_node.py URL POOL NODE WORKERS PIECE_S OBSERVER

Every piece of work is told to the observer, a datagram socket outside: when it has begun, and before its slot
is given back. So what the observer counts is never more than what is in flight.
"""

from __future__ import annotations

import itertools
import os
import signal
import socket
import sys
import threading
import time

from flyball import Governor, RefusedError


def main(argv: list[str]) -> int:
    url, pool, node, workers, piece_s, observer = argv
    stop = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    ear = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    ear.connect(observer)

    def say(word: str) -> None:
        ear.send(f"{os.getpid()} {word}".encode())

    pieces = itertools.count()
    governor = Governor(url)
    share = governor.share(pool, node=node, on_fenced=lambda: say("fenced"))

    def work() -> None:
        while not stop.is_set():
            try:
                with share.slot(timeout=0.5):
                    piece = next(pieces)
                    say(f"begins {piece}")
                    try:
                        time.sleep(float(piece_s))
                    finally:
                        say(f"ends {piece}")
            except RefusedError:
                continue

    with share:
        say("open")
        threads = [threading.Thread(target=work) for _ in range(int(workers))]
        for thread in threads:
            thread.start()
        while not stop.wait(0.1):
            stats = share.stats()
            say(f"limit {stats.limit} {stats.renewals}")
        for thread in threads:
            thread.join()
    governor.close()
    say("closed")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
