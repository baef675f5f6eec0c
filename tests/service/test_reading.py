"""Looking: the same record as the command line's, fresh, and without touching anything."""

from __future__ import annotations

import json
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from flyball.core.signals import Signal, SignalKind
from flyball.governor.governor import Governor
from flyball.service.store_reader import StoreReader, StoreSnapshot
from tests.cli.kit import Cli
from tests.service.kit import PROBLEM, Running
from tests.waiting import until

THROTTLED = Signal(SignalKind.THROTTLED)


def pool_of(status: Any, name: str) -> Any:
    return next(pool for pool in status["pools"] if pool["name"] == name)


@pytest.mark.parametrize(
    "query",
    ["limit=0", "limit=501", "limit=x", "limit=-1", "limit=1.5", "limit=", "limit=99999999999999999999"],
)
def test_an_impossible_number_of_facts_is_refused_in_words(running: Running, query: str) -> None:
    answer = running.client.get(f"/v1/facts?{query}")
    assert (answer.status_code, answer.headers["content-type"]) == (400, PROBLEM)
    assert "limit" in answer.json()["detail"]


@pytest.mark.parametrize("query", ["seconds=0", "seconds=901", "seconds=a"])
def test_an_impossible_stretch_of_history_is_refused(running: Running, query: str) -> None:
    assert running.client.get(f"/v1/history?{query}").status_code == 400


def test_a_pool_without_any_use_is_not_found_and_the_nearest_is_named(running: Running) -> None:
    running.service.governor.set_pool("anthropic", cap=4)
    answer = running.client.get("/v1/pools/antropic")
    assert (answer.status_code, answer.headers["content-type"]) == (404, PROBLEM)
    assert answer.json()["nearest"] == "anthropic"


def test_nothing_is_here(running: Running) -> None:
    for path in ("/v1", "/v1/nothing", "/v2/status", "/openapi.json", "/described/openapi.json", "/schema"):
        answer = running.client.get(path)
        assert (answer.status_code, answer.headers["content-type"]) == (404, PROBLEM), path


def test_a_method_that_does_not_fit_says_which_would(running: Running) -> None:
    answer = running.client.delete("/v1/status")
    assert (answer.status_code, answer.headers["content-type"]) == (405, PROBLEM)
    assert "GET" in answer.headers["allow"]


def test_the_status_is_what_the_command_line_prints(
    home: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    governor = Governor()
    governor.set_pool("anthropic", cap=3, spacing_s=0)
    lease = governor.acquire_nowait("anthropic", project="blog", name="t-1")
    with Running(Governor(), home) as server:
        told = server.client.get("/v1/status").json()
    printed = Cli(capsys, home)("status", "--json").json
    assert without_ages(told) == without_ages(printed)
    assert pool_of(told, "anthropic")["leases"][0]["name"] == "t-1"
    governor.release(lease)
    governor.close()


def without_ages(status: Any) -> Any:
    return json.loads(
        json.dumps(status), object_hook=lambda found: {k: v for k, v in found.items() if "_s" not in k}
    )


def test_looking_makes_no_state(home: Path) -> None:
    with Running(Governor(), home) as server:
        assert server.client.get("/v1/status").json()["pools"] == []
        assert server.client.get("/v1/pools").json() == {"pools": []}
        assert server.client.get("/v1/facts").json() == {"facts": []}
    assert not (home / "governor.db").exists()


def test_a_state_that_was_made_after_the_server_started_is_seen(home: Path) -> None:
    with Running(Governor(), home) as server:
        other = Governor()
        other.set_pool("late", cap=2)
        other.close()
        assert pool_of(server.client.get("/v1/status").json(), "late")["cap"] == 2


def test_a_state_file_that_is_only_just_being_made_is_found_later(home: Path) -> None:
    home.mkdir()
    (home / "governor.db").touch(0o600)
    with Running(Governor(), home) as server:
        assert server.client.get("/v1/status").json()["pools"] == []
        server.client.patch("/v1/pools/made", json={"cap": 2})
        assert pool_of(server.client.get("/v1/status").json(), "made")["cap"] == 2


def test_a_state_file_that_was_replaced_is_found_again(home: Path) -> None:
    before = Governor()
    before.set_pool("old", cap=2)
    before.close()
    with Running(Governor(), home) as server:
        assert pool_of(server.client.get("/v1/status").json(), "old")["cap"] == 2
        for file in home.glob("governor.db*"):
            file.rename(home / f"aside-{file.name}")
        after = Governor()
        after.set_pool("new", cap=3)
        after.close()
        assert [pool["name"] for pool in server.client.get("/v1/status").json()["pools"]] == ["new"]


def test_a_pool_shows_what_was_named_and_what_is_in_force(running: Running) -> None:
    running.service.governor.set_pool("named", cap=7, weights={"blog": 2})
    told = running.client.get("/v1/pools/named").json()
    assert told["named"] == {"cap": 7, "weights": {"blog": 2}}
    assert (told["settings"]["cap_ceiling"], told["settings"]["share"]) == (14, "lend")
    assert told["status"]["operator_cap"] == 7
    listed = pool_of(running.client.get("/v1/pools").json(), "named")
    assert listed == {key: value for key, value in told.items() if key not in ("status", "notes")}


def test_facts_come_newest_first_with_their_age_and_time(running: Running) -> None:
    governor = running.service.governor
    governor.set_pool("facts", cap=8)
    for name in ("a", "b"):
        governor.report("facts", THROTTLED, project="p", name=name)
    told = running.client.get("/v1/facts?limit=1").json()["facts"]
    assert len(told) == 1
    every = [fact for fact in running.client.get("/v1/facts").json()["facts"] if fact["pool"] == "facts"]
    assert every
    assert [fact["s_ago"] for fact in every] == sorted(fact["s_ago"] for fact in every)
    assert set(every[0]) == {"id", "s_ago", "time", "pool", "kind", "words", "project", "name", "pid"}
    assert every[0]["time"].endswith("+00:00")


def test_history_has_a_sample_a_second_in_columns(running: Running) -> None:
    governor = running.service.governor
    governor.set_pool("past", cap=5)
    lease = governor.acquire_nowait("past", project="p", name="n")

    def told() -> Any:
        found = running.client.get("/v1/history?pool=past&seconds=60").json()
        return found if found["pools"] and found["pools"][0]["in_use"][-1] == 1 else None

    view = until(told, "a sample with the lease")
    (past,) = view["pools"]
    assert set(past) == {"name", "cap", "in_use", "waiting", "throttles", "phase"}
    assert {len(past[column]) for column in past if column != "name"} == {len(view["time"])}
    assert (past["cap"][-1], past["waiting"][-1], past["phase"][-1]) == (5, 0, "closed")
    assert view["time"] == sorted(view["time"])
    governor.release(lease)


def test_history_of_an_unknown_pool_is_empty(running: Running) -> None:
    assert running.client.get("/v1/history?pool=nobody").json()["pools"] == []


def test_head_is_get_without_a_body(running: Running) -> None:
    for path in ("/", "/healthz", "/v1/status"):
        answer = running.client.head(path)
        assert (answer.status_code, answer.content) == (200, b"")
        assert int(answer.headers["content-length"]) > 0


def test_answers_are_not_kept_and_not_guessed(running: Running) -> None:
    for path in ("/v1/status", "/healthz", "/nothing", "/metrics"):
        headers = running.client.get(path).headers
        assert (headers["cache-control"], headers["x-content-type-options"]) == ("no-store", "nosniff")
        assert "server" not in headers


class SlowLooker(StoreReader):
    """One that waits in the middle of a look, to be let go."""

    def __init__(self, governor: Governor) -> None:
        super().__init__(governor)
        self.looks = 0
        self.go = threading.Event()

    def look(self) -> StoreSnapshot:
        self.looks += 1
        self.go.wait(20)
        return super().look()


def test_many_who_ask_at_once_share_a_look(tmp_path: Path) -> None:
    with Running(Governor("memory:"), tmp_path) as server:
        slow = SlowLooker(server.service.governor)
        server.service.watch._looking = slow
        until(lambda: slow.looks == 1, "a tick that looks")
        with ThreadPoolExecutor(20) as threads:
            asked = [threads.submit(server.client.get, "/v1/status") for _ in range(20)]
            until(lambda: len(server.server.server_state.tasks) >= 20, "all of them wait")
            slow.go.set()
            assert [answer.result().status_code for answer in asked] == [200] * 20
        assert slow.looks <= 4
