"""One client of the bench ``steps``: a program with calls to make, as users write them.

    ANTHROPIC_BASE_URL=http://... python -m bench.steps_client plain|governed

It says ``ready``, reads how many tokens a call asks for, a line each, makes the call, tries again until it is
answered, and says how long that took and how often it was refused. When stdin ends, it ends.

A refused call waits as the providers' SDKs do, and tries again for ever. A ``plain`` client knows nothing of
flyball. A ``governed`` one makes its calls with ``flyball.httpx_client``, which takes the slots, tries again
by itself, and hands over a refusal when it has tried often enough.
"""

from __future__ import annotations

import os
import random
import sys
import time
from itertools import count

import httpx2

import flyball
from flyball.sim.demo.worker import retry_delay_s

POOL = "anthropic"
PLAIN, GOVERNED = "plain", "governed"
_TIMEOUT_S = 120.0


def insist(client: httpx2.Client, tokens: int, chance: random.Random) -> int:
    """Until the call is answered; how often the client was refused."""
    question = {
        "model": "fake-model",
        "max_tokens": tokens,
        "messages": [{"role": "user", "content": "task"}],
    }
    for refusals in count():
        headers = {"x-stainless-retry-count": str(refusals)}
        response = client.post("/v1/messages", json=question, headers=headers)
        if response.status_code == 200:
            break
        if response.status_code != 429:
            raise RuntimeError(f"the provider answered {response.status_code}: {response.text}")
        asked = response.headers.get("retry-after")
        time.sleep(retry_delay_s(refusals, float(asked) if asked else None, chance))
    return refusals


def main(way: str) -> int:
    base, chance = os.environ["ANTHROPIC_BASE_URL"], random.Random(os.getpid())
    client = (
        httpx2.Client(base_url=base, timeout=_TIMEOUT_S)
        if way == PLAIN
        else flyball.httpx_client(POOL, library="httpx2", base_url=base, timeout=_TIMEOUT_S)
    )
    print("ready", flush=True)
    for line in sys.stdin:
        began = time.monotonic()
        refusals = insist(client, int(line), chance)
        print(f"{time.monotonic() - began:.4f} {refusals}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
