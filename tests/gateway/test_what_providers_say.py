"""What a provider says beside its answers, to programs whose calls go through the gateway. Real processes."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from flyball.sim.provider.capacity import Capacity
from flyball.sim.provider.server import Manner, Provider
from tests.gateway.machine import Machine

pytestmark = pytest.mark.faults
POOL = "provider"
START = 8
"""The cap of a pool that nothing was said of."""
AT_ONCE = 4 * START
TAKES_S = 0.2
PROGRAM = """
import json, os, sys, threading, urllib.error, urllib.request
at_once, calls = int(os.environ["AT_ONCE"]), int(os.environ["CALLS"])
body = json.dumps({"max_tokens": 1, "model": "m", "messages": []}).encode()
headers = {"content-type": "application/json", "x-stainless-timeout": os.environ.get("TIMEOUT", "60")}
said = []
def call():
    for _ in range(calls):
        address = os.environ["ANTHROPIC_BASE_URL"] + "/v1/messages"
        try:
            with urllib.request.urlopen(urllib.request.Request(address, body, headers)) as answer:
                answer.read()
                said.append(answer.status)
        except urllib.error.HTTPError as error:
            said.append(error.code)
threads = [threading.Thread(target=call) for _ in range(at_once)]
for thread in threads: thread.start()
for thread in threads: thread.join()
with open(os.environ["SAID"], "w") as file: json.dump(said, file)
"""


class Scene:
    """A provider that serves all, a gateway, and programs that call through it."""

    def __init__(self, folder: Path, provider: Provider) -> None:
        self.folder, self.provider = folder, provider
        self.machine = Machine(folder, provider)
        (folder / "bin").mkdir()
        claude = folder / "bin" / "claude"
        claude.write_text(f"#!{sys.executable}\n{PROGRAM}")
        claude.chmod(0o755)
        self.machine.env["PATH"] = f"{claude.parent}:{self.machine.env['PATH']}"

    def call(self, *door: str, at_once: int = AT_ONCE, calls: int = 6, **more: str) -> list[int]:
        """The statuses that a program's calls got, which it made from so many threads."""
        words = door or DOORS["env"]
        said = self.folder / "said"
        env = {"AT_ONCE": str(at_once), "CALLS": str(calls), "SAID": str(said), **more}
        ran = self.machine.run(*words, "claude", "-p", "x", **env)
        assert ran.returncode == 0, ran
        found: list[int] = json.loads(said.read_text())
        said.unlink()
        return found

    def says(self, headers: Mapping[str, str]) -> None:
        self.provider.manner = replace(self.provider.manner, headers=headers)

    def has_used(self, part: float, window: str = "5h", *, resets_in_s: float = 3600.0) -> None:
        said = f"anthropic-ratelimit-unified-{window}"
        resets_at = int(time.time() + resets_in_s)
        self.says({f"{said}-utilization": str(part), f"{said}-reset": str(resets_at)})

    @property
    def pool(self) -> dict[str, Any]:
        pools = json.loads(self.machine.run("status", "--json").stdout)["pools"]
        found: dict[str, Any] = next(pool for pool in pools if pool["name"] == POOL)
        return found

    def set(self, *words: str) -> None:
        assert self.machine.run("pool", "set", POOL, *words).returncode == 0


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[Scene]:
    with Provider(Capacity.parse("1000"), Manner(tokens_per_s=1000, think_s=TAKES_S)) as provider:
        scene = Scene(tmp_path, provider)
        yield scene
        scene.machine.close()


DOORS = {"env": ("env", "--pool", POOL, "--"), "exec": ("exec", "--pool", POOL, "--")}
"""A program that calls, and an agent that flyball knows."""
PRIORITY = ("env", "--pool", POOL, "--priority", "1", "--")


@pytest.mark.parametrize("door", DOORS)
def test_a_pool_that_is_served_grows(scene: Scene, door: str) -> None:
    assert set(scene.call(*DOORS[door])) == {200}
    assert scene.pool["cap"] > START


@pytest.mark.parametrize("door", DOORS)
def test_a_provider_that_says_that_the_limit_is_near_holds_the_cap(scene: Scene, door: str) -> None:
    scene.says({"x-quota-remaining": "3"})
    assert set(scene.call(*DOORS[door])) == {200}
    assert scene.pool["cap"] == START
    assert scene.provider.tally().peak_open == START


@pytest.mark.parametrize("door", DOORS)
def test_a_provider_whose_answers_begin_later_and_later_holds_the_cap(scene: Scene, door: str) -> None:
    scene.provider.manner = replace(scene.provider.manner, think_s=TAKES_S / 10)
    scene.call(*DOORS[door], at_once=START // 2, calls=12)
    assert scene.pool["cap"] == START
    scene.provider.manner = replace(scene.provider.manner, think_s=2 * TAKES_S)
    assert set(scene.call(*DOORS[door])) == {200}
    assert scene.pool["cap"] == START


# -- usage windows of the account ------------------------------------------------------------------------


def test_from_a_part_of_a_window_on_it_is_said_and_nothing_is_held_up(scene: Scene) -> None:
    scene.set("--usage-warn", "70%")
    scene.has_used(0.72)
    assert set(scene.call(at_once=2)) == {200}
    (window,) = scene.pool["usage_windows"]
    assert (window["name"], window["used"], window["certainty"]) == ("5h", 0.72, "reported")
    assert "72 % of 5h used" in scene.machine.run("status").stdout
    assert set(scene.call(at_once=2, TIMEOUT="5")) == {200}


def test_from_a_part_of_a_window_on_fewer_calls_run_at_once(scene: Scene) -> None:
    scene.set("--cap", "8", "--static", "--usage-slow", "50%")
    scene.has_used(0.75)
    scene.call(at_once=1, calls=1)
    assert set(scene.call(at_once=8, calls=3)) == {200}
    assert scene.provider.tally().peak_open == 4
    scene.has_used(0.4)
    scene.call(at_once=1, calls=1)
    assert set(scene.call(at_once=8, calls=3)) == {200}
    assert scene.provider.tally().peak_open == 8


def test_from_a_part_of_a_window_on_no_call_starts_until_it_resets(scene: Scene) -> None:
    scene.set("--usage-drain", "90%")
    scene.has_used(0.93)
    assert scene.call(at_once=1, calls=1) == [200]
    assert scene.call(at_once=2, calls=2, TIMEOUT="1") == [429] * 4
    assert scene.call(*PRIORITY, at_once=1, calls=1, TIMEOUT="1") == [429]
    assert scene.provider.tally().accepted == 1


def test_the_last_part_of_a_window_is_kept_for_those_with_priority(scene: Scene) -> None:
    scene.set("--usage-keep", "20%")
    scene.has_used(0.85)
    assert scene.call(at_once=1, calls=1) == [200]
    assert scene.call(at_once=1, calls=1, TIMEOUT="1") == [429]
    assert scene.call(*PRIORITY, at_once=2, calls=2) == [200] * 4


def test_what_the_gateway_heard_holds_up_other_ways_to_the_same_pool(scene: Scene) -> None:
    scene.set("--usage-drain", "90%")
    scene.has_used(0.93, "7d")
    assert scene.call(at_once=1, calls=1) == [200]
    waited = scene.machine.run("exec", "--pool", POOL, "--wait", "0", "--", "true")
    assert waited.returncode == 75
    assert "7d window 93 % used (reported)" in waited.stderr


def test_a_window_that_has_reset_holds_nothing_up(scene: Scene) -> None:
    scene.set("--usage-drain", "90%")
    scene.has_used(0.93, resets_in_s=4.0)
    assert scene.call(at_once=1, calls=1) == [200]
    assert scene.call(at_once=1, calls=1) == [200]
