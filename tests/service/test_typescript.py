"""The TypeScript client in a real Node against a real ``flyball serve``: waits, renewals, refusals, kills."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from typing import Any

import httpx
import pytest

from flyball.client import Client
from tests.service.kit import Process
from tests.service.typescript.kit import Driver, Proxy, build, examples, run_node
from tests.tools import has_typescript
from tests.waiting import until

pytestmark = pytest.mark.skipif(not has_typescript(), reason="Node and the TypeScript compiler are not here")
QUICK = {"baseS": 0.01, "budgetS": 60}
_numbers = count(1)


@pytest.fixture(scope="module")
def built() -> Path:
    return build()


@pytest.fixture(scope="module")
def served(shared_home: Path) -> Iterator[Process]:
    with Process(shared_home) as process:
        yield process


@pytest.fixture
def pool(served: Process) -> Pool:
    return Pool(served.url)


@pytest.fixture
def node(built: Path, served: Process) -> Iterator[Callable[..., Driver]]:
    """Starts Node processes, by default with a client of the server."""
    started: list[Driver] = []

    def start(url: str = "", **options: object) -> Driver:
        started.append(Driver(built, url or served.url, **{"policy": QUICK, **options}))
        return started[-1]

    yield start
    for driver in started:
        driver.close()


class Pool:
    """One of a test's own, with one slot."""

    def __init__(self, server: str) -> None:
        self.server, self.name = server, f"pool-{next(_numbers)}"
        self.url = f"{server}/v1/pools/{self.name}"
        httpx.put(self.url, json={"cap": 1, "adaptive": False}).raise_for_status()

    @property
    def now(self) -> dict[str, Any]:
        found: dict[str, Any] = httpx.get(self.url).json()["status"]
        return found

    def until_waiting(self, number: int) -> None:
        until(lambda: self.now["waiting"] == number, f"{number} in line")

    def until_free(self) -> None:
        until(lambda: self.now["in_use"] == 0 and self.now["waiting"] == 0, "a pool at rest")


# -- granted --------------------------------------------------------------------------------------------


def test_a_slot_is_granted_under_its_names_and_comes_back(node: Callable[..., Driver], pool: Pool) -> None:
    driver = node()
    held = driver.ask("acquire", "held", pool=pool.name, options={"project": "blog", "name": "t-14"})
    [lease] = pool.now["leases"]
    assert (lease["id"], lease["project"], lease["name"]) == (held["id"], "blog", "t-14")
    driver.ask("release", "released", outcome="failed")
    assert pool.now["in_use"] == 0


def test_a_waiter_in_node_gets_the_slot_that_a_python_holder_gives_back(
    node: Callable[..., Driver], pool: Pool, served: Process
) -> None:
    driver = node()
    with Client(served.url) as client:
        lease = client.acquire(pool.name)
        driver.tell("acquire", pool=pool.name)
        pool.until_waiting(1)
        lease.release()
        held = driver.hear("held")
    assert [found["id"] for found in pool.now["leases"]] == [held["id"]]


def test_a_waiter_in_python_gets_the_slot_that_a_node_holder_gives_back(
    node: Callable[..., Driver], pool: Pool, served: Process
) -> None:
    driver = node()
    driver.ask("acquire", "held", pool=pool.name)
    with Client(served.url) as client:
        waiter = threading.Thread(target=lambda: client.acquire(pool.name).release())
        waiter.start()
        pool.until_waiting(1)
        driver.ask("release", "released")
        waiter.join(60)
        assert not waiter.is_alive()


def test_a_lease_ends_with_its_block(node: Callable[..., Driver], pool: Pool) -> None:
    node().ask("using", "in block", pool=pool.name)
    pool.until_free()


def test_a_throttle_that_is_reported_counts_for_the_pool(node: Callable[..., Driver], pool: Pool) -> None:
    driver = node()
    driver.ask("acquire", "held", pool=pool.name)
    driver.ask("report", "reported", status=429, headers={"retry-after": "3"})
    assert pool.now["throttle_count"] == 1


@pytest.mark.parametrize(
    ("fails", "name", "throttles"), [("throttled", "Throttled", 1), ("error", "Error", 0)]
)
def test_work_that_throws_gives_its_slot_back_and_its_error_goes_on(
    node: Callable[..., Driver], pool: Pool, fails: str, name: str, throttles: int
) -> None:
    assert node().ask("work", "error", pool=pool.name, fails=fails)["name"] == name
    assert (pool.now["in_use"], pool.now["throttle_count"]) == (0, throttles)


# -- refused --------------------------------------------------------------------------------------------


def test_a_full_pool_is_refused_with_its_reason_and_a_time_to_come_back(
    node: Callable[..., Driver], pool: Pool
) -> None:
    driver = node()
    driver.ask("acquire", "held", pool=pool.name)
    refused = driver.ask("acquire", "error", "b", pool=pool.name, options={"timeoutS": 0})
    assert (refused["name"], refused["pool"], refused["reason"]) == ("AtCapacityError", pool.name, "cap")
    assert (refused["cap"], refused["inUse"]) == (1, 1)
    assert 1 <= refused["retryAfterS"] <= 30


@pytest.mark.parametrize("wait_s", [30, 1])
def test_a_wait_that_runs_out_leaves_no_place_behind(
    node: Callable[..., Driver], pool: Pool, wait_s: int
) -> None:
    driver = node(policy={**QUICK, "waitS": wait_s})
    driver.ask("acquire", "held", pool=pool.name)
    refused = driver.ask("acquire", "error", "b", pool=pool.name, options={"timeoutS": 1.2})
    assert (refused["name"], refused["waitedS"]) == ("WaitTimeoutError", 1.2)
    pool.until_waiting(0)


@pytest.mark.parametrize(
    ("options", "name"),
    [({"slots": 99}, "TooLargeError"), ({"slots": 0}, "UsageError"), ({"timeoutS": -1}, "UsageError")],
)
def test_an_ask_that_makes_no_sense_is_said_at_once(
    node: Callable[..., Driver], pool: Pool, options: dict[str, Any], name: str
) -> None:
    assert node().ask("acquire", "error", pool=pool.name, options=options)["name"] == name


def test_a_server_that_is_not_there_is_a_store_error(node: Callable[..., Driver]) -> None:
    nowhere = node("http://127.0.0.1:9", policy={"retry": "none"})
    assert nowhere.ask("acquire", "error", pool="p")["name"] == "StoreError"


# -- ended from outside -----------------------------------------------------------------------------------


def test_a_killed_node_process_gives_its_slot_back(
    node: Callable[..., Driver], pool: Pool, served: Process
) -> None:
    driver = node(ttlS=2)
    driver.ask("acquire", "held", pool=pool.name)
    driver.process.send_signal(signal.SIGKILL)
    with Client(served.url) as client:
        client.acquire(pool.name, timeout=60).release()


def test_a_killed_waiter_leaves_the_line(node: Callable[..., Driver], pool: Pool) -> None:
    holder, waiter = node(), node()
    holder.ask("acquire", "held", pool=pool.name)
    waiter.tell("acquire", pool=pool.name)
    pool.until_waiting(1)
    waiter.kill()
    pool.until_waiting(0)


def test_a_wait_that_is_aborted_gives_its_place_back(node: Callable[..., Driver], pool: Pool) -> None:
    driver = node()
    driver.ask("acquire", "held", pool=pool.name)
    driver.tell("acquire", "b", pool=pool.name)
    pool.until_waiting(1)
    assert driver.ask("abort", "error", "b")["name"] == "AbortError"
    pool.until_waiting(0)
    driver.ask("release", "released")
    pool.until_free()


def test_an_aborted_ticket_is_withdrawn(node: Callable[..., Driver], pool: Pool, served: Process) -> None:
    with Proxy(served.url) as proxy:
        driver = node(proxy.url, policy={**QUICK, "waitS": 1})
        driver.ask("acquire", "held", pool=pool.name)
        driver.tell("acquire", "b", pool=pool.name)
        until(lambda: proxy.count("GET /v1/tickets/"), "it waits for its ticket")
        assert driver.ask("abort", "error", "b")["name"] == "AbortError"
        assert proxy.count("DELETE /v1/tickets/") == 1
        assert pool.now["waiting"] == 0


def test_a_slot_that_was_granted_as_the_wait_was_aborted_is_given_back(
    node: Callable[..., Driver], pool: Pool, served: Process
) -> None:
    asks, is_aborted = f"POST /v1/pools/{pool.name}/leases", threading.Event()

    def keep_back(line: str, number: int) -> bool:
        """The answer to the first ask, until it is of no use any more."""
        return line == asks and number == 1 and is_aborted.wait(60)

    with Proxy(served.url, loses=keep_back) as proxy:
        driver = node(proxy.url)
        driver.tell("acquire", pool=pool.name)
        until(lambda: pool.now["in_use"], "granted")
        assert driver.ask("abort", "error")["name"] == "AbortError"
        is_aborted.set()
        assert (pool.now["in_use"], pool.now["waiting"]) == (0, 0)
        assert len(set(proxy.keys)) == 1


def test_a_lease_that_is_taken_back_is_told(node: Callable[..., Driver], pool: Pool) -> None:
    driver = node(ttlS=3)
    held = driver.ask("acquire", "held", pool=pool.name)
    httpx.delete(f"{pool.server}/v1/leases/{held['id']}").raise_for_status()
    assert driver.hear("lost")["lost"] is True


# -- renewed, and never twice -----------------------------------------------------------------------------


def test_a_long_hold_is_renewed(node: Callable[..., Driver], pool: Pool) -> None:
    ttl_s = 9
    held = node(ttlS=ttl_s).ask("acquire", "held", pool=pool.name)

    def ends_after_s() -> float:
        """How long the lease lasts in all, as it stands now; without a renewal, ``ttl_s``."""
        [lease] = pool.now["leases"]
        assert lease["id"] == held["id"]
        return float(lease["held_s"] + lease["expires_in_s"])

    until(lambda: ends_after_s() > ttl_s + 5, "two renewals")


def test_an_answer_that_was_lost_starts_nothing_twice(
    node: Callable[..., Driver], pool: Pool, served: Process
) -> None:
    asks = f"POST /v1/pools/{pool.name}/leases"
    with Proxy(served.url, loses=lambda line, number: line == asks and number <= 2) as proxy:
        driver = node(proxy.url)
        held = driver.ask("acquire", "held", pool=pool.name)
        assert proxy.count(asks) == 3
        assert len(set(proxy.keys)) == 1
        assert [lease["id"] for lease in pool.now["leases"]] == [held["id"]]
        assert pool.now["waiting"] == 0
        driver.ask("release", "released")


def test_an_earlier_grant_that_has_ended_meanwhile_is_asked_for_anew(
    node: Callable[..., Driver], pool: Pool, served: Process
) -> None:
    asks = f"POST /v1/pools/{pool.name}/leases"
    ended: list[int] = []

    def end_the_first(line: str, number: int) -> bool:
        if line != asks or number > 1:
            return False
        ended.extend(lease["id"] for lease in pool.now["leases"])
        httpx.delete(f"{pool.server}/v1/leases/{ended[0]}").raise_for_status()
        return True

    with Proxy(served.url, loses=end_the_first) as proxy:
        held = node(proxy.url).ask("acquire", "held", pool=pool.name)
        assert [lease["id"] for lease in pool.now["leases"]] == [held["id"]] != ended
        assert len(set(proxy.keys)) == 2


def test_a_renewal_that_got_no_answer_is_tried_again(
    node: Callable[..., Driver], pool: Pool, served: Process
) -> None:
    with Proxy(served.url, loses=lambda line, number: line.endswith("/renew") and number == 1) as proxy:
        held = node(proxy.url, ttlS=9).ask("acquire", "held", pool=pool.name)
        until(lambda: proxy.count(f"POST /v1/leases/{held['id']}/renew") >= 2, "another renewal")
        assert [lease["id"] for lease in pool.now["leases"]] == [held["id"]]


def test_a_waiter_outlives_its_server(node: Callable[..., Driver], home: Path) -> None:
    with Process(home) as old:
        pool, proxy = Pool(old.url), Proxy(old.url)
        with proxy:
            driver = node(proxy.url)
            driver.ask("acquire", "held", pool=pool.name)
            driver.tell("acquire", "b", pool=pool.name)
            pool.until_waiting(1)
            old.signal(signal.SIGKILL)
            old.wait()
            with Process(home) as new:
                proxy.go_to(new.url)
                driver.ask("release", "released")
                held = driver.hear("held")
                [lease] = httpx.get(f"{new.url}/v1/pools/{pool.name}").json()["status"]["leases"]
                assert lease["id"] == held["id"]


# -- how it tries again -------------------------------------------------------------------------------


def test_the_policy_of_the_environment_hands_a_refusal_over_at_once(
    node: Callable[..., Driver], pool: Pool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FLYBALL_CLIENT_POLICY", '{"retry": "none", "wait_s": 0}')
    driver = node(policy=None)
    driver.ask("acquire", "held", pool=pool.name)
    assert driver.ask("acquire", "error", "b", pool=pool.name)["name"] == "AtCapacityError"


def test_a_policy_of_the_environment_that_is_none_is_refused(
    node: Callable[..., Driver], pool: Pool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FLYBALL_CLIENT_POLICY", "sometimes")
    refused = node(policy=None).ask("acquire", "error", pool=pool.name)
    assert refused["name"] == "UsageError"
    assert "write none, fixed, jittered" in refused["message"]


def test_the_policy_of_the_server_holds_where_nothing_else_says_one(
    node: Callable[..., Driver], home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("FLYBALL_CLIENT_POLICY", raising=False)
    with Process(home) as process:
        pool = Pool(process.url)
        httpx.put(f"{process.url}/v1/policy", json={"retry": "none", "wait_s": 0}).raise_for_status()
        driver = node(process.url, policy=None)
        driver.ask("acquire", "held", pool=pool.name)
        assert driver.ask("acquire", "error", "b", pool=pool.name)["name"] == "AtCapacityError"


# -- the README -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("number", range(1, len(examples()) + 1))
def test_the_examples_of_the_readme_run(built: Path, served: Process, number: int) -> None:
    httpx.put(f"{served.url}/v1/pools/gpu", json={"cap": 2}).raise_for_status()
    said = run_node(built / f"example-{number}.js", FLYBALL=served.url)
    assert "the server is away" not in said
    assert httpx.get(f"{served.url}/v1/pools/gpu").json()["in_use"] == 0
