"""A process that ends while its shares are open says nothing about it."""

from __future__ import annotations

import subprocess
import sys

ENDING = """
import atexit, sys, threading, time

def renewing():
    return [thread for thread in threading.enumerate() if thread.name == "flyball-renewing"]

def wait_for_their_end():
    end = time.monotonic() + 5
    while renewing() and time.monotonic() < end:
        time.sleep(0.01)
    print("renewing", len(renewing()))

# Registered first, it is called last: when the mailboxes are closed, and the threads go on.
atexit.register(wait_for_their_end)

from flyball import Governor

gov = Governor(sys.argv[1])
gov.set_pool("p", cap=3, adaptive=False, heartbeat_s=0.1)
shares = [gov.share("p", node=f"node {number}").open() for number in range(3)]
print("ready", all(share.wait_ready(30) for share in shares))
"""


def test_a_process_that_ends_with_open_shares_ends_without_a_word(url: str) -> None:
    command = [sys.executable, "-X", "dev", "-W", "error", "-c", ENDING, url]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout, done.stderr) == (0, "ready True\nrenewing 0\n", "")
