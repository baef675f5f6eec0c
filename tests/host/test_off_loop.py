"""Blocking calls from an event loop: finished although cancelled, on threads of their own."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Awaitable, Callable

import pytest

from flyball.host.off_loop import Threads, WorkerThreads, finish

Call = Callable[[Callable[[], object]], Awaitable[object]]


async def cancel_during(call: Call, run: Callable[[], object]) -> tuple[asyncio.Task[object], list[str]]:
    """Cancel a call that has begun, twice, and let it go on; what happened, in order."""
    begun, go_on = threading.Event(), threading.Event()
    order: list[str] = []

    def work() -> object:
        begun.set()
        go_on.wait(30)
        order.append("the call ended")
        return run()

    async def caller() -> object:
        return await call(work)

    task = asyncio.create_task(caller())
    task.add_done_callback(lambda _: order.append("the caller ended"))
    await asyncio.to_thread(begun.wait, 30)
    for _ in range(2):
        task.cancel()
        await asyncio.sleep(0)
    go_on.set()
    await asyncio.wait({task})
    return task, order


def finishing_calls() -> list[tuple[str, Call, Callable[[], None]]]:
    threads, workers = Threads(2, "test"), WorkerThreads(2, "test")
    to_thread: Call = lambda run: finish(asyncio.to_thread(run))  # noqa: E731 (a table of calls)
    return [
        ("Threads", threads.call, threads.close),
        ("WorkerThreads", workers.call, workers.close),
        ("finish", to_thread, lambda: None),
    ]


@pytest.mark.parametrize("which", range(3))
def test_a_call_that_was_begun_ends_before_its_cancellation_is_passed_on(which: int) -> None:
    _, call, close = finishing_calls()[which]

    async def main() -> None:
        task, order = await cancel_during(call, lambda: None)
        assert task.cancelled()
        assert order == ["the call ended", "the caller ended"]
        await asyncio.to_thread(close)

    asyncio.run(main())


def test_a_cancelled_call_that_fails_says_so_as_the_cause() -> None:
    def fail() -> None:
        raise ValueError("half done")

    async def main() -> None:
        threads = Threads(1, "test")
        task, _ = await cancel_during(threads.call, fail)
        with pytest.raises(asyncio.CancelledError) as caught:
            await task
        assert isinstance(caught.value.__cause__, ValueError)
        threads.close()

    asyncio.run(main())


def test_a_call_that_only_looks_is_let_go_by_a_cancelled_caller() -> None:
    async def main() -> None:
        threads, begun, go_on = Threads(1, "test"), threading.Event(), threading.Event()

        def work() -> bool:
            begun.set()
            return go_on.wait(30)

        async def look() -> object:
            return await threads.begin(work)

        task = asyncio.create_task(look())
        await asyncio.to_thread(begun.wait, 30)
        task.cancel()
        await asyncio.wait({task})
        assert task.cancelled()
        go_on.set()
        threads.close()

    asyncio.run(main())


@pytest.mark.parametrize("which", range(3))
def test_results_and_errors_are_the_callers(which: int) -> None:
    _, call, close = finishing_calls()[which]

    def fail() -> None:
        raise ValueError("no")

    async def main() -> None:
        assert await call(lambda: 7) == 7
        with pytest.raises(ValueError, match="no"):
            await call(fail)
        await asyncio.to_thread(close)

    asyncio.run(main())


def test_a_timeout_around_a_call_ends_after_it() -> None:
    async def main() -> None:
        threads, ended = Threads(1, "test"), threading.Event()

        def work() -> None:
            threading.Event().wait(0.05)
            ended.set()

        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0):
                await threads.call(work)
        assert ended.is_set()
        threads.close()

    asyncio.run(main())


def test_threads_are_bounded_and_named() -> None:
    threads = Threads(2, "flyball-test")

    async def main() -> set[str]:
        names = [threads.call(lambda: threading.current_thread().name) for _ in range(20)]
        return set(await asyncio.gather(*names))

    names = asyncio.run(main())
    assert names <= {"flyball-test_0", "flyball-test_1"}
    threads.close()


def test_a_forked_child_starts_threads_of_its_own() -> None:
    threads = Threads(1, "test")
    assert threads.submit(os.getpid).result(30) == os.getpid()
    child = os.fork()
    if child == 0:
        os._exit(threads.submit(os.getpid).result(30) != os.getpid())
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    threads.close()


def test_one_wake_of_the_loop_serves_all_calls_that_ended_meanwhile() -> None:
    async def main() -> None:
        workers, woken = WorkerThreads(1, "test"), 0
        loop = asyncio.get_running_loop()
        wake = loop.call_soon_threadsafe

        def counted(*args: object) -> object:
            nonlocal woken
            woken += 1
            return wake(*args)  # type: ignore[arg-type]

        loop.call_soon_threadsafe = counted  # type: ignore[method-assign, assignment]
        begun = threading.Event()
        calls = [asyncio.ensure_future(workers.call(lambda: None)) for _ in range(9)]
        calls.append(asyncio.ensure_future(workers.call(begun.set)))
        await asyncio.sleep(0)
        begun.wait(30)  # the loop stands still while the threads work
        await asyncio.gather(*calls)
        assert woken <= 2
        assert workers.busy == 0
        await asyncio.to_thread(workers.close)

    asyncio.run(main())
