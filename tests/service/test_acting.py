"""Changing what a person decides: the names and words of the command line; running work is never touched."""

from __future__ import annotations

import subprocess
from contextlib import nullcontext
from pathlib import Path

import pytest

from flyball.core.pool.holder import Holder
from flyball.core.pool.model import Ask
from flyball.core.signals import Signal, SignalKind
from flyball.governor.governor import Governor
from flyball.governor.internals import internals
from flyball.host.process import host_name, identify, me
from flyball.service.tokens import Scope
from tests.cli.kit import Cli
from tests.service.kit import PROBLEM, Running

BROKEN = [
    b"",
    b"{",
    b"[]",
    b"3",
    b"null",
    b'"cap"',
    b'{"cap": 3',
    b"cap=3",
    b"\xff\xfe",
    b'{"cap": "\xff"}',
    b"[" * 5000,
    b'{"cap": NaN}',
    b'{"\\ud800": 1}',
]


@pytest.mark.parametrize("body", BROKEN)
def test_a_body_that_is_not_an_object_is_refused(running: Running, body: bytes) -> None:
    answer = running.client.patch("/v1/pools/broken", content=body)
    assert (answer.status_code, answer.headers["content-type"]) == (400, PROBLEM)
    assert answer.json()["detail"]
    assert running.client.get("/v1/pools/broken").status_code == 404


@pytest.mark.parametrize(
    ("body", "setting", "nearest"),
    [
        ({"capp": 3}, "capp", "cap"),
        ({"settle": 3}, "settle", "settle_s"),
        ({"cap": 3, "ceiling": 9}, "ceiling", "cap_ceiling"),
        ({"xyzzy": 1}, "xyzzy", None),
        ({"": 1}, "", None),
    ],
)
def test_an_unknown_setting_is_refused_with_the_nearest(
    running: Running, body: dict[str, object], setting: str, nearest: str | None
) -> None:
    answer = running.client.patch("/v1/pools/unknown", json=body)
    told = answer.json()
    assert (answer.status_code, told["type"]) == (400, "urn:flyball:unknown-setting")
    assert (told["setting"], told.get("nearest")) == (setting, nearest)
    assert nearest is None or f"did you mean {nearest!r}?" in told["detail"]
    assert running.client.get("/v1/pools/unknown").status_code == 404, "nothing of it was set"


@pytest.mark.parametrize(
    ("body", "setting"),
    [
        ({"cap": "3"}, "cap"),
        ({"cap": 3.5}, "cap"),
        ({"cap": True}, "cap"),
        ({"cap": None}, "cap"),
        ({"cap": 10**30}, "cap"),
        ({"adaptive": 1}, "adaptive"),
        ({"weights": 3}, "weights"),
        ({"weights": {"a\nb": 1}}, "weights"),
        ({"weights": {"": 1}}, "weights"),
        ({"maxima": {"blog": "two"}}, "maxima"),
        ({"windows": {"tokens": 3}}, "windows"),
        ({"windows": {"tokens": "many"}}, "windows"),
        ({"profile": []}, "profile"),
        ({"share": "mine"}, "share"),
    ],
)
def test_a_value_of_the_wrong_kind_is_refused(
    running: Running, body: dict[str, object], setting: str
) -> None:
    answer = running.client.put("/v1/pools/kinds", json=body)
    told = answer.json()
    assert (answer.status_code, answer.headers["content-type"]) == (400, PROBLEM)
    assert told["setting"] == setting
    assert running.client.get("/v1/pools/kinds").status_code == 404


@pytest.mark.parametrize(
    ("body", "setting"),
    [
        ({"cap": 4, "cap_floor": -1}, "cap_floor"),
        ({"cap": 4, "cap_floor": 6}, "cap_floor"),
        ({"cap": 4, "reserve": 9}, "reserve"),
        ({"cap": 4, "cap_ceiling": 2}, "cap_ceiling"),
        ({"cap": 4, "settle_s": -1}, "settle_s"),
        ({"cap": 4, "maxima": {"cap": -1}}, "maxima"),
        ({"cap": 4, "windows": {"cap": "much"}}, "windows"),
        ({"break_s": 900, "break_max_s": 60}, "break_s"),
    ],
)
def test_of_several_settings_the_one_that_is_wrong_is_named(
    running: Running, body: dict[str, object], setting: str
) -> None:
    answer = running.client.patch("/v1/pools/several", json=body)
    assert (answer.status_code, answer.json()["setting"]) == (400, setting), answer.text
    assert running.client.get("/v1/pools/several").status_code == 404


def test_of_a_pair_that_does_not_fit_the_one_that_was_sent_is_named(running: Running) -> None:
    running.client.put("/v1/pools/pair", json={"cap": 8, "cap_floor": 6})
    answer = running.client.patch("/v1/pools/pair", json={"cap": 4})
    assert (answer.status_code, answer.json()["setting"]) == (400, "cap")


@pytest.mark.parametrize(
    ("words", "body"),
    [
        (["--cap", "0"], {"cap": 0}),
        (["--cap", "4", "--floor", "6"], {"cap": 4, "cap_floor": 6}),
        (["--reserve", "99"], {"reserve": 99}),
        (["--cap", "1000000001"], {"cap": 1000000001}),
    ],
)
def test_the_words_are_those_of_the_command_line(
    running: Running, home: Path, capsys: pytest.CaptureFixture[str], words: list[str], body: dict[str, int]
) -> None:
    printed = Cli(capsys, home)("pool", "set", "same", *words)
    told = running.client.patch("/v1/pools/same", json=body).json()
    assert printed.err.strip() == f"flyball: {told['detail']}"
    assert told["setting"] in body


def test_a_set_changes_exactly_what_it_names(running: Running) -> None:
    running.client.put("/v1/pools/exact", json={"cap": 6, "settle_s": 90, "weights": {"blog": 2}})
    told = running.client.patch("/v1/pools/exact", json={"weights": {"shop": 3, "blog": 0}}).json()
    assert told["named"] == {"cap": 6, "settle_s": 90, "weights": {"shop": 3}}
    told = running.client.put("/v1/pools/exact", json={"cap": 4}).json()
    assert told["named"] == {"cap": 4, "settle_s": 90, "weights": {"shop": 3}}
    assert told["cap"] == 4


def test_a_new_pool_that_looks_mistyped_is_made_and_remarked(running: Running) -> None:
    running.client.put("/v1/pools/github-api", json={"cap": 6})
    told = running.client.put("/v1/pools/github-apo", json={"cap": 6}).json()
    assert told["notes"] == ["this is a new pool; did you mean 'github-api'?"]


def test_a_reset_forgets_what_was_learned_and_keeps_the_settings(running: Running) -> None:
    governor = running.service.governor
    governor.set_pool("learned", cap=8, controller="koryph")
    governor.report("learned", Signal(SignalKind.THROTTLED), project="p", name="n")
    before = running.client.get("/v1/pools/learned").json()
    assert (before["cap"], before["status"]["throttle_count"]) == (4, 1)
    after = running.client.post("/v1/pools/learned/reset").json()
    assert (after["cap"], after["status"]["throttle_count"]) == (8, 0)
    assert after["named"] == before["named"]


def test_a_pool_that_is_not_there_cannot_be_reset(running: Running) -> None:
    answer = running.client.post("/v1/pools/no-such-pool/reset")
    assert (answer.status_code, answer.json()["type"]) == (404, "urn:flyball:unknown-pool")


def test_a_pool_is_removed_with_its_settings_and_its_history(running: Running) -> None:
    governor = running.service.governor
    governor.set_pool("mistyped", cap=9, adaptive=False)
    governor.report("mistyped", Signal(SignalKind.THROTTLED), project="p", name="n")
    answer = running.client.delete("/v1/pools/mistyped")
    assert (answer.status_code, answer.content) == (204, b"")
    assert running.client.get("/v1/pools/mistyped").status_code == 404
    facts = running.client.get("/v1/facts").json()["facts"]
    assert [fact for fact in facts if fact["pool"] == "mistyped"] == []


def test_a_pool_in_use_stays(running: Running) -> None:
    governor = running.service.governor
    lease = governor.acquire_nowait("used", project="p", name="n")
    answer = running.client.delete("/v1/pools/used")
    told = answer.json()
    assert (answer.status_code, told["type"], told["pool"]) == (409, "urn:flyball:in-use", "used")
    assert running.client.get("/v1/pools/used").json()["in_use"] == 1
    governor.release(lease)
    assert running.client.delete("/v1/pools/used").status_code == 204


def test_a_pool_that_is_not_there_cannot_be_removed(running: Running) -> None:
    running.service.governor.set_pool("openai", cap=2)
    answer = running.client.delete("/v1/pools/openia")
    told = answer.json()
    assert (answer.status_code, told["type"]) == (404, "urn:flyball:unknown-pool")
    assert told["nearest"] == "openai"


@pytest.mark.parametrize("lease", ["0", "1", "-5", "9223372036854775807", "9223372036854775808", "1" * 400])
def test_a_lease_that_is_not_there_is_not_found(running: Running, lease: str) -> None:
    answer = running.client.delete(f"/v1/leases/{lease}")
    assert (answer.status_code, answer.headers["content-type"]) == (404, PROBLEM)


def test_work_that_runs_keeps_its_lease(running: Running) -> None:
    governor = running.service.governor
    lease = governor.acquire_nowait("alive", project="p", name="n")
    answer = running.client.delete(f"/v1/leases/{lease.id}")
    assert (answer.status_code, answer.json()["type"]) == (409, "urn:flyball:alive")
    assert running.client.get("/v1/pools/alive").json()["in_use"] == 1
    governor.release(lease)


def test_what_a_dead_process_holds_is_released(running: Running) -> None:
    governor = running.service.governor
    process = subprocess.Popen(["sleep", "600"])
    lease = governor.hold(process.pid, "zombie", project="p", name="n")
    process.kill()
    process.wait()
    assert running.client.get("/v1/pools/zombie").json()["in_use"] == 1
    assert running.client.delete(f"/v1/leases/{lease}").status_code == 204
    told = running.client.get("/v1/pools/zombie").json()
    assert (told["in_use"], told["status"]["leases"]) == (0, [])
    assert running.client.delete(f"/v1/leases/{lease}").status_code == 404


@pytest.mark.parametrize("token", ["ops", None])
def test_the_history_says_who_dropped_a_lease(running: Running, token: str | None) -> None:
    governor = running.service.governor
    process = subprocess.Popen(["sleep", "600"])
    pool = f"dropped-{token}"
    lease = governor.hold(process.pid, pool, project="p", name="n")
    process.kill()
    process.wait()
    with running.as_token(token, Scope.ADMIN) if token else nullcontext(running.client) as client:
        assert client.delete(f"/v1/leases/{lease}").status_code == 204
    facts = internals(governor).store.facts(limit=10)
    told = [fact.words for fact in facts if (fact.pool, fact.kind) == (pool, "reclaimed")]
    by = f"the token {token!r}" if token else "a user without a token"
    assert told == [f"slot taken back: dropped by {by} over HTTP on {host_name()}"]


def test_the_slot_of_a_zombie_goes_to_the_next_in_line(running: Running) -> None:
    governor = running.service.governor
    governor.set_pool("line", cap=1, adaptive=False)
    process = subprocess.Popen(["sleep", "600"])
    lease = governor.hold(process.pid, "line", project="p", name="gone")
    internals(governor).store.admit(Ask(pool="line", project="p", name="next", holder=me()), park=True)
    process.kill()
    process.wait()
    assert running.client.delete(f"/v1/leases/{lease}").status_code == 204
    (held,) = running.client.get("/v1/pools/line").json()["status"]["leases"]
    assert held["name"] == "next"


def test_a_holder_that_cannot_be_checked_from_here_can_be_released(running: Running) -> None:
    elsewhere = Holder("another-host", "another-boot", 1, 4121, 1)
    ask = Ask(pool="far", project="p", name="n", holder=elsewhere)
    lease, _ = internals(running.service.governor).store.record_running(ask)
    assert running.client.delete(f"/v1/leases/{lease}").status_code == 204


def test_the_place_in_line_of_a_dead_one_can_be_taken_back(running: Running) -> None:
    governor = running.service.governor
    governor.set_pool("queue", cap=1, adaptive=False)
    lease = governor.acquire_nowait("queue", project="p", name="n")
    process = subprocess.Popen(["sleep", "600"])
    ask = Ask(pool="queue", project="p", name="dead", holder=identify(process.pid))
    verdict, _ = internals(governor).store.admit(ask, park=True)
    process.kill()
    process.wait()
    assert running.client.delete(f"/v1/leases/{verdict.claim_id}").status_code == 204
    assert running.client.get("/v1/pools/queue").json()["waiting"] == 0
    governor.release(lease)


def test_a_store_that_cannot_be_written_says_so_and_when_to_come_back(home: Path, tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("not a folder")
    with Running(Governor(f"sqlite://{blocked / 'governor.db'}"), home) as server:
        answer = server.client.patch("/v1/pools/p", json={"cap": 3})
        assert (answer.status_code, answer.headers["content-type"]) == (503, PROBLEM)
        assert int(answer.headers["retry-after"]) >= 1
