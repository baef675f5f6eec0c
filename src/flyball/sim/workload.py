"""The work that is thrown at a provider: the same calls, from the same seed, whoever makes them.

Pure. A project has a line of calls to make and a number of processes that take the next one when they have
time, so two runs of one workload differ only in how the calls are admitted.
"""

from __future__ import annotations

import random
from dataclasses import dataclass

from flyball.errors import UsageError

FIRST_BACKOFF_S = 0.5
LONGEST_BACKOFF_S = 8.0
LONGEST_RETRY_AFTER_S = 60.0


@dataclass(frozen=True, slots=True)
class Call:
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

    def calls_of(self, project: str) -> list[Call]:
        chance = random.Random(f"{self.seed}/{project}")
        spread = [chance.randint(self.tokens_low, self.tokens_high) for _ in range(self.calls_each)]
        return [Call(number, tokens) for number, tokens in enumerate(spread)]

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
