"""Admission over HTTP: ``flyball serve`` as people start it, and clients on the same machine.

seed       10 starts at once against a limit of 2, on every store: exactly 2, every time
runbook    100 starts at once against a limit of 2, beside a lock with a count behind it; and 10 times as many
waiting    100 starts that wait for 2 slots: how busy the slots are, who is served out of turn
tenants    99 light orgs under a global cap, alone and beside one that floods
rate       ask and release, beside the same server answering a constant
waiters    thousands of requests held open: what each costs, and how long a hand-over takes
"""

from __future__ import annotations

import asyncio
import json
import time
from collections import Counter
from dataclasses import dataclass

from bench.report import Figure, Progress, Section, Target, beside, percentile
from bench.service_load import rate, waiters
from bench.service_wire import STORES, Answer, Served, Wire, close_all, flooding, locked, served, wires

NAME = "service"
TITLE = "admission over HTTP, server and clients on the same machine"
_FIXED, _JITTERED = "lock, retry every 10 ms", "lock, jittered retry"


@dataclass(frozen=True, slots=True)
class Sizes:
    stores: tuple[str, ...] = STORES
    repetitions: int = 200
    rounds: int = 7
    starts: int = 100
    burst: int = 1_000
    waiting: int = 100
    runs_each: int = 2
    hold_s: float = 0.1
    light_s: float = 5.0
    rate_s: float = 3.0
    rate_rounds: int = 3
    waiters: int = 10_000
    wakes: int = 200


FULL = Sizes()
QUICK = Sizes(
    repetitions=20,
    rounds=2,
    runs_each=1,
    burst=300,
    light_s=1.5,
    rate_s=0.7,
    rate_rounds=2,
    waiters=1_000,
    wakes=40,
)


def run(sizes: Sizes, progress: Progress) -> Section:
    figures: list[Figure] = []
    notes: list[str] = []
    for store in sizes.stores:
        progress(f"{NAME}: {sizes.repetitions} x 10 starts on {store}")
        with served(store) as server:
            figures.append(asyncio.run(_seed(server, sizes)))
    progress(f"{NAME}: the runbook")
    with served("redis") as server:
        figures += _runbook(server, sizes, notes)
        progress(f"{NAME}: waiting")
        figures += asyncio.run(_waiting(server, sizes, notes))
    progress(f"{NAME}: tenants")
    with served("sqlite") as server:
        figures += asyncio.run(_tenants(server, sizes))
    progress(f"{NAME}: rate")
    with served("sqlite") as server:
        figures.append(asyncio.run(rate(server, sizes)))
    progress(f"{NAME}: {sizes.waiters} waiters")
    with served("sqlite") as server:
        figures += asyncio.run(waiters(server, sizes))
    return Section(NAME, TITLE, tuple(figures), tuple(notes))


async def _put_org(url: str, org: str, limit: int = 2, **terms: float) -> None:
    link = await Wire.to(url)
    body = json.dumps({"max_concurrent_runs": limit, **terms}).encode()
    answer = await link.ask("PUT", f"/v1/orgs/{org}", body)
    assert answer.status == 200, answer.body
    await link.close()


# -- seed and runbook -----------------------------------------------------------------------------------


async def _seed(server: Served, sizes: Sizes) -> Figure:
    await _put_org(server.url, "seed")
    links, right = await wires(server.url, 10), 0
    for _ in range(sizes.repetitions):
        answers = await asyncio.gather(*(link.ask("POST", "/v1/orgs/seed/runs") for link in links))
        right += Counter(answer.status for answer in answers) == {200: 2, 429: 8}
        await _end_all(links[0], "seed", answers)
    await close_all(links)
    return Figure(
        what=f"10 starts, limit 2, on {server.store}: exactly 2 admitted, of {sizes.repetitions}",
        ours=right,
        unit="",
        target=Target("value", sizes.repetitions, at_least=True),
    )


async def _end_all(link: Wire, org: str, answers: list[Answer]) -> None:
    for answer in answers:
        if answer.status == 200:
            ended = await link.ask("DELETE", f"/v1/orgs/{org}/runs/{answer.json['run_id']}")
            assert ended.status == 204


@dataclass(frozen=True, slots=True)
class Starts:
    took_s: list[float]
    statuses: Counter[int]
    commands: float
    peak: int
    """Store calls in the busiest 10 ms."""
    served_s: list[float]
    """When those who were admitted had their answers."""

    def ms(self, percent: float) -> float:
        return percentile(self.took_s, percent) * 1000

    def shape(self) -> str:
        first, last = (
            percentile(self.served_s, percent) * 1000 if self.served_s else 0.0 for percent in (0, 100)
        )
        return f"{self.peak} store calls in the busiest 10 ms; admitted after {first:.0f} to {last:.0f} ms"


async def _starts(server: Served, url: str, sizes: Sizes, many: int, name: str, *, made: bool) -> Starts:
    took: list[float] = []
    statuses: Counter[int] = Counter()
    served: list[float] = []
    sent, peak = 0, 0
    for turn in range(sizes.rounds):
        org = f"{name}-{turn}"
        if made:
            await _put_org(url, org)
        links = await wires(url, many)
        calls = server.store_calls()
        answers = await asyncio.gather(*(link.ask("POST", f"/v1/orgs/{org}/runs") for link in links))
        heard = calls.end()
        sent, peak = sent + heard.many, max(peak, heard.peak)
        took += [answer.took_s for answer in answers]
        served += [answer.took_s for answer in answers if answer.status == 200]
        statuses.update(answer.status for answer in answers)
        await close_all(links)
    return Starts(took, statuses, sent / len(took), peak, served)


def _runbook(server: Served, sizes: Sizes, notes: list[str]) -> list[Figure]:
    def ours(many: int) -> Starts:
        return asyncio.run(_starts(server, server.url, sizes, many, f"book-{many}", made=True))

    mine, burst = ours(sizes.starts), ours(sizes.burst)
    figures = [
        Figure(
            what=f"{many} starts at once, limit 2: not 2 x 200 and the rest 429, of {sizes.rounds} rounds",
            ours=_wrong(found, sizes, many),
            unit="",
            target=Target("value", 0),
        )
        for found, many in ((mine, sizes.starts), (burst, sizes.burst))
    ]
    assert server.redis is not None
    for name, jittered in ((_FIXED, False), (_JITTERED, True)):
        with locked(server.redis.url, jittered=jittered) as url:
            kind = f"lock-{int(jittered)}"
            theirs = asyncio.run(_starts(server, url, sizes, sizes.starts, kind, made=False))
        figures += _beside_lock(sizes, mine, theirs, name)
        notes.append(f"{sizes.starts} starts, {name}: {theirs.shape()}")
    for percent in (50, 95):
        figures.append(
            Figure(what=f"{sizes.burst} starts at once, p{percent}", ours=burst.ms(percent), unit="ms")
        )
    notes += [
        f"{many} starts: {found.shape()}" for many, found in ((sizes.starts, mine), (sizes.burst, burst))
    ]
    return figures


def _wrong(found: Starts, sizes: Sizes, many: int) -> int:
    expected = {200: 2 * sizes.rounds, 429: (many - 2) * sizes.rounds}
    return sum((Counter(expected) - found.statuses).values()) + sum(
        (found.statuses - Counter(expected)).values()
    )


def _beside_lock(sizes: Sizes, mine: Starts, theirs: Starts, name: str) -> list[Figure]:
    starts = f"{sizes.starts} starts at once"
    rows = (
        ("store calls per request", mine.commands, theirs.commands, ""),
        ("p50", mine.ms(50), theirs.ms(50), "ms"),
        ("p95", mine.ms(95), theirs.ms(95), "ms"),
        (
            "503",
            100 * mine.statuses[503] / len(mine.took_s),
            100 * theirs.statuses[503] / len(theirs.took_s),
            "%",
        ),
    )
    return [
        Figure(what=f"{starts}, {what}", ours=ours, unit=unit, beside=name, theirs=other)
        for what, ours, other, unit in rows
    ]


# -- waiting and tenants --------------------------------------------------------------------------------


async def _waiting(server: Served, sizes: Sizes, notes: list[str]) -> list[Figure]:
    await _put_org(server.url, "waiting")
    links = await wires(server.url, sizes.waiting)
    served_ids: list[int] = []

    async def one(link: Wire) -> None:
        for _ in range(sizes.runs_each):
            answer = await link.ask("POST", "/v1/orgs/waiting/runs", headers={"Prefer": "wait=60"})
            run_id = str(answer.json["run_id"])
            served_ids.append(int(run_id.partition(".")[0]))
            await asyncio.sleep(sizes.hold_s)
            await link.ask("DELETE", f"/v1/orgs/waiting/runs/{run_id}")

    own = await _own_calls_per_s(server, sizes)
    calls, began = server.store_calls(), time.perf_counter()
    await asyncio.gather(*(one(link) for link in links))
    took_s = time.perf_counter() - began
    commands = calls.end().many - own * took_s
    await close_all(links)
    notes.append(f"while an ask waits the server asks the store {own:.0f} times a second by itself")
    runs = sizes.waiting * sizes.runs_each
    busy = runs * sizes.hold_s / (2 * took_s)
    place = {claim_id: number for number, claim_id in enumerate(sorted(served_ids))}
    # Two are handed over at about the same moment: only who was passed by more than both slots counts.
    passed = sum(abs(place[claim_id] - number) > 2 for number, claim_id in enumerate(served_ids))
    waits = f"{sizes.waiting} clients wait for 2 slots, {sizes.hold_s * 1000:g} ms each"
    return [
        Figure(what=f"{waits}: slots busy", ours=busy, unit="", target=Target("value", 0.9, at_least=True)),
        Figure(what=f"{waits}: served out of turn", ours=passed, unit="", target=Target("value", 0)),
        Figure(
            what=f"{waits}: store calls per run, beyond the server's own",
            ours=round(commands / runs, 1),
            unit="",
            target=Target("value", 2),
        ),
    ]


async def _own_calls_per_s(server: Served, sizes: Sizes) -> float:
    """What the server asks by itself while one of three starts waits for two that go on."""
    links, path = await wires(server.url, 3), "/v1/orgs/waiting/runs"
    held = [(await link.ask("POST", path)).json["run_id"] for link in links[:2]]
    waiting = asyncio.create_task(links[2].ask("POST", path, headers={"Prefer": "wait=60"}))
    await asyncio.sleep(1)
    calls = server.store_calls()
    await asyncio.sleep(sizes.light_s)
    heard = calls.end().many
    # They may have been idle for longer than a connection is kept.
    link = await Wire.to(server.url)
    for run_id in held:
        await link.ask("DELETE", f"{path}/{run_id}")
    await link.ask("DELETE", f"{path}/{(await waiting).json['run_id']}")
    await close_all([*links, link])
    return heard / sizes.light_s


async def _tenants(server: Served, sizes: Sizes) -> list[Figure]:
    """The light ones start, hold and end, a little apart; the flooder keeps a long line."""
    cap, light = 20, 99
    await _put_org(server.url, "flood", cap)
    link = await Wire.to(server.url)
    assert (await link.ask("PATCH", "/v1/pools/runs", b'{"cap": %d}' % cap)).status == 200
    await link.close()
    for number in range(light):
        await _put_org(server.url, f"light-{number}", 2)
    alone: list[float] = []
    crowded: dict[int, list[float]] = {cap // 2: [], cap: []}
    for _ in range(sizes.rate_rounds):
        alone.append(await _light_p95(server, sizes, light))
        for limit, found in crowded.items():
            await _put_org(server.url, "flood", limit, ttl_s=2, heartbeat_s=1)
            with flooding(server.url, many=200, hold_s=sizes.hold_s):
                found.append(await _light_p95(server, sizes, light))
            await _until_idle(server.url)
    return [
        beside(
            f"99 light orgs and one that floods {limit} of {cap} slots: p95 of a light org's start",
            found,
            alone,
            unit="ms",
            name="without the flood",
            # Where every slot is always taken, whoever comes waits for one to come free.
            target=Target("ratio", 2.0) if limit < cap else None,
        )
        for limit, found in crowded.items()
    ]


async def _until_idle(url: str) -> None:
    """What the flood still held has to run out."""
    link = await Wire.to(url)
    while (found := (await link.ask("GET", "/v1/pools/runs")).json)["in_use"] or found["waiting"]:
        await asyncio.sleep(0.5)
    await link.close()


async def _light_p95(server: Served, sizes: Sizes, light: int) -> float:
    took: list[float] = []
    links = await wires(server.url, light)
    ends = time.perf_counter() + sizes.light_s

    async def be_light(number: int) -> None:
        link, org = links[number], f"/v1/orgs/light-{number}/runs"
        await asyncio.sleep(sizes.light_s * number / light / 2)
        while time.perf_counter() < ends:
            answer = await link.ask("POST", org, headers={"Prefer": "wait=30"})
            took.append(answer.took_s)
            await asyncio.sleep(sizes.hold_s)
            await link.ask("DELETE", f"{org}/{answer.json['run_id']}")
            await asyncio.sleep(sizes.light_s / 2)

    await asyncio.gather(*map(be_light, range(light)))
    await close_all(links)
    return percentile(took, 95) * 1000
