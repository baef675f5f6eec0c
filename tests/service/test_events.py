"""Live events: one look for all who watch, news only, and nothing left behind when they go."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from flyball.core.signals import Signal, SignalKind
from flyball.errors import StoreError
from flyball.governor.governor import Governor
from flyball.observe.metrics import LOOKS
from flyball.service import streams
from flyball.service.store_reader import StoreReader, StoreSnapshot
from tests.service.kit import Events, Running, Wire
from tests.waiting import until

THROTTLED = Signal(SignalKind.THROTTLED)


def news(words: str) -> Signal:
    """A signal that leaves a fact and changes nothing."""
    return Signal(SignalKind.CREDIT_GONE, detail=words)


def test_a_watcher_is_told_at_once_how_things_are(running: Running) -> None:
    running.service.governor.set_pool("first", cap=3)
    with Events(running.port) as events:
        assert events.about("state", "first")[0]["cap"] == 3


def test_a_change_is_told(running: Running) -> None:
    governor = running.service.governor
    governor.set_pool("change", cap=3, adaptive=False)
    with Events(running.port) as events:
        governor.set_pool("change", cap=7)
        until(lambda: events.about("state", "change")[-1]["cap"] == 7, "the new cap")


def test_time_alone_is_not_news(tmp_path: Path) -> None:
    governor = Governor("memory:")
    governor.set_pool("p", cap=2, controller="koryph")
    governor.report("p", THROTTLED, project="p", name="n")
    with Running(governor, tmp_path) as server:
        lease = governor.acquire_nowait("p", project="p", name="n")
        with Events(server.port) as events:
            registry = server.service.registry
            looks = registry.number(LOOKS, status="answered")
            until(lambda: registry.number(LOOKS, status="answered") >= looks + 4, "four more looks")
            assert len(events.named("state")) == 1, "a lease and a settle that grow older are not told again"
            governor.release(lease)
            until(lambda: events.about("state", "p")[-1]["in_use"] == 0, "the release")


def test_many_changes_are_told_twice_a_second_at_most(running: Running) -> None:
    governor = running.service.governor
    governor.set_pool("often", cap=1, adaptive=False)
    with Events(running.port) as events:
        began = time.monotonic()
        for cap in range(2, 60):
            governor.set_pool("often", cap=cap)
            running.client.get("/v1/status")
        until(lambda: events.about("state", "often")[-1]["cap"] == 59, "the last one")
        assert len(events.named("state")) <= 2 + (time.monotonic() - began) / 0.5


def test_each_fact_is_told_once_and_in_order(running: Running) -> None:
    with Events(running.port) as events:
        for number in range(6):
            running.service.governor.report("facts", news(f"n{number}"))
        until(lambda: len(events.about("fact", "facts")) >= 6, "six facts")
        told = events.about("fact", "facts")
    assert [fact["words"][-2:] for fact in told] == [f"n{number}" for number in range(6)]
    numbers = [int(fact["id"].rpartition("-")[2]) for fact in told]
    assert numbers == list(range(numbers[0], numbers[0] + 6))
    assert [event_id for name, _, event_id in events.seen if name == "fact"][-6:] == [f["id"] for f in told]


def test_facts_that_are_alike_are_all_told(running: Running) -> None:
    with Events(running.port) as events:
        for _ in range(3):
            running.service.governor.report("alike", news("again"))
        until(lambda: len(events.about("fact", "alike")) == 3, "three of them")


def test_a_watcher_that_comes_back_is_told_what_it_missed(running: Running) -> None:
    governor = running.service.governor
    with Events(running.port) as events:
        for words in ("seen", "missed"):
            governor.report("back", news(words))
        until(lambda: len(events.about("fact", "back")) == 2, "both")
        first = events.about("fact", "back")[0]["id"]
    with Events(running.port, {"Last-Event-ID": first}) as again:
        until(lambda: again.about("fact", "back"), "what was missed")
        assert [fact["words"].endswith("missed") for fact in again.about("fact", "back")] == [True]


@pytest.mark.parametrize("last", ["nonsense", "x-9", "-", "x" * 64, "a-" + "9" * 60])
def test_a_last_id_that_was_never_given_is_harmless(running: Running, last: str) -> None:
    with Events(running.port, {"Last-Event-ID": last}) as events:
        assert events.status == 200


@contextmanager
def watching(running: Running, count: int) -> Iterator[None]:
    """So many more, none of whom reads anything."""
    before = len(running.service.watch.streams)
    wires = [Wire(running.port) for _ in range(count)]
    try:
        for wire in wires:
            wire.send(b"GET /v1/events HTTP/1.1\r\nHost: localhost\r\n\r\n")
        # One of an earlier test may be on its way out.
        until(lambda: len(running.service.watch.streams) >= count, "they watch")
        yield
    finally:
        for wire in wires:
            wire.close()
    until(lambda: len(running.service.watch.streams) <= before, "they are gone")


def test_a_stream_that_ends_leaves_nothing_behind(running: Running) -> None:
    for _ in range(3):
        with watching(running, 20):
            pass


def test_a_hundred_streams_cost_as_many_looks_as_one(running: Running) -> None:
    def looks() -> float:
        return running.service.registry.number(LOOKS, status="answered")

    with watching(running, 100):
        began, before = time.monotonic(), looks()
        until(lambda: looks() >= before + 3, "some looks")
        assert looks() - before <= 2 * (time.monotonic() - began) + 2


def test_too_many_streams_are_refused(running: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streams, "MOST_STREAMS", 0)
    answer = running.client.get("/v1/events")
    assert (answer.status_code, answer.json()["type"]) == (503, "urn:flyball:too-many-streams")
    assert "retry-after" in answer.headers


def test_a_quiet_stream_has_a_heartbeat(running: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streams, "HEARTBEAT_S", 0.05)
    with Events(running.port) as events:
        until(lambda: [1 for name, _, _ in events.seen if not name], "a comment")


def test_every_stream_gets_a_last_event_when_the_server_ends(tmp_path: Path) -> None:
    with Running(Governor("memory:"), tmp_path) as server, ExitStack() as stack:
        events = [stack.enter_context(Events(server.port)) for _ in range(3)]
        server.server.handle_exit(15, None)
        for each in events:
            until(lambda each=each: each.over, "the end")  # type: ignore[misc]
            assert each.seen[-1][0] == "end"
        assert server.client.get("/readyz").status_code == 503
        assert server.client.get("/healthz").status_code == 200
        late = stack.enter_context(Events(server.port))
        until(lambda: late.over, "the end at once")
        assert [name for name, _, _ in late.seen] == ["state", "end"]


def test_a_second_signal_does_not_wait(tmp_path: Path) -> None:
    with Running(Governor("memory:"), tmp_path) as server, Events(server.port):
        server.server.handle_exit(2, None)
        until(lambda: server.service.draining, "it ends")
        assert not server.server.should_exit
        server.server.handle_exit(2, None)
        until(lambda: server.server.force_exit, "it ends now")


class BrokenLooker(StoreReader):
    """A store that answers when the test wants it to."""

    broken = False

    def look(self) -> StoreSnapshot:
        if self.broken:
            raise StoreError("the store is gone")
        return super().look()


def test_an_outage_is_told_once_and_the_state_when_it_is_over(tmp_path: Path) -> None:
    governor = Governor("memory:")
    governor.set_pool("p", cap=2)
    with Running(governor, tmp_path) as server:
        looker = BrokenLooker(governor)
        server.service.watch._looking = looker
        with Events(server.port) as events:
            looker.broken = True
            assert events.wait_for("outage") == [{"detail": "the store is gone"}]
            assert server.client.get("/v1/status").status_code == 503
            assert server.client.get("/healthz").status_code == 200
            unready = server.client.get("/readyz")
            assert (unready.status_code, "the store is gone" in unready.text) == (503, False)
            before = len(events.named("state"))
            looker.broken = False
            events.wait_for("state", before + 1)
            assert len(events.named("outage")) == 1
        until(lambda: server.client.get("/readyz").status_code == 200, "ready again")


def test_a_long_absence_does_not_cost_the_state() -> None:
    async def first() -> bytes:
        missed = [streams.event("fact", b"{}", f"a-{number}") for number in range(2 * streams.FACTS_HELD)]
        chunks = streams.Stream(streams.event("state", b"{}"), missed).chunks()
        await anext(chunks)
        told = await anext(chunks)
        await chunks.aclose()
        return told

    told = asyncio.run(first())
    assert told.count(b"event: state") == 1
    assert told.count(b"event: fact") == streams.FACTS_HELD
    assert b"id: a-999\n" in told
