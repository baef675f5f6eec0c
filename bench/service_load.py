"""Admission over HTTP under load: how many requests a second, and what thousands that wait cost."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from bench.report import Figure, Target, beside, percentile
from bench.service_wire import Served, Wire, close_all, wires

if TYPE_CHECKING:
    from bench.service import Sizes


async def rate(server: Served, sizes: Sizes) -> Figure:
    links = await wires(server.url, 8)
    made = await links[0].ask("PUT", "/v1/pools/rate", b'{"cap": 1000, "adaptive": false}')
    assert made.status == 200

    async def pairs(link: Wire) -> int:
        lease = (await link.ask("POST", "/v1/pools/rate/leases", b'{"project": "p"}')).json
        token = {"Lease-Token": str(lease["token"])}
        ended = await link.ask("POST", f"/v1/leases/{lease['id']}/release", headers=token)
        assert ended.status == 204
        return 2

    async def constant(link: Wire) -> int:
        await link.ask("GET", "/v1/whoami")
        return 1

    ours, theirs = [], []
    for _ in range(sizes.rate_rounds):
        theirs.append(await _per_s(links, constant, sizes.rate_s))
        ours.append(await _per_s(links, pairs, sizes.rate_s))
    await close_all(links)
    return beside(
        "requests/s, ask and release",
        ours,
        theirs,
        unit="/s",
        name="a constant",
        target=Target("ratio", 0.5, at_least=True),
    )


async def _per_s(links: list[Wire], step: Callable[[Wire], Awaitable[int]], for_s: float) -> float:
    began, done = time.perf_counter(), 0

    async def keep_on(link: Wire) -> None:
        nonlocal done
        while time.perf_counter() - began < for_s:
            # Not in one statement: what the others did while we waited would be forgotten.
            many = await step(link)
            done += many

    await asyncio.gather(*(keep_on(link) for link in links))
    return done / (time.perf_counter() - began)


async def waiters(server: Served, sizes: Sizes) -> list[Figure]:
    link = await Wire.to(server.url)
    assert (await link.ask("PUT", "/v1/pools/many", b'{"cap": 1, "adaptive": false}')).status == 200
    lease = (await link.ask("POST", "/v1/pools/many/leases", b'{"ttl_s": 600}')).json
    links = await wires(server.url, sizes.waiters)
    before = server.rss_bytes()
    arrived: asyncio.Queue[tuple[float, dict[str, object]]] = asyncio.Queue()

    async def wait(waiter: Wire) -> None:
        answer = await waiter.ask("POST", "/v1/pools/many/leases", b'{"ttl_s": 600}', {"Prefer": "wait=60"})
        if answer.status == 201:
            arrived.put_nowait((answer.at, answer.json))

    waiting = [asyncio.create_task(wait(waiter)) for waiter in links]
    while True:
        found = (await link.ask("GET", "/v1/pools/many")).json
        if found["waiting"] == sizes.waiters:
            break
        await asyncio.sleep(0.1)
    each = (server.rss_bytes() - before) / sizes.waiters
    took: list[float] = []
    for _ in range(sizes.wakes):
        began = time.perf_counter()
        await link.ask(
            "POST", f"/v1/leases/{lease['id']}/release", headers={"Lease-Token": str(lease["token"])}
        )
        at, lease = await arrived.get()
        took.append(at - began)
    for task in waiting:
        task.cancel()
    await asyncio.gather(*waiting, return_exceptions=True)
    await close_all([*links, link])
    many = f"{sizes.waiters:,} requests held open"
    return [
        Figure(what=f"{many}: memory for each", ours=each / 1024, unit="KiB"),
        Figure(
            what=f"{many}: from a release to the next one's answer, p50",
            ours=percentile(took, 50) * 1e3,
            unit="ms",
        ),
        Figure(what=f"{many}: the same, p99", ours=percentile(took, 99) * 1e3, unit="ms"),
    ]
