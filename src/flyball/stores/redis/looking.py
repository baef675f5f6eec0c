"""Looking at pools on a server, and setting them: the code of the other stores over an image."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager

from flyball.core.model import Fact
from flyball.errors import StoreBusyError, invariant
from flyball.stores.desk import World
from flyball.stores.port import After
from flyball.stores.redis import planner, records, share_records
from flyball.stores.redis.image import Image, PoolState
from flyball.stores.redis.steps import RedisSteps, state_of
from flyball.stores.rows import Rows
from flyball.stores.verbs import Verbs

ROUNDS = 16


class OnImage(Verbs):
    """The verbs of the other stores. What they write stays in the image."""

    def __init__(self, world: World, image: Image) -> None:
        super().__init__(world)
        self._image = image

    @contextmanager
    def _write(self) -> Iterator[Rows]:
        yield self._image

    def _read(self) -> AbstractContextManager[Rows]:
        return self._write()

    def _peek(self) -> AbstractContextManager[Rows]:
        return self._write()

    def close(self) -> None:
        return None


class RedisLooking(RedisSteps):
    """Reads of whole pools, and changes that are made in an image and swapped in."""

    def _image(self, *pools: str) -> Image:
        """Some pools as they are now."""
        states = [state for pool in pools if (state := self._whole(pool)).fields]
        image = Image(max((state.now for state in states), default=0.0) or self.now())
        for state in states:
            image.load(state)
        return image

    def _whole(self, pool: str) -> PoolState:
        now, row, events, demands, claims, hosts, shares, targets, epoch = self._run_once(
            "read_pool", pool, ""
        )
        fields, projects = records.split_uses(records.pairs(row))
        return PoolState(
            pool=pool,
            now=float(now),
            fields=fields,
            events=events,
            projects=projects,
            demands=records.pairs(demands),
            claims={int(claim_id): line for claim_id, line in records.pairs(claims).items()},
            hosts=records.pairs(hosts),
            shares=share_records.shares_of(shares, targets),
            epoch=epoch,
        )

    def _everything(self) -> OnImage:
        return OnImage(self._world, self._image(*self._registry.pools()))

    @contextmanager
    def _peek(self) -> Iterator[Rows]:
        yield self._image(*self._registry.pools())

    def _change(self, pool: str, work: Callable[[OnImage], After]) -> After:
        """Let ``work`` change a pool as on any store, and swap that in."""
        after = After()
        if self._unwritten or self._unheard:
            # What makes no sense is refused before anything is made good.
            work(OnImage(self._world, self._changed(self._state(pool))))
            self._carry(after)
        for _ in range(ROUNDS):
            image = self._changed(self._state(pool))
            image.notices += work(OnImage(self._world, image)).notices
            if self._drive("do_serve", pool, "", after, swap=image.changes()) != "moved":
                return after
        raise StoreBusyError(f"pool {pool!r} changes all the time; try again")

    def _changed(self, state: PoolState) -> Image:
        """An image that has heard what the pool's inbox holds."""
        image = Image(state.now)
        image.load(state)
        if state.events:
            planner.hear(image, state, self._world)
        return image

    def _state(self, pool: str) -> PoolState:
        reply = self._run_once("do_serve", pool, "state")
        invariant(reply[0] == "plan", "asked for its state, a pool tells it")
        return state_of(pool, reply)

    def facts(self, *, limit: int) -> list[Fact]:
        """The newest of all pools: of one pool in the order in which they happened, between pools by time."""
        lists = [
            (pool, f"{self._registry.key_of(pool)}{kind}-facts")
            for pool in self._registry.pools()
            for kind in ("ask", "pool")
        ]
        answers = self._server.ask_all([("LRANGE", key, 0, limit - 1) for _, key in lists])
        found: list[tuple[float, int, Fact]] = []
        for (pool, _), lines in zip(lists, answers, strict=True):
            for line in lines:
                number, *rest = line.split("\t")
                fact = records.fact_of(pool, rest)
                found.append((fact.at, int(number), fact))
        newest = sorted(found, key=lambda entry: entry[:2], reverse=True)
        return [fact for _, _, fact in newest[:limit]]
