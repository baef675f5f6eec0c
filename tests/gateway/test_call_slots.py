"""The slots of calls while the store is away, on an event loop and a store that fails when told to."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pytest

from flyball.core.pool.model import Outcome
from flyball.core.signals import Signal, SignalKind
from flyball.errors import StoreError
from flyball.gateway import call_slots, store_health
from flyball.gateway.call_slots import CallGate, CallSlots
from flyball.governor.ask import asking_for
from flyball.governor.flow_drivers import store_threads
from flyball.governor.governor import Governor
from flyball.governor.internals import internals
from flyball.host.clock import boot_seconds
from flyball.integrations.held_slot import AsyncHold
from flyball.testing import FaultyStore
from tests.waiting import until

AWAY = ("admit", "poll", "withdraw", "release", "report", "note")
LATEST_S = 60.0


class Scene:
    """A pool, a store that can be taken away, and the slots of the calls over both."""

    def __init__(self, folder: Path) -> None:
        self.governor = Governor(f"sqlite:///{folder}/governor.db")
        self.behind = internals(self.governor)
        self.real = self.behind.store
        self.store = FaultyStore(self.real)
        self.behind._store = self.store.port
        self.weights: dict[str, float] = {}

    def run(self, story: Callable[[CallSlots], Awaitable[None]]) -> None:
        async def tell() -> None:
            slots = CallSlots(self.governor, lambda _: self.weights)
            try:
                await asyncio.wait_for(story(slots), LATEST_S)
            finally:
                slots.close()

        asyncio.run(tell())

    def cap(self, slots: int) -> None:
        self.governor.set_pool("p", cap=slots, adaptive=False)

    def go(self, slots: CallSlots, *, maybe_done: bool = False) -> None:
        """The store is away from now on."""
        error = StoreError("away")
        error.maybe_done = maybe_done
        self.store.break_on(*AWAY, error=error)
        slots.health.fail(error)

    async def come_back(self, slots: CallSlots) -> None:
        self.store.mend()
        await slots.health.wait_for_answer(asyncio.get_running_loop().time() + LATEST_S)

    @property
    def in_use(self) -> int:
        return next(pool.in_use for pool in self.governor.status().pools if pool.name == "p")


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[Scene]:
    scene = Scene(tmp_path)
    yield scene
    scene.governor.close()


def take(slots: CallSlots, project: str = "a") -> asyncio.Task[AsyncHold]:
    deadline = asyncio.get_running_loop().time() + LATEST_S
    gate = CallGate(slots, asking_for("p", project=project, name="t"), deadline)
    return asyncio.ensure_future(AsyncHold.of(gate, {}))


async def in_line(slots: CallSlots, *projects: str) -> dict[asyncio.Task[AsyncHold], str]:
    """Calls of these projects that wait, in this order."""
    before, tasks = slots.waiting, {}
    for number, project in enumerate(projects):
        tasks[take(slots, project)] = f"{project}{number}"
        while slots.waiting < before + number + 1:
            await asyncio.sleep(0)
    return tasks


async def served(waiting: dict[asyncio.Task[AsyncHold], str], hold: AsyncHold) -> list[str]:
    """In which order those in line go out, each when the one before has ended."""
    order = []
    while waiting:
        await hold.free()
        (first,), _ = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        order.append(waiting.pop(first))
        hold = first.result()
    await hold.free()
    return order


async def settled(condition: Callable[[], object], what: str) -> None:
    await asyncio.to_thread(until, condition, what)


@contextmanager
def store_at_work() -> Iterator[None]:
    """The store's thread is busy with another step."""
    go_on = threading.Event()
    store_threads().submit(partial(go_on.wait, LATEST_S))
    try:
        yield
    finally:
        go_on.set()


def test_a_call_that_finds_room_waits_for_no_other_step_of_the_store(scene: Scene) -> None:
    scene.cap(3)
    scene.behind._store = scene.real

    async def story(slots: CallSlots) -> None:
        await (await take(slots)).free()  # the project is known from now on
        with store_at_work():
            hold = await asyncio.wait_for(take(slots), LATEST_S / 2)
        await hold.free()

    scene.run(story)


def test_a_call_that_finds_room_does_not_overtake_those_that_wait(scene: Scene) -> None:
    scene.cap(3)

    async def story(slots: CallSlots) -> None:
        await (await take(slots)).free()
        with store_at_work():
            first = await in_line(slots, "a")
            scene.behind._store = scene.real
            both = {**first, **await in_line(slots, "a")}
        for waiting in both:
            await (await waiting).free()

    scene.run(story)


def test_the_slot_of_a_call_that_ends_in_an_outage_goes_to_the_next_and_back_to_the_pool_afterwards(
    scene: Scene,
) -> None:
    scene.cap(1)

    async def story(slots: CallSlots) -> None:
        first = await take(slots)
        scene.go(slots)
        assert await served(await in_line(slots, "a", "a", "a"), first) == ["a0", "a1", "a2"]
        assert scene.in_use == 1
        await scene.come_back(slots)
        await settled(lambda: scene.in_use == 0, "the slot came back")
        await (await take(slots)).free()

    scene.run(story)


def test_a_call_that_comes_in_an_outage_takes_a_slot_that_no_call_waited_for(scene: Scene) -> None:
    scene.cap(2)

    async def story(slots: CallSlots) -> None:
        both = [await take(slots), await take(slots)]
        scene.go(slots)
        for hold in both:
            await hold.free()
        again = [await take(slots), await take(slots)]
        third = take(slots)
        await settled(lambda: slots.waiting == 1, "the third waits")
        await scene.come_back(slots)
        for hold in again:
            await hold.free()
        await (await third).free()
        assert scene.in_use == 0

    scene.run(story)


def test_no_slot_that_was_not_held_is_used_in_an_outage(scene: Scene) -> None:
    scene.cap(4)

    async def story(slots: CallSlots) -> None:
        scene.go(slots)
        waiting = take(slots)
        await asyncio.sleep(2 * store_health.AGAIN_S)
        assert not waiting.done()
        await scene.come_back(slots)
        await (await waiting).free()

    scene.run(story)


def test_those_that_stood_in_the_stores_line_when_it_went_away_are_served_too(scene: Scene) -> None:
    scene.cap(1)

    async def story(slots: CallSlots) -> None:
        first = await take(slots)
        waiting = await in_line(slots, "a", "a")
        await settled(lambda: scene.governor.status().pools[0].waiting == 2, "both stand in line")
        scene.go(slots)
        assert await served(waiting, first) == ["a0", "a1"]
        await scene.come_back(slots)
        await settled(lambda: scene.in_use == 0, "the slot came back")
        assert scene.governor.status().pools[0].waiting == 0

    scene.run(story)


def test_in_an_outage_projects_take_turns_however_many_calls_of_one_wait(scene: Scene) -> None:
    scene.cap(1)

    async def story(slots: CallSlots) -> None:
        first = await take(slots)
        scene.go(slots)
        waiting = await in_line(slots, "a", "a", "a", "b", "b")
        assert await served(waiting, first) == ["a0", "b3", "a1", "b4", "a2"]

    scene.run(story)


def test_in_an_outage_projects_weigh_what_they_weigh_in_the_pool(scene: Scene) -> None:
    scene.cap(1)
    scene.weights = {"b": 2.0}

    async def story(slots: CallSlots) -> None:
        first = await take(slots)
        scene.go(slots)
        waiting = await in_line(slots, "a", "a", "b", "b", "b", "b")
        assert await served(waiting, first) == ["a0", "b2", "b3", "a1", "b4", "b5"]

    scene.run(story)


def test_a_lease_that_may_be_gone_is_not_handed_on(scene: Scene) -> None:
    scene.cap(1)

    async def story(slots: CallSlots) -> None:
        first = await take(slots)
        error = StoreError("no answer")
        error.maybe_done = True
        scene.store.break_on(*AWAY, error=error)
        await first.free()
        waiting = take(slots)
        await asyncio.sleep(2 * store_health.AGAIN_S)
        assert not waiting.done()
        await scene.come_back(slots)
        await (await waiting).free()
        assert scene.in_use == 0

    scene.run(story)


def test_a_provider_that_said_to_stay_away_is_left_alone_in_an_outage(scene: Scene) -> None:
    scene.cap(1)

    async def story(slots: CallSlots) -> None:
        first = await take(slots)
        scene.go(slots)
        waiting = take(slots)
        told_at = asyncio.get_running_loop().time()
        await first.tell(Signal(SignalKind.THROTTLED, 1.0), news=True)
        await first.free()
        await (await waiting).free()
        assert asyncio.get_running_loop().time() >= told_at + 1.0

    scene.run(story)


def test_no_lease_is_handed_on_for_so_long_that_its_server_may_have_given_it_to_others(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    scene.cap(1)

    async def story(slots: CallSlots) -> None:
        first = await take(slots)
        scene.go(slots)
        late = boot_seconds() + call_slots.HANDED_ON_S + 1
        monkeypatch.setattr("flyball.gateway.store_health.boot_seconds", lambda: late)
        waiting = take(slots)
        await first.free()
        await asyncio.sleep(2 * store_health.AGAIN_S)
        assert not waiting.done()
        await scene.come_back(slots)
        await (await waiting).free()

    scene.run(story)


def test_a_call_that_is_given_up_as_it_is_handed_a_slot_leaves_it_to_the_next(scene: Scene) -> None:
    scene.cap(1)

    async def story(slots: CallSlots) -> None:
        first = await take(slots)
        scene.go(slots)
        given_up, waiting = await in_line(slots, "a", "a")
        await first.free()
        given_up.cancel()
        await (await waiting).free()
        assert given_up.cancelled()

    scene.run(story)


def test_what_the_calls_on_one_lease_used_is_told_together(scene: Scene) -> None:
    scene.governor.set_pool("p", cap=1, adaptive=False, windows={"tokens": "1000/min", "requests": "10/min"})

    async def story(slots: CallSlots) -> None:
        hold = await take(slots)
        scene.go(slots)
        for _ in range(3):
            waiting = take(slots)
            hold.settle({"tokens": 100})
            await hold.free()
            hold = await waiting
        await hold.free()
        await scene.come_back(slots)
        await settled(lambda: scene.in_use == 0, "the slot came back")

    scene.run(story)
    left = {window.name: window.left for window in scene.governor.status().pools[0].windows}
    assert left["tokens"] == pytest.approx(700, abs=30)
    assert left["requests"] == pytest.approx(6, abs=1)


def test_releases_behind_one_that_hangs_are_taken_back_and_handed_on(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first is lost to the calls until the store answers: it may have been done."""
    scene.cap(2)
    hangs = asyncio.Event()

    async def story(slots: CallSlots) -> None:
        loop = asyncio.get_running_loop()
        both = [await take(slots), await take(slots)]

        def hang(_: object) -> None:
            asyncio.run_coroutine_threadsafe(hangs.wait(), loop).result()
            error = StoreError("no answer")
            error.maybe_done = True
            raise error

        monkeypatch.setattr(scene.store, "release", hang, raising=False)
        ended = asyncio.gather(*(hold.free() for hold in both))
        waiting = take(slots)
        third = await waiting
        await ended
        hangs.set()
        monkeypatch.undo()
        await third.free()
        await scene.come_back(slots)
        await settled(lambda: scene.in_use == 0, "both slots came back")

    scene.run(story)


def test_a_release_that_was_certainly_not_written_leaves_the_lease_held(scene: Scene) -> None:
    lease = scene.governor.acquire("p")
    scene.store.break_on("release")
    assert scene.behind.try_release(lease, Outcome.FINISHED) is not None
    scene.store.mend()
    assert scene.in_use == 1
    assert scene.behind.try_release(lease, Outcome.FINISHED) is None
    assert scene.in_use == 0
