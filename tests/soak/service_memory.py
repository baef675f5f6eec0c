"""``python -m tests.soak.service_memory [REQUESTS]``: a server's memory stays flat, over a million requests.

Starts, ends, refusals, waits and reads, of a hundred orgs, against ``flyball serve`` as people start it.
What it takes once it has warmed up (a tenth of the requests) is what it may take at the end, but for 8 MiB.
"""

from __future__ import annotations

import asyncio
import itertools
import sys
import time

from bench.service_wire import Served, Wire, close_all, served, wires

REQUESTS = 1_000_000
CONNECTIONS, ORGS = 16, 100
GROWTH_LIMIT_MIB = 8.0


async def drive(server: Served, requests: int) -> list[float]:
    """Send so many; the memory in MiB after each tenth."""
    links = await wires(server.url, CONNECTIONS)
    for number in range(ORGS):
        made = await links[0].ask("PUT", f"/v1/orgs/org-{number}", b'{"max_concurrent_runs": 1}')
        assert made.status == 200, made.body
    sizes: list[float] = []
    for tenth in range(1, 11):
        began, sent = time.monotonic(), 0
        due = requests * tenth // 10 - requests * (tenth - 1) // 10
        numbers = itertools.count(tenth)
        while sent < due:
            sent += sum(await asyncio.gather(*(_round(link, next(numbers)) for link in links)))
        sizes.append(server.rss_bytes() / 2**20)
        rate = sent / (time.monotonic() - began)
        print(f"{tenth * 10:3} %  {sizes[-1]:6.1f} MiB  {rate:6.0f} requests/s", flush=True)
    await close_all(links)
    return sizes


async def _round(link: Wire, number: int) -> int:
    """One run with everything around it; how many requests that took."""
    path = f"/v1/orgs/org-{number % ORGS}/runs"
    started = await link.ask("POST", path, headers={"Prefer": "wait=10"} if number % 3 == 0 else None)
    if started.status != 200:
        assert started.status == 429, started.body
        return 1
    run = f"{path}/{started.json['run_id']}"
    assert (await link.ask("POST", path)).status == 429
    assert (await link.ask("POST", f"{run}/heartbeat")).status == 200
    assert (await link.ask("GET", "/v1/whoami")).status == 200
    assert (await link.ask("GET", f"/v1/nothing/{number}")).status == 404
    assert (await link.ask("DELETE", run)).status == 204
    return 6


def main() -> int:
    requests = int(sys.argv[1]) if len(sys.argv) > 1 else REQUESTS
    with served("sqlite") as server:
        sizes = asyncio.run(drive(server, requests))
    growth = sizes[-1] - sizes[0]
    flat = growth <= GROWTH_LIMIT_MIB
    words = "flat" if flat else f"not flat: at most {GROWTH_LIMIT_MIB:g} MiB may be added"
    print(f"{requests:,} requests: {growth:+.1f} MiB since the first tenth, {words}")
    return 0 if flat else 1


if __name__ == "__main__":
    sys.exit(main())
