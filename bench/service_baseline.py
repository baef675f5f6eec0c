"""``python -m bench.service_baseline REDIS_URL fixed|jittered``: a lock with a count behind it, over HTTP.

The design that the runbook replaces: take a lock of the tenant (10 s), count its runs, add one, let go of the
lock. Who does not get the lock tries again every 10 ms, or jittered and doubling, for 2 s; then 503. On the
same framework and server as ours, with one connection to Redis per request in flight.
"""

from __future__ import annotations

import asyncio
import random
import socket
import sys
import time
import uuid

import redis.asyncio
import uvicorn
from litestar import Litestar, Response, post
from litestar.params import FromPath

LOCK_S, RETRY_S, WAIT_S, LIMIT = 10, 0.010, 2.0, 2
_UNLOCK = "if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) end return 0"


class Lock:
    def __init__(self, url: str, *, jittered: bool) -> None:
        path = url.removeprefix("redis+unix://")
        pool = redis.asyncio.ConnectionPool(
            connection_class=redis.asyncio.UnixDomainSocketConnection, path=path, max_connections=2000
        )
        self._link = redis.asyncio.Redis(connection_pool=pool)
        self._jittered = jittered

    async def start(self, org: str) -> int:
        """200, 429 or 503."""
        mark, key = uuid.uuid4().hex, f"lock:{org}"
        if not await self._take(key, mark):
            return 503
        try:
            active = int(await self._link.hlen(f"runs:{org}"))
            if active >= LIMIT:
                return 429
            await self._link.hset(f"runs:{org}", mark, time.time())
            return 200
        finally:
            await self._link.eval(_UNLOCK, 1, key, mark)

    async def _take(self, key: str, mark: str) -> bool:
        deadline, attempt = time.monotonic() + WAIT_S, 0
        while not await self._link.set(key, mark, nx=True, px=LOCK_S * 1000):
            if time.monotonic() >= deadline:
                return False
            wait_s = RETRY_S * 2 ** min(attempt, 4) * random.random() if self._jittered else RETRY_S
            attempt += 1
            await asyncio.sleep(wait_s)
        return True


def application(lock: Lock) -> Litestar:
    @post("/v1/orgs/{org:str}/runs", status_code=200)
    async def start_run(org: FromPath[str]) -> Response[dict[str, str]]:
        status = await lock.start(org)
        return Response(
            {"run_id": uuid.uuid4().hex} if status == 200 else {"detail": "no"}, status_code=status
        )

    return Litestar([start_run], openapi_config=None, logging_config=None)


def main() -> None:
    url, kind = sys.argv[1:]
    place = socket.socket()
    place.bind(("127.0.0.1", 0))
    place.listen(1024)
    print(f"http://127.0.0.1:{place.getsockname()[1]}", flush=True)
    config = uvicorn.Config(
        application(Lock(url, jittered=kind == "jittered")),
        log_config=None,
        access_log=False,
        http="httptools",
    )
    uvicorn.Server(config).run(sockets=[place])


if __name__ == "__main__":
    main()
