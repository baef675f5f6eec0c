"""Flows: the order of things, driven in a thread and on an event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator
from typing import Any

import pytest

from flyball.host.flow import drive, drive_async

Flow = Generator[str, Any, Any]


def in_thread(flow: Flow, perform: Callable[[str], Any]) -> Any:
    return drive(flow, perform)


def on_loop(flow: Flow, perform: Callable[[str], Any]) -> Any:
    async def perform_async(effect: str) -> Any:
        await asyncio.sleep(0)
        return perform(effect)

    return asyncio.run(drive_async(flow, perform_async))


both = pytest.mark.parametrize("run", [in_thread, on_loop])
Run = Callable[[Flow, Callable[[str], Any]], Any]


@both
def test_effects_are_performed_in_order_and_their_results_sent_back(run: Run) -> None:
    def flow() -> Flow:
        first = yield "a"
        second = yield "b"
        return first, second

    assert run(flow(), str.upper) == ("A", "B")


@both
def test_a_flow_without_effects_returns_at_once(run: Run) -> None:
    def flow() -> Flow:
        yield from ()
        return 7

    assert run(flow(), str.upper) == 7


@both
def test_an_effects_error_is_the_flows_to_handle(run: Run) -> None:
    def fail(effect: str) -> str:
        if effect == "bad":
            raise ValueError(effect)
        return effect

    def flow() -> Flow:
        try:
            yield "bad"
        except ValueError:
            return (yield "instead")

    assert run(flow(), fail) == "instead"


@both
def test_an_error_that_the_flow_does_not_handle_is_the_callers(run: Run) -> None:
    def flow() -> Flow:
        yield "x"

    def fail(effect: str) -> None:
        raise ValueError(effect)

    with pytest.raises(ValueError, match="x"):
        run(flow(), fail)


def test_a_cancelled_flow_cleans_up_with_effects_of_its_own() -> None:
    performed: list[str] = []

    def flow() -> Flow:
        try:
            yield "wait"
        finally:
            yield "clean up"

    async def perform(effect: str) -> None:
        performed.append(effect)
        if effect == "wait":
            await asyncio.Event().wait()

    async def main() -> None:
        task = asyncio.create_task(drive_async(flow(), perform))
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(main())
    assert performed == ["wait", "clean up"]


@pytest.mark.parametrize("abandons", [True, False])
def test_a_driver_that_is_closed_abandons_the_flow_or_tells_it(abandons: bool) -> None:
    heard: list[str] = []

    def flow() -> Flow:
        try:
            yield "wait"
        except GeneratorExit:
            heard.append("flow")
            raise

    async def perform(_: str) -> None:
        await asyncio.Event().wait()

    steps = flow()
    driver = drive_async(steps, perform, abandon=(lambda: heard.append("abandoned")) if abandons else None)
    loop = asyncio.new_event_loop()
    task = loop.create_task(driver)
    loop.call_soon(loop.stop)
    loop.run_forever()
    driver.close()
    assert heard == (["abandoned"] if abandons else ["flow"])
    steps.close()
    # The task is told that its coroutine is gone, so that the loop ends without a complaint.
    task.cancel()
    loop.call_soon(loop.stop)
    loop.run_forever()
    loop.close()
