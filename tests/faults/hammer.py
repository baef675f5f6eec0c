"""A process that takes and returns slots as fast as it can, and counts outside how many work at once.

Run as ``python -m tests.faults.hammer URL SECONDS COUNTER``; prints "ready" first, and one JSON object last.
It goes on until it was granted some, or a minute has passed: on a busy machine few seconds may hold none.
The counter is a file that every process locks, adds to and looks at while it works: what it shows was really
in flight at once.
"""

from __future__ import annotations

import fcntl
import json
import random
import sys
import time
from pathlib import Path
from typing import Any

from flyball.errors import StoreError
from flyball.governor.governor import Governor

POOL = "p"
LEAST, PATIENCE_S = 6, 60.0


def moved(counter: Path, by: int) -> int:
    with open(counter, "r+") as file:
        fcntl.lockf(file, fcntl.LOCK_EX)
        number = int(file.read() or 0) + by
        file.seek(0)
        file.truncate()
        file.write(str(number))
        return number


def hammered(url: str, seconds: float, counter: Path) -> dict[str, Any]:
    gov = Governor(url)
    gov.status()
    print("ready", flush=True)
    end = time.monotonic() + seconds
    grants = failures = most = 0
    while (now := time.monotonic()) < end or (grants < LEAST and now < end + PATIENCE_S):
        try:
            lease = gov.acquire(POOL, timeout=max(0.1, end - now))
        except TimeoutError:
            continue
        except StoreError:
            failures += 1
            time.sleep(0.02)
            continue
        grants += 1
        most = max(most, moved(counter, 1))
        time.sleep(random.random() * 0.004)
        moved(counter, -1)
        lease.release()
    gov.close()
    return {"grants": grants, "failures": failures, "most": most}


if __name__ == "__main__":
    print(json.dumps(hammered(sys.argv[1], float(sys.argv[2]), Path(sys.argv[3]))))
