"""Servers behind a gate: 503 with Retry-After at once when full, and no slot is ever lost."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any
from wsgiref.util import setup_testing_defaults
from wsgiref.validate import validator

import httpx
import pytest

from flyball import Governor, Pool
from flyball.core.signals import SignalKind
from flyball.integrations import asgi, wsgi
from tests.cases import every
from tests.integrations.kit import Listener, drop, pool_of

# -- asgi -------------------------------------------------------------------------------------------


class App:
    """Answers when it is told to."""

    def __init__(self, status: int = 200, error: Exception | None = None) -> None:
        self.status, self.error = status, error
        self.entered, self.leave = asyncio.Semaphore(0), asyncio.Event()
        self.seen: list[str] = []

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        self.seen.append(scope["type"])
        if scope["type"] != "http":
            return
        self.entered.release()
        await self.leave.wait()
        if self.error is not None:
            raise self.error
        await send({"type": "http.response.start", "status": self.status, "headers": []})
        await send({"type": "http.response.body", "body": b"served"})


def asgi_client(app: Any) -> httpx.AsyncClient:
    return httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://test")


def test_asgi_sheds_what_does_not_fit(gov: Governor) -> None:
    async def main() -> None:
        app = App()
        async with asgi_client(asgi.Shed(app, Pool(gov, "p"))) as client:
            first = asyncio.create_task(client.get("/"))
            await app.entered.acquire()
            shed = await client.get("/")
            app.leave.set()
            served = await first
        assert (served.status_code, served.text) == (200, "served")
        assert shed.status_code == 503
        assert int(shed.headers["retry-after"]) >= 1
        assert shed.headers["content-type"] == "application/problem+json"
        assert (shed.json()["status"], shed.json()["reason"]) == (503, "cap")
        assert str(gov.address) not in shed.text

    asyncio.run(main())
    assert (pool_of(gov).in_use, pool_of(gov).waiting) == (0, 0)


def test_asgi_may_wait_a_moment(gov: Governor) -> None:
    async def main() -> None:
        app = App()
        async with asgi_client(asgi.Shed(app, Pool(gov, "p"), wait_s=10)) as client:
            tasks = [asyncio.create_task(client.get("/")) for _ in range(3)]
            await app.entered.acquire()
            app.leave.set()
            assert [reply.status_code for reply in await asyncio.gather(*tasks)] == [200] * 3

    asyncio.run(main())
    assert pool_of(gov).in_use == 0


@every(
    "status, kind",
    [
        (200, SignalKind.OK),
        (404, SignalKind.OK),
        (429, SignalKind.OK),
        (500, SignalKind.SERVER_ERROR),
        (503, SignalKind.SERVER_ERROR),
    ],
)
def test_asgi_tells_no_throttle_of_its_own_making(status: int, kind: SignalKind) -> None:
    async def main() -> None:
        gate, app = Listener(), App(status)
        app.leave.set()
        async with asgi_client(asgi.Shed(app, gate)) as client:
            assert (await client.get("/")).status_code == status
        assert (gate.kinds, gate.in_use) == ([kind], 0)

    asyncio.run(main())


def test_asgi_passes_an_error_on_and_frees_the_slot() -> None:
    async def main() -> None:
        gate, app = Listener(), App(error=KeyError("bug"))
        app.leave.set()
        async with asgi_client(asgi.Shed(app, gate)) as client:
            with pytest.raises(KeyError):
                await client.get("/")
        assert (gate.kinds, gate.ends) == ([SignalKind.SERVER_ERROR], ["KeyError"])

    asyncio.run(main())


def test_asgi_frees_the_slot_of_a_request_that_is_cancelled() -> None:
    async def main() -> None:
        gate, app = Listener(), App()
        async with asgi_client(asgi.Shed(app, gate)) as client:
            task = asyncio.create_task(client.get("/"))
            await app.entered.acquire()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
        assert (gate.told, gate.in_use, len(gate.ends)) == ([], 0, 1)

    asyncio.run(main())


@pytest.mark.parametrize("kind", ["lifespan", "websocket"])
def test_asgi_lets_everything_else_pass(gov: Governor, kind: str) -> None:
    async def nothing(*_: Any) -> None: ...

    async def main() -> None:
        app = App()
        with gov.slot("p"):
            await asgi.Shed(app, Pool(gov, "p"))({"type": kind}, nothing, nothing)  # type: ignore[arg-type]
        assert app.seen == [kind]

    asyncio.run(main())


# -- wsgi -------------------------------------------------------------------------------------------


def answering(status: str = "200 OK", parts: Iterable[bytes] = (b"ser", b"ved")) -> Any:
    def app(environ: Any, start_response: Callable[..., Any]) -> Iterable[bytes]:
        start_response(status, [("Content-Type", "text/plain")])
        return list(parts) if not callable(parts) else parts()

    return app


def call(app: Any) -> tuple[str, dict[str, str], Any]:
    """As a server does; the answer is not yet read or closed."""
    environ: dict[str, Any] = {}
    setup_testing_defaults(environ)
    head: list[Any] = []

    def start_response(status: str, headers: Any, exc_info: Any = None) -> Callable[[bytes], object]:
        head[:] = [status, dict(headers)]
        return lambda data: None

    answer = app(environ, start_response)
    return head[0], head[1], answer


def test_wsgi_holds_the_slot_until_the_answer_is_closed(gov: Governor) -> None:
    app = wsgi.Shed(answering(), Pool(gov, "p"))
    status, _, answer = call(app)
    assert (status, b"".join(answer), pool_of(gov).in_use) == ("200 OK", b"served", 1)
    answer.close()
    answer.close()
    assert pool_of(gov).in_use == 0


def test_wsgi_sheds_what_does_not_fit(gov: Governor) -> None:
    app = wsgi.Shed(answering(), Pool(gov, "p"))
    _, _, first = call(app)
    status, headers, shed = call(app)
    first.close()
    assert status == "503 Service Unavailable"
    assert int(headers["retry-after"]) >= 1
    assert headers["content-type"] == "application/problem+json"
    assert b'"status": 503' in b"".join(shed)
    assert (pool_of(gov).in_use, pool_of(gov).waiting) == (0, 0)


def test_wsgi_keeps_to_the_rules_of_wsgi(gov: Governor) -> None:
    transport = httpx.WSGITransport(validator(wsgi.Shed(validator(answering()), Pool(gov, "p"))))
    with httpx.Client(transport=transport, base_url="http://test") as client:
        assert client.get("/").text == "served"
        with gov.slot("p"):
            assert client.get("/").status_code == 503
    assert pool_of(gov).in_use == 0


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        ("404 Not Found", SignalKind.OK),
        ("503 Full", SignalKind.SERVER_ERROR),
        ("odd", SignalKind.SERVER_ERROR),
    ],
)
def test_wsgi_tells_no_throttle_of_its_own_making(status: str, kind: SignalKind) -> None:
    gate = Listener()
    call(wsgi.Shed(answering(status), gate))[2].close()
    assert (gate.kinds, gate.in_use) == ([kind], 0)


def test_wsgi_passes_errors_on_and_frees_the_slot_once() -> None:
    def broken(environ: Any, start_response: Any) -> Iterable[bytes]:
        raise KeyError("bug")

    def breaking() -> Iterator[bytes]:
        yield b"some"
        raise KeyError("bug")

    gate = Listener()
    with pytest.raises(KeyError):
        call(wsgi.Shed(broken, gate))
    _, _, answer = call(wsgi.Shed(answering(parts=breaking), gate))  # type: ignore[arg-type]
    with pytest.raises(KeyError):
        list(answer)
    answer.close()
    assert (gate.kinds, gate.ends) == ([SignalKind.SERVER_ERROR] * 2, ["KeyError"] * 2)


def test_wsgi_closes_the_applications_answer() -> None:
    closed: list[bool] = []

    class Parts(list[bytes]):
        def close(self) -> None:
            closed.append(True)

    call(wsgi.Shed(answering(parts=lambda: Parts([b"x"])), Listener()))[2].close()  # type: ignore[arg-type]
    assert closed == [True]


def test_wsgi_gives_back_what_a_server_forgets_to_close() -> None:
    gate = Listener()
    held = [call(wsgi.Shed(answering(), gate))[2]]
    with pytest.warns(ResourceWarning, match="never closed"):
        drop(held)
    until = time.monotonic() + 10
    while gate.in_use and time.monotonic() < until:
        time.sleep(0.001)
    assert gate.in_use == 0
