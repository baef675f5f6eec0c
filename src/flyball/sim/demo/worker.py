"""One process of a project: makes the calls it is handed, one after the other.

    python -m flyball.sim.demo.worker '{"url": ..., "project": ..., "name": ..., "pool": ..., "seed": ...}'

It says ``ready`` on stdout and then reads calls from stdin, a line of JSON each, ``null`` after the last.
Every step of a call is a word on stdout: ``run`` (a request is open), ``429``, at last ``done``. When stdin
ends its parent is gone, and it ends at once: no process of a demo outlives the demo.

With a pool each attempt runs under a slot of it and reports what the provider said; the slot is free while
it waits to try again. Without one a refused call waits and tries again as the providers' SDKs do. Both try
for ever.

A workload is the same calls for the same seed, whichever process makes them. A project has a list of calls
and a number of processes that take the next one when they are free, so two runs of one workload differ only
in how the calls are admitted.
"""

from __future__ import annotations

import http.client
import json
import os
import random
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from itertools import count
from queue import SimpleQueue
from urllib.parse import urlsplit

from flyball.errors import UsageError
from flyball.host.background_thread import start_thread

FIRST_BACKOFF_S = 0.5
LONGEST_BACKOFF_S = 8.0
LONGEST_RETRY_AFTER_S = 60.0


@dataclass(frozen=True, slots=True)
class PlannedCall:
    """One call to a model. The tokens it asks for decide how long the provider takes."""

    number: int
    tokens: int


@dataclass(frozen=True, slots=True)
class Team:
    """A project and how many processes it runs."""

    project: str
    workers: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    teams: tuple[Team, ...]
    calls_each: int
    """Calls every project makes."""
    tokens_low: int = 30
    tokens_high: int = 120
    seed: int = 1

    def __post_init__(self) -> None:
        if self.calls_each < 1 or any(team.workers < 1 for team in self.teams):
            raise UsageError("every project needs at least one call and one process")

    def planned_calls(self, project: str) -> list[PlannedCall]:
        chance = random.Random(f"{self.seed}/{project}")
        spread = [chance.randint(self.tokens_low, self.tokens_high) for _ in range(self.calls_each)]
        return [PlannedCall(number, tokens) for number, tokens in enumerate(spread)]

    @property
    def calls(self) -> int:
        return self.calls_each * len(self.teams)

    @property
    def workers(self) -> int:
        return sum(team.workers for team in self.teams)


def retry_delay_s(attempt: int, retry_after_s: float | None, chance: random.Random) -> float:
    """How long a client without a governor waits: what the providers' own SDKs do.

    Retry-After exactly when it is given and no longer than a minute, else half a second doubling to eight,
    up to a quarter less by chance.
    """
    if retry_after_s is not None and 0 < retry_after_s <= LONGEST_RETRY_AFTER_S:
        return retry_after_s
    delay_s = min(LONGEST_BACKOFF_S, FIRST_BACKOFF_S * 2.0 ** min(attempt, 16))
    return delay_s * (1 - 0.25 * chance.random())


CALL_TIMEOUT_S = 60.0


def ask(url: str, call: PlannedCall) -> tuple[int, Mapping[str, str]]:
    """Make one call; its status and headers, with names in lower case."""
    place = urlsplit(url)
    connection = http.client.HTTPConnection(place.hostname or "", place.port, timeout=CALL_TIMEOUT_S)
    body = json.dumps(
        {
            "model": "fake-model",
            "max_tokens": call.tokens,
            "messages": [{"role": "user", "content": f"task {call.number}"}],
        }
    )
    try:
        connection.request("POST", "/v1/messages", body, {"content-type": "application/json"})
        response = connection.getresponse()
        response.read()
        return response.status, {name.lower(): value for name, value in response.getheaders()}
    finally:
        connection.close()


def say(word: str) -> None:
    sys.stdout.write(f"{word}\n")
    sys.stdout.flush()


def attempt(url: str, call: PlannedCall) -> tuple[int, Mapping[str, str]]:
    say("run")
    status, headers = ask(url, call)
    if status not in (200, 429):
        raise RuntimeError(f"the provider answered {status}")
    say("done" if status == 200 else "429")
    return status, headers


def make_ungoverned(url: str, call: PlannedCall, chance: random.Random) -> None:
    for tries in count():
        status, headers = attempt(url, call)
        if status == 200:
            return
        retry_after = headers.get("retry-after")
        time.sleep(retry_delay_s(tries, float(retry_after) if retry_after else None, chance))


def make_governed(url: str, call: PlannedCall, *, pool: str, project: str, name: str) -> None:
    import flyball

    status = 0
    while status != 200:
        with flyball.slot(pool, project=project, name=name) as lease:
            status, headers = attempt(url, call)
            lease.report(status, headers)


def maker(told: Mapping[str, str | None]) -> Callable[[PlannedCall], None]:
    """How this worker makes a call."""
    url, project, name = told["url"] or "", told["project"] or "", told["name"] or ""
    pool = told["pool"]
    if pool is None:
        chance = random.Random(f"{told['seed']}/{project}/{name}")
        return lambda call: make_ungoverned(url, call, chance)
    import flyball

    flyball.slot(pool)  # asks for nothing yet, but imports what the first call needs
    return lambda call: make_governed(url, call, pool=pool, project=project, name=name)


def main(argv: list[str]) -> int:
    make = maker(json.loads(argv[0]))
    calls: SimpleQueue[PlannedCall | None] = SimpleQueue()
    start_thread(partial(_read_calls, calls), name="flyball-calls")
    say("ready")
    for call in iter(calls.get, None):
        make(call)
    return 0


def _read_calls(calls: SimpleQueue[PlannedCall | None]) -> None:
    # Not sys.stdin: a thread that waits inside it makes the interpreter abort at exit.
    with open(0, "rb", buffering=0, closefd=False) as lines:
        for line in iter(lines.readline, b""):
            told = json.loads(line)
            calls.put(PlannedCall(**told) if told is not None else None)
    os._exit(0)


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except BrokenPipeError:
        os._exit(0)
