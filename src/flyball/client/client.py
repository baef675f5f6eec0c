"""The two clients: one for threads, one for event loops. Both are safe to share.

Credentials go into one header and nowhere else: not into messages, logs or ``repr``.
"""

from __future__ import annotations

import asyncio
import time
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self
from urllib.parse import quote

import httpx2
import msgspec

from flyball.client import requests
from flyball.client.lease import AsyncRemoteLease, AsyncRemoteSlot, Held, OnLost, RemoteLease, RemoteSlot
from flyball.client.renewer import LeaseRenewer
from flyball.client.requests import LOST, Nap, Send, ServiceResponse
from flyball.client.retry_policy import Policy, named_policy
from flyball.core.pool.model import Outcome
from flyball.core.pool.settings import DEFAULT_POOL, check_timeout
from flyball.errors import FlyballError, UsageError
from flyball.governor.ask import AskOptions, asking_for
from flyball.host.event_loop import asyncio_loop
from flyball.host.flow import drive, drive_async

if TYPE_CHECKING:
    from typing import Unpack

POLICY_KEPT_S = 60.0
CONNECTIONS = httpx2.Limits(max_connections=1000, max_keepalive_connections=50)


class _Common:
    """What both clients know."""

    def __init__(self, url: str, *, token: str, ttl_s: float, policy: Policy | None) -> None:
        if not url.startswith(("http://", "https://")):
            raise UsageError(f"the address of a server begins with http:// or https://, not {url[:40]!r}")
        self.url, self.ttl_s = url.rstrip("/"), ttl_s
        self._headers = {"Authorization": f"Bearer {token}"} if token else {}
        self._policy = policy
        self._told: Policy | None = None
        self._told_at = float("-inf")
        self._beating = httpx2.Client(base_url=self.url, headers=self._headers, timeout=10.0)
        self._renewer = LeaseRenewer(lambda lease: _send(self._beating, lease.renewing()).status)

    def _known_policy(self) -> Policy | None:
        """The policy, if it is known without asking the server."""
        named = self._policy or named_policy()
        if named is None and time.monotonic() - self._told_at < POLICY_KEPT_S:
            return self._told
        return named

    def _hear_policy(self, answer: ServiceResponse) -> Policy:
        """An older server, or one that does not answer, says nothing: then the defaults hold."""
        try:
            self._told = msgspec.convert(answer.body, Policy) if answer.status == 200 else Policy()
        except msgspec.ValidationError:
            self._told = Policy()
        self._told_at = time.monotonic()
        return self._told

    def _wish(self, pool: str, timeout: float | None, options: AskOptions) -> requests.LeaseRequest:
        check_timeout(timeout)
        asking = asking_for(pool, **options)
        body: dict[str, Any] = {
            "project": asking.project,
            "name": asking.name,
            "slots": asking.slots,
            "priority": asking.priority,
            "ttl_s": self.ttl_s,
        }
        if asking.model:
            body["model"] = asking.model
        if asking.cost:
            body["cost"] = dict(asking.cost)
        if asking.resources:
            raise UsageError("resources are counted by one machine; leave them out when you ask over HTTP")
        return requests.LeaseRequest(
            asking.pool, f"/v1/pools/{quote(asking.pool, safe='')}/leases", body, timeout
        )

    def _close(self) -> None:
        self._renewer.close()
        self._beating.close()

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {self.url}>"


class Client(_Common):
    """Asks a server for slots, from threads."""

    def __init__(
        self, url: str, *, token: str = "", ttl_s: float = 60.0, policy: Policy | None = None
    ) -> None:
        super().__init__(url, token=token, ttl_s=ttl_s, policy=policy)
        self._http = httpx2.Client(base_url=self.url, headers=self._headers, limits=CONNECTIONS)

    def slot(
        self,
        pool: str = DEFAULT_POOL,
        *,
        timeout: float | None = None,
        on_lost: OnLost | None = None,
        **ask: Unpack[AskOptions],
    ) -> RemoteSlot:
        """A lease for a ``with`` block; waits for it, at most ``timeout`` seconds."""
        return RemoteSlot(partial(self.acquire, pool, timeout=timeout, on_lost=on_lost, **ask))

    def acquire(
        self,
        pool: str = DEFAULT_POOL,
        *,
        timeout: float | None = None,
        on_lost: OnLost | None = None,
        **ask: Unpack[AskOptions],
    ) -> RemoteLease:
        """Slots, to be released. ``timeout=0``: now, or a ``RefusedError`` by the policy."""
        wish = self._wish(pool, timeout, ask)
        body = drive(requests.acquire(wish, self.policy), self._perform)
        lease = RemoteLease(self, body, on_lost)
        self._renewer.keep(lease)
        return lease

    def send(self, send: Send) -> None:
        """One request; an error where the answer is no."""
        drive(requests.call(send), self._perform)

    def release(self, lease: Held, outcome: Outcome | str = Outcome.FINISHED, *, words: str = "") -> None:
        """Give the slots back. A server that cannot be reached now takes them back by itself."""
        if lease.take_release():
            self._renewer.let_go(lease)
            _send(self._http, lease.releasing(outcome, words))

    @property
    def policy(self) -> Policy:
        """How it tries again now."""
        return self._known_policy() or self._hear_policy(_send(self._http, Send("GET", "/v1/policy")))

    def _perform(self, effect: Send | Nap) -> ServiceResponse | None:
        if isinstance(effect, Send):
            return _send(self._http, effect)
        time.sleep(effect.for_s)
        return None

    def close(self) -> None:
        """Let go of connections. Leases that are still held end with their time."""
        self._close()
        self._http.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class AsyncClient(_Common):
    """``Client`` for an event loop. Renewals do not depend on the loop."""

    def __init__(
        self, url: str, *, token: str = "", ttl_s: float = 60.0, policy: Policy | None = None
    ) -> None:
        super().__init__(url, token=token, ttl_s=ttl_s, policy=policy)
        self._http = httpx2.AsyncClient(base_url=self.url, headers=self._headers, limits=CONNECTIONS)

    def slot(
        self,
        pool: str = DEFAULT_POOL,
        *,
        timeout: float | None = None,
        on_lost: OnLost | None = None,
        **ask: Unpack[AskOptions],
    ) -> AsyncRemoteSlot:
        """A lease for an ``async with`` block; waits for it, at most ``timeout`` seconds."""
        return AsyncRemoteSlot(partial(self.acquire, pool, timeout=timeout, on_lost=on_lost, **ask))

    async def acquire(
        self,
        pool: str = DEFAULT_POOL,
        *,
        timeout: float | None = None,
        on_lost: OnLost | None = None,
        **ask: Unpack[AskOptions],
    ) -> AsyncRemoteLease:
        """Slots, to be released. Cancelling it leaves no place in line behind."""
        wish = self._wish(pool, timeout, ask)
        body = await drive_async(requests.acquire(wish, await self.policy()), self._perform)
        lease = AsyncRemoteLease(self, body, on_lost)
        self._renewer.keep(lease)
        return lease

    async def send(self, send: Send) -> None:
        """One request; an error where the answer is no."""
        await drive_async(requests.call(send), self._perform)

    async def release(
        self, lease: Held, outcome: Outcome | str = Outcome.FINISHED, *, words: str = ""
    ) -> None:
        """Give the slots back."""
        if lease.take_release():
            self._renewer.let_go(lease)
            await asyncio.shield(self._send(lease.releasing(outcome, words)))

    async def policy(self) -> Policy:
        """How it tries again now."""
        return self._known_policy() or self._hear_policy(await self._send(Send("GET", "/v1/policy")))

    async def _perform(self, effect: Send | Nap) -> ServiceResponse | None:
        if isinstance(effect, Send):
            return await self._send(effect)
        await asyncio.sleep(effect.for_s)
        return None

    async def _send(self, send: Send) -> ServiceResponse:
        asyncio_loop()
        try:
            answer = await self._http.request(
                send.method, send.path, json=send.body, headers=send.headers, timeout=send.timeout_s
            )
        except httpx2.HTTPError as error:
            return _no_answer(error)
        return read_response(answer)

    async def close(self) -> None:
        """Let go of connections. Leases that are still held end with their time."""
        await asyncio.to_thread(self._close)
        await self._http.aclose()

    async def __aenter__(self) -> Self:
        asyncio_loop()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()


def _send(client: httpx2.Client, send: Send) -> ServiceResponse:
    try:
        answer = client.request(
            send.method, send.path, json=send.body, headers=send.headers, timeout=send.timeout_s
        )
    except httpx2.HTTPError as error:
        return _no_answer(error)
    return read_response(answer)


def _no_answer(error: Exception) -> ServiceResponse:
    return ServiceResponse(LOST, {}, {}, f"the server does not answer ({type(error).__name__})")


def read_response(answer: httpx2.Response) -> ServiceResponse:
    """What the server said; an error where something else answered."""
    headers = {name.lower(): value for name, value in answer.headers.items()}
    try:
        body = msgspec.json.decode(answer.content) if answer.content else {}
    except msgspec.DecodeError as error:
        if answer.status_code >= 500:
            # A proxy says in words of its own that the server is away.
            return ServiceResponse(answer.status_code, headers, {})
        raise FlyballError(
            f"what answers at that address is not a flyball server (status {answer.status_code})"
        ) from error
    return ServiceResponse(answer.status_code, headers, body if isinstance(body, dict) else {})
