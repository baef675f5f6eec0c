"""The Python client against real servers: waits, renewals, refusals, and nothing left behind."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import httpx2
import pytest

import flyball
from flyball.client import AsyncClient, Client, Policy
from flyball.client.client import read_response
from flyball.client.lease import Held
from flyball.client.renewer import LeaseRenewer
from flyball.client.requests import LeaseRequest, Nap, Send, ServiceResponse, acquire
from flyball.client.retry_policy import VARIABLE, delay_s
from flyball.errors import FlyballError
from flyball.governor.governor import Governor
from flyball.governor.internals import internals
from flyball.host.flow import drive
from flyball.service.tokens import Scope
from tests.service.kit import Running
from tests.service.leases_kit import Desk, Later
from tests.waiting import until

NO_RETRY = Policy(retry="none", wait_s=0)
QUICK = Policy(base_s=0.01, budget_s=5)


@pytest.fixture(autouse=True)
def _no_policy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)


@pytest.fixture
def desk(running: Running) -> Desk:
    return Desk(running)


@pytest.fixture
def client(running: Running) -> Iterator[Client]:
    with Client(running.url, policy=QUICK) as client:
        yield client


# -- refused ------------------------------------------------------------------------------------------


def test_a_full_pool_is_refused_as_the_governor_refuses(desk: Desk, running: Running) -> None:
    desk.lease(project="blog", name="t-14")
    with Client(running.url, policy=NO_RETRY) as client, pytest.raises(flyball.AtCapacityError) as refused:
        client.acquire(desk.pool, timeout=0)
    assert (refused.value.pool, refused.value.reason) == (desk.pool, "cap")
    assert 1 <= (refused.value.retry_after_s or 0) <= 30
    assert desk.now["waiting"] == 0


def test_a_wait_that_runs_out_leaves_no_place_behind(desk: Desk, client: Client) -> None:
    desk.lease()
    with pytest.raises(flyball.WaitTimeoutError):
        client.acquire(desk.pool, timeout=1.2)
    desk.until_waiting(0)


def test_a_wait_that_runs_out_before_the_ticket_arrives_gives_the_ticket_back() -> None:
    sent: list[tuple[str, str]] = []

    def perform(effect: Send | Nap) -> ServiceResponse:
        assert isinstance(effect, Send)
        sent.append((effect.method, effect.path))
        return ServiceResponse(202, {}, {"id": "7", "token": "t", "position": 3})

    wish = LeaseRequest("p", "/leases", {}, timeout_s=1e-9)
    with pytest.raises(flyball.WaitTimeoutError) as over:
        drive(acquire(wish, NO_RETRY), perform)
    assert over.value.verdict.position == 3
    assert sent == [("POST", "/leases"), ("DELETE", "/v1/tickets/7")]


def test_a_renewal_that_something_else_answers_is_tried_again() -> None:
    told = {"id": 7, "token": "t", "ttl_s": 0.03, "slots": 1, "pool": "p", "project": "a", "name": "b"}
    lease, renewed = Held(told, None), threading.Event()
    answers = iter([FlyballError("not a flyball server")])

    def renew(_: Held) -> int:
        for error in answers:
            raise error
        renewed.set()
        return 200

    renewer = LeaseRenewer(renew)
    renewer.keep(lease)
    assert renewed.wait(30)
    renewer.close()


@pytest.mark.parametrize(("status", "words"), [(502, ""), (404, "not a flyball server")])
def test_a_proxy_that_says_in_html_that_the_server_is_away_is_waited_for(status: int, words: str) -> None:
    response = httpx2.Response(status, html="<h1>no</h1>")
    if words:
        with pytest.raises(FlyballError, match=words):
            read_response(response)
    else:
        assert read_response(response).status == status


def test_an_ask_that_can_never_be_granted_is_said_at_once(desk: Desk, client: Client) -> None:
    with pytest.raises(flyball.TooLargeError):
        client.acquire(desk.pool, slots=99)


def test_a_server_that_is_not_there_is_a_store_error(client: Client) -> None:
    with (
        Client("http://127.0.0.1:9", policy=NO_RETRY) as nowhere,
        pytest.raises(flyball.StoreError, match="answer"),
    ):
        nowhere.acquire("p", timeout=0)
    with pytest.raises(flyball.UsageError, match="http://"):
        Client("redis://x")


def test_a_token_that_may_not_lease_is_a_usage_error(guarded: Running) -> None:
    token = guarded.tokens.add("client-read", Scope.READ)
    with (
        Client(guarded.url, token=token, policy=NO_RETRY) as client,
        pytest.raises(flyball.UsageError, match="lease"),
    ):
        client.acquire("p")


def test_the_token_is_shown_nowhere(guarded: Running, caplog: pytest.LogCaptureFixture) -> None:
    token = guarded.tokens.add("client-lease", Scope.LEASE)
    with (
        caplog.at_level(logging.DEBUG),
        Client(guarded.url, token=token) as client,
        client.slot("secret") as lease,
    ):
        shown = f"{client!r} {lease!r} {client.policy!r} {caplog.text}"
        assert token not in shown
        assert lease._token not in shown


# -- granted ------------------------------------------------------------------------------------------


def test_a_block_holds_a_slot_and_says_how_it_ended(desk: Desk, client: Client) -> None:
    with client.slot(desk.pool, project="blog", name="t-1") as lease:
        assert (lease.pool, lease.project, lease.slots) == (desk.pool, "blog", 1)
        assert desk.now["in_use"] == 1
    assert desk.now["in_use"] == 0
    with pytest.raises(flyball.Throttled), client.slot(desk.pool):
        raise flyball.Throttled(retry_after_s=3)
    assert desk.now["in_use"] == 0
    assert desk.now["status"]["throttle_count"] >= 1


def test_a_slot_used_again_is_refused_and_the_first_lease_goes_back(desk: Desk, client: Client) -> None:
    slot = client.slot(desk.pool, project="blog", name="t-1")
    with slot, pytest.raises(flyball.UsageError, match="one use"), slot:
        pass
    assert desk.now["in_use"] == 0
    with pytest.raises(flyball.UsageError, match="timeout must be"):
        client.acquire(desk.pool, timeout=float("nan"))


def test_a_server_that_goes_away_hides_no_error_of_the_block(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def in_a_thread(server: Running, up: ExitStack) -> None:
        with Client(server.url, policy=NO_RETRY) as client, client.slot("p", project="blog", name="t-1"):
            up.close()
            raise flyball.Throttled("mine")

    async def in_a_loop(server: Running, up: ExitStack) -> None:
        client = AsyncClient(server.url, policy=NO_RETRY)
        async with client, client.slot("p", project="blog", name="t-2"):
            await asyncio.to_thread(up.close)
            raise flyball.Throttled("mine")

    for work in (in_a_thread, lambda server, up: asyncio.run(in_a_loop(server, up))):
        with ExitStack() as up:
            server = up.enter_context(Running(Governor("memory:"), tmp_path))
            with pytest.raises(flyball.Throttled, match="mine"):
                work(server, up)
    assert caplog.text.count("failed besides") == 2


def test_a_line_is_stood_in_until_the_slot_comes(desk: Desk, client: Client) -> None:
    lease = desk.lease()
    later = Later(lambda: client.acquire(desk.pool))
    desk.until_waiting(1)
    desk.release(lease)
    later.answer.release()  # type: ignore[attr-defined]
    assert desk.now["in_use"] == 0


def test_a_wait_longer_than_one_request_keeps_its_place(desk: Desk, running: Running) -> None:
    lease = desk.lease()
    with Client(running.url, ttl_s=200, policy=Policy(wait_s=1)) as client:
        first = Later(lambda: client.acquire(desk.pool))
        desk.until_waiting(1)
        second = desk.ticket()
        # Its first request has ended, and it asks about its ticket.
        until(lambda: _asked_again(desk, second), "a second request")
        desk.release(lease)
        served = first.answer
        assert served.id < second["id"]  # type: ignore[attr-defined]
        assert desk.client.get(f"/v1/leases/{served.id}").json()["expires_in_s"] > 100  # type: ignore[attr-defined]


def _asked_again(desk: Desk, later: dict[str, object]) -> bool:
    asks = desk.now["status"]["asks"]
    first = next(ask for ask in asks if ask["id"] != later["id"])
    return float(first["waiting_s"]) > 1.1


def test_a_lease_is_renewed_off_the_loop_while_work_blocks_it(desk: Desk, running: Running) -> None:
    async def main() -> None:
        async with (
            AsyncClient(running.url, ttl_s=6.0, policy=QUICK) as client,
            client.slot(desk.pool) as lease,
        ):
            # The loop is blocked all the while, and yet the lease is renewed.
            until(lambda: _renewed(desk, lease.id, 6.0), "it was renewed")
            assert not lease.lost

    asyncio.run(main())
    assert desk.now["in_use"] == 0


def _renewed(desk: Desk, lease_id: int, ttl_s: float) -> bool:
    seen = desk.client.get(f"/v1/leases/{lease_id}").json()
    return bool(seen["since_s"] + seen["expires_in_s"] > ttl_s + 0.5)


def test_a_lease_that_was_taken_back_is_told(desk: Desk, running: Running) -> None:
    told: list[object] = []
    with Client(running.url, ttl_s=0.3, policy=QUICK) as client:
        lease = client.acquire(desk.pool, on_lost=told.append)
        behind = internals(running.service.governor)
        behind.reclaim([(lease.id, behind.store.claim(lease.id).holder)])  # type: ignore[union-attr]
        until(lambda: told == [lease], "it is told")
        assert lease.lost
        lease.release()


def test_many_tasks_of_one_loop_share_a_pool(running: Running) -> None:
    desk = Desk(running, 3)
    most = 0

    async def work(client: AsyncClient) -> None:
        nonlocal most
        async with client.slot(desk.pool):
            most = max(most, _in_use(desk))
            await asyncio.sleep(0)

    async def main() -> None:
        async with AsyncClient(running.url, policy=QUICK) as client:
            await asyncio.gather(*(work(client) for _ in range(20)))

    asyncio.run(main())
    assert 1 <= most <= 3
    assert desk.now["in_use"] == desk.now["waiting"] == 0


def _in_use(desk: Desk) -> int:
    pools = internals(desk.server.service.governor).store.snapshot().pools
    return next(pool.in_use for pool in pools if pool.name == desk.pool)


def test_a_cancelled_wait_leaves_no_place_behind(desk: Desk, running: Running) -> None:
    desk.lease()

    async def main() -> None:
        async with AsyncClient(running.url, policy=QUICK) as client:
            waiting = asyncio.create_task(client.acquire(desk.pool))
            await asyncio.to_thread(desk.until_waiting, 1)
            waiting.cancel()
            with pytest.raises(asyncio.CancelledError):
                await waiting

    asyncio.run(main())
    desk.until_waiting(0)


def test_an_outage_is_waited_out_within_the_budget_only(tmp_path: Path) -> None:
    with Running(Governor("memory:"), tmp_path) as server:
        url = server.url
    policy = Policy(retry="fixed", base_s=0.05, budget_s=0.2)
    with Client(url, policy=policy) as client, pytest.raises(flyball.StoreError):
        client.acquire("p", timeout=5)


# -- how it tries again -------------------------------------------------------------------------------


def test_the_policy_is_rolled_back_with_one_request(running: Running) -> None:
    with Client(running.url) as client:
        assert client.policy == Policy()
    assert running.client.put("/v1/policy", json={"retry": "fixed", "base_s": 1}).status_code == 200
    with Client(running.url) as client:
        assert client.policy == Policy(retry="fixed", base_s=1)
    assert running.client.put("/v1/policy", json={}).status_code == 200
    assert running.client.put("/v1/policy", json={"retry": "often"}).status_code == 400


def test_the_environment_outranks_the_server(running: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    with Client(running.url) as client:
        monkeypatch.setenv(VARIABLE, "none")
        assert client.policy.retry == "none"
        monkeypatch.setenv(VARIABLE, '{"retry": "fixed", "budget_s": 3}')
        assert client.policy == Policy(retry="fixed", budget_s=3)
        monkeypatch.setenv(VARIABLE, "sometimes")
        with pytest.raises(flyball.UsageError, match=VARIABLE):
            _ = client.policy


def test_a_refusal_is_waited_out_within_the_budget(desk: Desk, running: Running) -> None:
    lease = desk.lease()
    with Client(running.url, policy=Policy(retry="fixed", base_s=0.02, wait_s=0)) as client:
        later = Later(lambda: client.acquire(desk.pool, timeout=20))
        desk.release(lease)
        assert later.answer.id  # type: ignore[attr-defined]
    with (
        Client(running.url, policy=Policy(retry="fixed", base_s=0.02, wait_s=0, budget_s=0.1)) as client,
        pytest.raises(flyball.AtCapacityError),
    ):
        client.acquire(desk.pool)


def test_jittered_waits_grow_and_stop_growing() -> None:
    waits = [
        delay_s(Policy(base_s=1, cap_s=8), attempt, None, chance=1.0) for attempt in (1, 2, 3, 4, 5, 500)
    ]
    assert waits == [1, 2, 4, 8, 8, 8]
