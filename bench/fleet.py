"""A set of worker processes that start together and answer in turn, bounded in time.

Workers come from a fork server that has imported what they need, so a hundred of them start in about a
second and share nothing with the bench but a pipe. Every wait here has a limit: a bench that hangs is a
bench that fails.
"""

from __future__ import annotations

import multiprocessing
import time
from collections.abc import Callable, Sequence
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from types import TracebackType
from typing import Any

_CONTEXT = multiprocessing.get_context("forkserver")
_CONTEXT.set_forkserver_preload(["bench.contention", "bench.handoff", "bench.peers.doors"])
_HEAD_START_S = 0.05
"""From the order to start until the start, so that every worker has read it."""


class BenchError(Exception):
    """A worker died or did not answer."""


class Fleet:
    """``work(pipe, *arguments)`` in one process per tuple of arguments."""

    def __init__(self, work: Callable[..., None], arguments: Sequence[tuple[object, ...]]) -> None:
        self._pipes: list[Connection[Any, Any]] = []
        self._processes: list[BaseProcess] = []
        for given in arguments:
            here, there = _CONTEXT.Pipe()
            process = _CONTEXT.Process(target=work, args=(there, *given), daemon=True)
            process.start()
            there.close()
            self._pipes.append(here)
            self._processes.append(process)

    def gather(self, *, timeout_s: float = 30.0) -> list[Any]:
        """One message from each worker."""
        deadline = time.monotonic() + timeout_s
        return [self.hear(i, timeout_s=deadline - time.monotonic()) for i in range(len(self._pipes))]

    def hear(self, index: int, *, timeout_s: float = 30.0) -> Any:
        pipe = self._pipes[index]
        if not pipe.poll(max(0.0, timeout_s)):
            raise BenchError(f"worker {index} did not answer within {timeout_s:.0f} s")
        try:
            return pipe.recv()
        except EOFError as error:
            raise BenchError(f"worker {index} died") from error

    def tell(self, index: int, message: object) -> None:
        self._pipes[index].send(message)

    def tell_all(self, message: object) -> None:
        for pipe in self._pipes:
            pipe.send(message)

    def start_together(self) -> float:
        """Wait until all are ready, then give everyone the same moment to begin."""
        self.gather()
        begin = time.monotonic() + _HEAD_START_S
        self.tell_all(begin)
        return begin

    def __enter__(self) -> Fleet:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for pipe in self._pipes:
            pipe.close()
        for process in self._processes:
            process.join(0.0 if error else 5.0)
            if process.is_alive():
                process.kill()
                process.join()
            process.close()


def begin_together(pipe: Connection[Any, Any]) -> float:
    """The worker's side of ``start_together``; returns the moment."""
    pipe.send("ready")
    begin: float = pipe.recv()
    time.sleep(max(0.0, begin - time.monotonic()))
    return begin
