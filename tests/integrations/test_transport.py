"""The transports over both libraries of the family, against answers from a script."""

from __future__ import annotations

import asyncio
import gzip
import json
import time
from collections.abc import Callable, Iterator
from typing import Any

import anyio
import pytest

from flyball import Governor, Pool
from flyball.core.signals import SignalKind
from flyball.integrations.httpx_wire import ERROR_BODY_BYTES
from tests.integrations.kit import THROTTLE, Listener, Night, Pieces, Scripted, drop, pool_of
from tests.integrations.transports import URL, async_client_of, client_of


def test_a_throttle_is_retried_with_the_slot_free_and_told_once(lib: Any, gov: Governor) -> None:
    gate, in_use = Listener(Pool(gov, "p")), []
    night = Night(lambda _: in_use.append(pool_of(gov).in_use))
    answers = Scripted(lib, [429, 429, 429, 200])
    with client_of(lib, gate, answers, night) as client:
        reply = client.post(URL, json={"q": 1})
    assert reply.json() == {"ok": True}
    assert gate.kinds == [SignalKind.THROTTLED, SignalKind.OK]
    assert in_use == [0, 0, 0]
    assert answers.bodies == [reply.request.content] * 4
    assert (pool_of(gov).in_use, pool_of(gov).throttle_count) == (0, 1)


def test_on_an_event_loop_too(lib: Any, gov: Governor) -> None:
    gate, in_use = Listener(Pool(gov, "p")), []
    night = Night(lambda _: in_use.append(pool_of(gov).in_use))

    async def main() -> Any:
        answers = Scripted(lib, [429, lib.ReadTimeout("late"), 200])
        async with async_client_of(lib, gate, answers.answer_async, night) as client:
            return (await client.post(URL, json={"q": 1})).json()

    assert asyncio.run(main()) == {"ok": True}
    assert gate.kinds == [SignalKind.THROTTLED, SignalKind.TIMEOUT, SignalKind.OK]
    assert (in_use, pool_of(gov).in_use) == ([0, 0], 0)


def test_an_error_that_is_handed_over_can_still_be_read(lib: Any, night: Night) -> None:
    gate = Listener()
    with client_of(lib, gate, Scripted(lib, [429]), night) as client:
        reply = client.post(URL)
    assert (reply.status_code, reply.json()) == (429, THROTTLE)
    assert (gate.kinds, gate.in_use, len(night.slept)) == ([SignalKind.THROTTLED], 0, 4)


def test_an_encoded_error_is_understood_and_given_on_as_it_came(lib: Any, night: Night) -> None:
    said = {"error": {"code": "insufficient_quota", "message": "no money"}}

    def answers(_: Any) -> Any:
        stream = Pieces(lib).of(gzip.compress(json.dumps(said).encode()))
        return lib.Response(429, headers={"content-encoding": "gzip"}, stream=stream)

    gate = Listener()
    with client_of(lib, gate, answers, night) as client:
        assert client.post(URL).json() == said
    assert (gate.kinds, night.slept) == ([SignalKind.CREDIT_GONE], [])


def test_a_huge_error_is_not_swallowed(lib: Any, night: Night) -> None:
    page = [b"x" * 1000] * (2 * ERROR_BODY_BYTES // 1000)
    gate = Listener()

    def answers(_: Any) -> Any:
        return lib.Response(400, stream=Pieces(lib).of(*page))

    with client_of(lib, gate, answers, night) as client, client.stream("POST", URL) as reply:
        assert gate.in_use == 1
        assert reply.read() == b"".join(page)
    assert gate.in_use == 0


def test_a_wait_that_the_provider_asked_for_is_kept(lib: Any, night: Night) -> None:
    answers = Scripted(lib, [429, 200], retry_after="7")
    with client_of(lib, Listener(), answers, night) as client:
        client.post(URL)
    assert night.slept == [7.25]


def test_a_forbidden_retry_is_not_made(lib: Any, night: Night) -> None:
    answers = Scripted(lib, [529], x_should_retry="false")
    with client_of(lib, Listener(), answers, night) as client:
        assert client.post(URL).status_code == 529
    assert night.slept == []


def test_without_a_policy_nothing_is_retried(lib: Any, night: Night) -> None:
    with client_of(lib, Listener(), Scripted(lib, [429, 200]), night, retry=None) as client:
        assert client.post(URL).status_code == 429


def test_a_body_that_cannot_be_sent_twice_is_sent_once(lib: Any, night: Night) -> None:
    def upload() -> Iterator[bytes]:
        yield b"part"

    sent = 0

    def answers(request: Any) -> Any:
        nonlocal sent
        sent += 1
        assert request.read() == b"part"
        return lib.Response(429)

    with client_of(lib, Listener(), answers, night) as client:
        assert client.post(URL, content=upload()).status_code == 429
    assert sent == 1


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("ConnectTimeout", SignalKind.TIMEOUT),
        ("ReadTimeout", SignalKind.TIMEOUT),
        ("ConnectError", SignalKind.TIMEOUT),
        ("RemoteProtocolError", SignalKind.SERVER_ERROR),
    ],
)
def test_no_answer_is_told_and_tried_again(lib: Any, night: Night, name: str, kind: SignalKind) -> None:
    gate, error = Listener(), getattr(lib, name)("gone")
    with client_of(lib, gate, Scripted(lib, [error, error, 200]), night) as client:
        assert client.post(URL).status_code == 200
        with pytest.raises(getattr(lib, name)):
            client_of(lib, gate, Scripted(lib, [error]), night).post(URL)
    assert gate.kinds == [kind, SignalKind.OK, kind]
    assert gate.in_use == 0


@pytest.mark.parametrize("name", ["PoolTimeout", "UnsupportedProtocol"])
def test_what_is_not_about_the_provider_is_not_told(lib: Any, night: Night, name: str) -> None:
    gate, error = Listener(), getattr(lib, name)("ours")
    with client_of(lib, gate, Scripted(lib, [error]), night) as client, pytest.raises(getattr(lib, name)):
        client.post(URL)
    assert (gate.told, gate.ends, night.slept) == ([], [name], [])


def test_an_explanation_that_does_not_come_leaves_the_status(lib: Any, night: Night) -> None:
    def answers(_: Any) -> Any:
        return lib.Response(429, stream=Pieces(lib).of(b"{", lib.ReadError("cut off")))

    gate = Listener()
    with client_of(lib, gate, answers, night) as client, pytest.raises(lib.ReadError):
        client.post(URL)
    assert (gate.kinds, gate.in_use, len(night.slept)) == ([SignalKind.THROTTLED], 0, 4)


# -- streams ----------------------------------------------------------------------------------------


def parted(lib: Any, *parts: bytes | Exception) -> Callable[[Any], Any]:
    return lambda _: lib.Response(200, stream=Pieces(lib).of(*parts))


def test_a_stream_holds_its_slot_until_it_is_closed(lib: Any, gov: Governor, night: Night) -> None:
    with client_of(lib, Pool(gov, "p"), parted(lib, b"a", b"b"), night) as client:
        with client.stream("GET", URL) as reply:
            parts = reply.iter_raw()
            assert next(parts) == b"a"
            assert pool_of(gov).in_use == 1
        assert pool_of(gov).in_use == 0


def test_a_stream_that_is_read_to_its_end_is_over(lib: Any, gov: Governor, night: Night) -> None:
    with client_of(lib, Pool(gov, "p"), parted(lib, b"a", b"b"), night) as client:
        reply = client.send(client.build_request("GET", URL), stream=True)
        assert b"".join(reply.stream) == b"ab"
        assert pool_of(gov).in_use == 0
        reply.close()


def test_a_stream_on_an_event_loop_holds_its_slot_too(lib: Any, gov: Governor, night: Night) -> None:
    async def main() -> None:
        async with async_client_of(lib, Pool(gov, "p"), parted(lib, b"a", b"b"), night) as client:
            async with client.stream("GET", URL) as reply:
                parts = reply.aiter_raw()
                assert await anext(parts) == b"a"
                assert pool_of(gov).in_use == 1
            assert pool_of(gov).in_use == 0
            assert (await client.get(URL)).content == b"ab"
        assert pool_of(gov).in_use == 0

    asyncio.run(main())


def test_a_stream_that_stalls_is_told_and_frees_its_slot(lib: Any, night: Night) -> None:
    gate = Listener()
    answers = parted(lib, b"a", lib.ReadTimeout("stalled"))
    with client_of(lib, gate, answers, night) as client, pytest.raises(lib.ReadTimeout):
        client.get(URL)
    assert gate.kinds == [SignalKind.OK, SignalKind.TIMEOUT]
    assert (gate.in_use, len(gate.ends), night.slept) == (0, 1, [])


def test_an_error_while_reading_frees_the_slot_on_an_event_loop(lib: Any, night: Night) -> None:
    async def main() -> None:
        gate = Listener()
        answers = parted(lib, b"a", lib.ReadError("cut off"))
        async with async_client_of(lib, gate, answers, night) as client:
            with pytest.raises(lib.ReadError):
                await client.get(URL)
        assert (gate.kinds, gate.in_use) == ([SignalKind.OK], 0)

    asyncio.run(main())


def test_an_answer_that_is_never_closed_gives_its_slot_back_when_it_is_collected(
    lib: Any, gov: Governor, night: Night
) -> None:
    client = client_of(lib, Pool(gov, "p"), parted(lib, b"a"), night)
    held = [client.send(client.build_request("GET", URL), stream=True)]
    assert pool_of(gov).in_use == 1
    with pytest.warns(ResourceWarning, match="never closed"):
        drop(held)
    until = time.monotonic() + 10
    while pool_of(gov).in_use and time.monotonic() < until:
        time.sleep(0.001)
    assert pool_of(gov).in_use == 0


def test_on_an_event_loop_it_does_too(lib: Any, gov: Governor, night: Night) -> None:
    async def main() -> None:
        client = async_client_of(lib, Pool(gov, "p"), parted(lib, b"a"), night)
        held = [await client.send(client.build_request("GET", URL), stream=True)]
        with pytest.warns(ResourceWarning, match="never closed"):
            drop(held)
        async with asyncio.timeout(10):
            while pool_of(gov).in_use:
                await asyncio.sleep(0.001)

    asyncio.run(main())


def test_cancelling_at_any_point_leaves_no_slot_behind(lib: Any, gov: Governor, night: Night) -> None:
    async def hang(_: Any) -> Any:
        await asyncio.sleep(60)

    async def main() -> None:
        client = async_client_of(lib, Pool(gov, "p"), hang, night)
        tasks = [asyncio.create_task(client.get(URL)) for _ in range(3)]
        async with asyncio.timeout(10):
            while pool_of(gov).in_use + pool_of(gov).waiting < 3:
                await asyncio.sleep(0.001)
        for task in tasks:
            task.cancel()
        assert all(
            isinstance(e, asyncio.CancelledError)
            for e in await asyncio.gather(*tasks, return_exceptions=True)
        )

    asyncio.run(main())
    assert (pool_of(gov).in_use, pool_of(gov).waiting) == (0, 0)


def test_a_cancel_scope_that_expires_leaves_no_slot_behind(lib: Any, gov: Governor, night: Night) -> None:
    async def stall() -> Any:
        yield b"a"
        await asyncio.sleep(60)

    async def main() -> None:
        def answers(_: Any) -> Any:
            return lib.Response(200, content=stall())

        async with async_client_of(lib, Pool(gov, "p"), answers, night) as client:
            with anyio.move_on_after(0.05) as scope:
                await client.get(URL)
        assert scope.cancelled_caught

    asyncio.run(main())
    assert pool_of(gov).in_use == 0
