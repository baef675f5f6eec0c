"""Gates that listen, time that is slept through, and providers that answer from a script."""

from __future__ import annotations

import gc
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any

from flyball import Governor
from flyball.core.signals import Signal, SignalKind
from flyball.governor.status import PoolStatus
from flyball.integrations.gate import Gate, SlotRequest, SlotTicket
from flyball.integrations.retry import RetryEnvironment

Script = Sequence[int | Exception]
THROTTLE = {"error": {"type": "rate_limit_error", "message": "slow down"}}


def drop(held: list[Any]) -> None:
    """Forget what has no other holder, cycles included."""
    held.clear()
    gc.collect()


def pool_of(gov: Governor, name: str = "p") -> PoolStatus:
    return next(pool for pool in gov.status().pools if pool.name == name)


class Night:
    """Sleeps are written down and take no time; chance is a half."""

    def __init__(self, during: Callable[[float], object] = lambda _: None) -> None:
        self.slept: list[float] = []
        self._during = during

    def _sleep(self, for_s: float) -> None:
        self.slept.append(for_s)
        self._during(for_s)

    async def _sleep_async(self, for_s: float) -> None:
        self._sleep(for_s)

    @property
    def world(self) -> RetryEnvironment:
        return RetryEnvironment(clock=lambda: 1000.0, chance=lambda: 0.5, sleep=self._sleep)

    @property
    def world_async(self) -> RetryEnvironment:
        return RetryEnvironment(clock=lambda: 1000.0, chance=lambda: 0.5, sleep=self._sleep_async)


@dataclass
class Listener:
    """A gate around another (or none) that notes what was told, and how each slot ended."""

    around: Gate | None = None
    told: list[Signal] = field(default_factory=list)
    ends: list[str] = field(default_factory=list)
    in_use: int = 0

    def slot(self, *, timeout: float | None = None) -> _Slot:
        options = {} if timeout is None else {"timeout": timeout}
        return _Slot(self, None if self.around is None else self.around.slot(**options))

    @property
    def kinds(self) -> list[SignalKind]:
        return [signal.kind for signal in self.told]


class _Slot:
    def __init__(self, listener: Listener, entry: SlotRequest | None) -> None:
        self._listener, self._entry = listener, entry
        self._ticket: SlotTicket | None = None

    def __enter__(self) -> _Slot:
        self._ticket = self._entry.__enter__() if self._entry else None
        return self._began()

    async def __aenter__(self) -> _Slot:
        self._ticket = await self._entry.__aenter__() if self._entry else None
        return self._began()

    def _began(self) -> _Slot:
        self._listener.in_use += 1
        return self

    def report(self, status: Signal) -> None:
        self._listener.told.append(status)
        if self._ticket is not None:
            self._ticket.report(status)

    def _over(self, kind: type[BaseException] | None) -> None:
        self._listener.in_use -= 1
        self._listener.ends.append("" if kind is None else kind.__name__)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._over(kind)
        if self._entry is not None:
            self._entry.__exit__(kind, error, trace)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._over(kind)
        if self._entry is not None:
            await self._entry.__aexit__(kind, error, trace)


class Scripted:
    """A handler for a ``MockTransport``: answers in order, the last one for ever."""

    def __init__(self, library: Any, script: Script, **headers: str) -> None:
        self._library, self._script = library, list(script)
        self._headers = {name.replace("_", "-"): value for name, value in headers.items()}
        self.bodies: list[bytes] = []

    def __call__(self, request: Any) -> Any:
        self.bodies.append(request.content)
        said = self._script.pop(0) if len(self._script) > 1 else self._script[0]
        if isinstance(said, Exception):
            raise said
        body = json.dumps({"ok": True} if said < 400 else THROTTLE).encode()
        headers = {"content-type": "application/json", **(self._headers if said >= 400 else {})}
        # A stream, as from a socket: the answer is open until it is read or closed.
        return self._library.Response(said, headers=headers, stream=Pieces(self._library).of(body))

    async def answer_async(self, request: Any) -> Any:
        return self(request)


class Pieces:
    """A body in two pieces that can be read by a thread or a task, once."""

    def __init__(self, library: Any) -> None:
        base = (library.SyncByteStream, library.AsyncByteStream)
        self._stream = type("Stream", (_Stream, *base), {})

    def of(self, *parts: bytes | Exception) -> Any:
        return self._stream(parts)


class _Stream:
    def __init__(self, parts: Sequence[bytes | Exception]) -> None:
        self._parts = parts
        self.closed = 0

    def __iter__(self) -> Any:
        for part in self._parts:
            if isinstance(part, Exception):
                raise part
            yield part

    async def __aiter__(self) -> Any:
        for part in self:
            yield part

    def close(self) -> None:
        self.closed += 1

    async def aclose(self) -> None:
        self.closed += 1
