"""A limiter as the gate: of transports, of retries, of servers."""

from __future__ import annotations

import asyncio
from typing import Any

import httpx
import httpx2
import pytest

import flyball
from flyball import Limiter, RetryBudget, RetryPolicy
from flyball.integrations import asgi, httpx2_transport, wsgi
from tests.integrations.kit import Night, Scripted
from tests.integrations.test_shedding import App, answering, asgi_client, call

PATIENT = RetryPolicy(budget=RetryBudget(least=1000))
URL = "https://api.example.com/v1/messages"


def client_of(limiter: Limiter, answers: Any, night: Night, **rules: Any) -> httpx2.Client:
    transport = httpx2_transport.GovernedTransport(
        limiter, over=httpx2.MockTransport(answers), retry=PATIENT, environment=night.world, **rules
    )
    return httpx2.Client(transport=transport)


def test_a_throttled_call_asks_for_less_once_and_its_slot_is_free_while_it_waits() -> None:
    limiter, in_use = Limiter(cap=8, cap_ceiling=8), []
    night = Night(lambda _: in_use.append(limiter.stats().in_use))
    with client_of(limiter, Scripted(httpx2, [429, 429, 429, 200]), night) as client:
        assert client.post(URL).status_code == 200
    assert in_use == [0, 0, 0]
    assert limiter.stats().throttles == 1
    assert limiter.stats().in_use == 0


def test_a_retry_that_is_throttled_again_is_no_silence_so_the_probe_that_it_answers_is_undone() -> None:
    now_s = 0.0
    limiter = Limiter(cap=2, cap_ceiling=8, clock=lambda: now_s)
    held = [limiter.acquire(), limiter.acquire()]
    now_s = 60.0
    answers, caps = Scripted(httpx2, [429, 200]), list[int]()

    def answer(request: httpx2.Request) -> Any:
        caps.append(limiter.stats().cap)
        return answers(request)

    night = Night(lambda _: held.pop().release())
    with client_of(limiter, answer, night) as client:
        assert client.post(URL, headers={"x-stainless-retry-count": "1"}).status_code == 200
    assert caps == [3, 2]


def test_on_an_event_loop_too() -> None:
    limiter, night = Limiter(cap=8, cap_ceiling=8), Night()

    async def main() -> int:
        transport = httpx2_transport.AsyncGovernedTransport(
            limiter,
            over=httpx2.MockTransport(Scripted(httpx2, [429, 503, 429, 200])),
            retry=PATIENT,
            environment=night.world_async,
        )
        async with httpx2.AsyncClient(transport=transport) as client:
            return (await client.post(URL)).status_code

    assert asyncio.run(main()) == 200
    assert limiter.stats().in_use == 0


def test_an_error_that_is_repeated_is_heard_once(night: Night) -> None:
    limiter = Limiter(cap=8, cap_ceiling=8)

    def late() -> None:
        raise TimeoutError

    with pytest.raises(TimeoutError):
        flyball.retry(late, gate=limiter, policy=PATIENT, environment=night.world)
    assert (limiter.stats().throttles, limiter.stats().in_use) == (1, 0)


def test_a_retry_behind_a_limiter_spends_the_limiters_budget(night: Night) -> None:
    limiter, calls = Limiter(cap=8, controller="fixed"), 0

    def dead() -> None:
        nonlocal calls
        calls += 1
        raise TimeoutError

    for policy in (RetryPolicy(), RetryPolicy()):
        for _ in range(10):
            with pytest.raises(TimeoutError):
                flyball.retry(dead, gate=limiter, policy=policy, environment=night.world)
    # Twenty calls, ten retries out of hand, and one for every ten attempts: not ten for each policy.
    assert 20 + 10 <= calls <= 20 + 14
    assert not limiter.may_retry()


def test_a_budget_that_a_policy_names_is_spent_instead(night: Night) -> None:
    limiter, calls = Limiter(cap=8, controller="fixed"), []

    def down() -> httpx2.Response:
        calls.append(1)
        return httpx2.Response(503)

    none = RetryPolicy(budget=RetryBudget(least=0, ratio=0))
    assert flyball.retry(down, gate=limiter, policy=none, environment=night.world).status_code == 503
    assert (len(calls), limiter.stats().retries_left) == (1, 10)
    flyball.retry(down, gate=limiter, environment=night.world)
    assert (len(calls), limiter.stats().retries_left) == (6, 6)


def test_an_estimate_is_taken_from_the_limiters_windows(night: Night) -> None:
    limiter = Limiter(windows={"tokens": "1000/min"})
    estimate = {"estimate": lambda request: {"tokens": 600}, "slot_timeout_s": 0.0}
    with client_of(limiter, Scripted(httpx2, [200]), night, **estimate) as client:
        client.post(URL)
        with pytest.raises(flyball.RefusedError):
            client.post(URL)
    assert limiter.stats().in_use == 0


def test_asgi_sheds_what_the_limiter_refuses() -> None:
    limiter = Limiter(maximum=1)

    async def main() -> None:
        app = App()
        async with asgi_client(asgi.Shed(app, limiter)) as client:
            first = asyncio.create_task(client.get("/"))
            await app.entered.acquire()
            shed = await client.get("/")
            app.leave.set()
            assert (await first).status_code == 200
        assert (shed.status_code, int(shed.headers["retry-after"]) >= 1) == (503, True)

    asyncio.run(main())
    assert limiter.stats().in_use == 0


def test_wsgi_sheds_what_the_limiter_refuses() -> None:
    limiter = Limiter(maximum=1)
    app = wsgi.Shed(answering(), limiter)
    _, _, first = call(app)
    assert call(app)[0].startswith("503")
    first.close()
    with httpx.Client(transport=httpx.WSGITransport(app), base_url="http://test") as client:
        assert client.get("/").text == "served"
    assert limiter.stats().in_use == 0
