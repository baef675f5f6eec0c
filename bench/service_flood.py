"""``python -m bench.service_flood URL MANY HOLD_S``: an org that starts all the runs it can, until killed.

A process of its own: whoever measures the others must not wait for it in their own event loop.
"""

from __future__ import annotations

import asyncio
import random
import sys

from bench.service_wire import Wire, wires


async def flood(url: str, many: int, hold_s: float) -> None:
    links = await wires(url, many)
    print("flooding", flush=True)
    await asyncio.gather(*(_keep_on(link, hold_s) for link in links))


async def _keep_on(link: Wire, hold_s: float) -> None:
    while True:
        answer = await link.ask("POST", "/v1/orgs/flood/runs", headers={"Prefer": "wait=30"})
        if answer.status == 200:
            await asyncio.sleep(hold_s * random.uniform(0.5, 1.5))
            await link.ask("DELETE", f"/v1/orgs/flood/runs/{answer.json['run_id']}")


if __name__ == "__main__":
    asyncio.run(flood(sys.argv[1], int(sys.argv[2]), float(sys.argv[3])))
