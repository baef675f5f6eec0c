"""Slots that are held, and the ``with`` block that gets and returns them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any

from flyball.client.requests import Send
from flyball.core.pool.model import Outcome
from flyball.core.signals import Signal, SignalKind
from flyball.errors import Throttled
from flyball.governor.lease import beside, outcome_of, second_use

if TYPE_CHECKING:
    from flyball.client.client import AsyncClient, Client

OnLost = Callable[["Held"], object]


class Held:
    """Slots of a pool, held until released; renewed by its client meanwhile."""

    def __init__(self, told: Mapping[str, Any], on_lost: OnLost | None) -> None:
        self.id: int = told["id"]
        self.pool: str = told["pool"]
        self.project: str = told["project"]
        self.name: str = told["name"]
        self.slots: int = told["slots"]
        self.ttl_s: float = told["ttl_s"]
        self.lost = False
        """The server took it back: it was not renewed in time, or it was released elsewhere."""
        self._token: str = told["token"]
        self._on_lost = on_lost
        self._released = False
        self._said = False

    def lose(self) -> None:
        self.lost = True
        if self._on_lost is not None:
            self._on_lost(self)

    def take_release(self) -> bool:
        """True exactly once: that caller sends the release."""
        first, self._released = not self._released, True
        return first

    # -- what is sent about it ------------------------------------------------------------------------

    def renewing(self) -> Send:
        return self._about("renew", {"ttl_s": self.ttl_s})

    def releasing(self, outcome: Outcome | str, words: str) -> Send:
        return self._about("release", {"outcome": Outcome(outcome).value, "words": words[:1000]})

    def telling(self, status: int | Signal, headers: Mapping[str, str] | None, body: str) -> Send:
        first, self._said = not self._said, True
        if isinstance(status, Signal):
            said: dict[str, Any] = {"kind": status.kind.value, "detail": status.detail[:1000]}
            if status.retry_after_s is not None:
                said["retry_after_s"] = status.retry_after_s
        else:
            said = {"status": status, "headers": dict(headers or {}), "body": body[:16_384]}
        return self._about("signals", {**said, "first": first})

    def _about(self, verb: str, body: Mapping[str, Any]) -> Send:
        return Send("POST", f"/v1/leases/{self.id}/{verb}", body, {"Lease-Token": self._token})

    def __repr__(self) -> str:
        state = "lost" if self.lost else "released" if self._released else "held"
        return f"<{type(self).__name__} {self.id} of {self.pool!r} for {self.project}/{self.name}, {state}>"


class RemoteLease(Held):
    """A lease of a ``Client``."""

    def __init__(self, client: Client, told: Mapping[str, Any], on_lost: OnLost | None = None) -> None:
        super().__init__(told, on_lost)
        self._client = client

    def report(self, status: int | Signal, headers: Mapping[str, str] | None = None, body: str = "") -> None:
        """Tell the pool what the provider said: an HTTP status with headers and body, or a signal."""
        self._client.send(self.telling(status, headers, body))

    def release(self, outcome: Outcome | str = Outcome.FINISHED, *, words: str = "") -> None:
        """Give the slots back. A second call does nothing."""
        self._client.release(self, outcome, words=words)


class AsyncRemoteLease(Held):
    """A lease of an ``AsyncClient``."""

    def __init__(self, client: AsyncClient, told: Mapping[str, Any], on_lost: OnLost | None = None) -> None:
        super().__init__(told, on_lost)
        self._client = client

    async def report(
        self, status: int | Signal, headers: Mapping[str, str] | None = None, body: str = ""
    ) -> None:
        """Tell the pool what the provider said: an HTTP status with headers and body, or a signal."""
        await self._client.send(self.telling(status, headers, body))

    async def release(self, outcome: Outcome | str = Outcome.FINISHED, *, words: str = "") -> None:
        """Give the slots back. A second call does nothing."""
        await self._client.release(self, outcome, words=words)


def throttle_in(error: BaseException | None) -> Signal | None:
    """What a ``Throttled`` that ends the block says; only the block could read it."""
    if isinstance(error, Throttled):
        return Signal(SignalKind.THROTTLED, error.retry_after_s, detail=str(error))
    return None


class RemoteSlot:
    """``with`` around one lease. One use."""

    def __init__(self, acquire: Callable[[], RemoteLease]) -> None:
        self._unused = iter((acquire,))
        self._lease: RemoteLease | None = None

    def __enter__(self) -> RemoteLease:
        acquire = next(self._unused, None)
        if acquire is None:
            raise second_use()
        self._lease = acquire()
        return self._lease

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._lease is not None:
            said = throttle_in(error)
            try:
                if said is not None:
                    with beside(error, self._lease):
                        self._lease.report(said)
            finally:
                with beside(error, self._lease):
                    self._lease.release(outcome_of(kind))


class AsyncRemoteSlot:
    """``async with`` around one lease. One use."""

    def __init__(self, acquire: Callable[[], Awaitable[AsyncRemoteLease]]) -> None:
        self._unused = iter((acquire,))
        self._lease: AsyncRemoteLease | None = None

    async def __aenter__(self) -> AsyncRemoteLease:
        acquire = next(self._unused, None)
        if acquire is None:
            raise second_use()
        self._lease = lease = await acquire()
        return lease

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._lease is not None:
            said = throttle_in(error)
            try:
                if said is not None:
                    with beside(error, self._lease):
                        await self._lease.report(said)
            finally:
                with beside(error, self._lease):
                    await self._lease.release(outcome_of(kind))
