"""What is simulated: a provider with hidden limits, the work it gets, and what a good result is there.

A scenario was defined before any controller was tuned on it. ``SCENARIOS`` are for tuning, with the seeds
``TUNING_SEEDS``. ``HELD_OUT`` has other shapes, and ``FINAL_SEEDS`` other chances: both are looked at
only for the final table.

Goodput is counted in what the limit is made of: seconds of service where seats are limited, tokens where
tokens are, requests where requests are. Waste is rejected attempts per hundred successes; for agents,
whose rejections are rare and long, the share of slot time spent on being rejected.

Times in a shape follow the horizon, so a shorter run has the same shape; outages keep their length.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum

from flyball.core.pool.settings import PoolChanges
from flyball.core.signals import SignalKind
from flyball.sim.simulator import shapes
from flyball.sim.simulator.engine import SimulatedProvider
from flyball.sim.simulator.jobs import Mix
from flyball.sim.simulator.limits import Acceleration, Flaky, Outages, Refilling, Rule, Seats

TUNING_SEEDS = (1, 2, 3)
FINAL_SEEDS = (201, 202, 203)
HOURS_2, HOURS_4, DAY = 7200.0, 14400.0, 86400.0


class ScenarioKind(Enum):
    """Classes of scenario: what can be reached differs between them, not within."""

    HARD = "hard cap"
    VOLATILE = "volatile"
    HEADERS = "headers"
    QUOTA = "quota"
    AGENTS = "agents"
    TROUBLE = "trouble"
    PROCESSES = "processes"


class Unit(Enum):
    """What goodput is counted in; the value is the field of a ``Tally``."""

    SERVICE = "served_s"
    TOKENS = "tokens"
    REQUESTS = "accepted"


@dataclass(frozen=True, slots=True, kw_only=True)
class Goal:
    """What is good here, in percent. None: not judged."""

    goodput: float
    waste: float | None = None
    slot_waste: float | None = None
    jain: float | None = None


GOALS: Mapping[ScenarioKind, Goal] = {
    ScenarioKind.HARD: Goal(goodput=99.0, waste=0.5),
    ScenarioKind.VOLATILE: Goal(goodput=95.0, waste=1.0),
    ScenarioKind.HEADERS: Goal(goodput=99.5, waste=0.05),
    ScenarioKind.QUOTA: Goal(goodput=98.5, waste=0.5),
    ScenarioKind.AGENTS: Goal(goodput=98.5, slot_waste=0.3),
    ScenarioKind.TROUBLE: Goal(goodput=99.0, waste=1.0),
    ScenarioKind.PROCESSES: Goal(goodput=99.0, jain=0.99),
}

CALLS = PoolChanges(profile="calls", cap=2, cap_ceiling=512)
AGENTS = PoolChanges(profile="agents", spacing_s=0.0, cap_ceiling=64)
"""Without the pause between starts, which is a choice about machines, not about providers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    name: str
    title: str
    kind: ScenarioKind
    words: str
    """What happens, for people."""
    rules: Callable[[int, float], Sequence[Rule]]
    """The provider's rules by seed and horizon."""
    mix: Mix = field(default_factory=Mix)
    horizon_s: float = HOURS_2
    unit: Unit = Unit.SERVICE
    reject_s: float = 0.15
    clients: int = 1
    coordinated: bool = True
    """Whether the clients' governor is one for all of them."""
    pool: PoolChanges = field(default_factory=CALLS.copy)
    """What flyball is told about the pool."""
    special: Goal | None = None
    judged: bool = True

    @property
    def goal(self) -> Goal | None:
        return (self.special or GOALS[self.kind]) if self.judged else None

    @property
    def hold_s(self) -> float:
        return self.mix.service_mean_s

    def provider(self, seed: int) -> SimulatedProvider:
        return SimulatedProvider(self.rules(seed, self.horizon_s), self.reject_s)

    def shorten(self, part: float) -> Scenario:
        """The same shape in part of the time."""
        return replace(self, horizon_s=self.horizon_s * part)


def seats(*counts: int) -> Callable[[int, float], Sequence[Rule]]:
    """One count for good, or two: there and back."""
    if len(counts) == 1:
        return lambda _, __: [Seats([(0.0, counts[0])])]
    return lambda _, horizon_s: [Seats(shapes.thirds(counts[0], counts[1], horizon_s))]


def tokens(*, headers: bool = False, retry_after: bool = False) -> Callable[[int, float], Sequence[Rule]]:
    return lambda _, __: [Refilling("tokens", 240_000, 4_000, headers=headers, retry_after=retry_after)]


_AGENT_MIX = Mix(780.0, 0.8)

_TUNING = (
    Scenario(
        name="constant",
        title="24 at once, always",
        kind=ScenarioKind.HARD,
        words="a provider that serves 24 calls at once and answers 429 to the 25th",
        rules=seats(24),
    ),
    Scenario(
        name="step",
        title="32, then 12, then 32 at once",
        kind=ScenarioKind.HARD,
        words="the provider serves 32 at once, 12 in the middle third, then 32 again",
        rules=seats(32, 12),
    ),
    Scenario(
        name="diurnal",
        title="8 to 32 at once, as a wave",
        kind=ScenarioKind.HARD,
        words="the seats follow a sine between 8 and 32, a day in four hours",
        rules=lambda _, horizon_s: [Seats(shapes.wave(20, 12, horizon_s, every_s=1.0))],
        horizon_s=HOURS_4,
    ),
    Scenario(
        name="neighbour",
        title="a restless neighbour",
        kind=ScenarioKind.VOLATILE,
        words="another user of the account leaves 12 to 36 seats, another number about every two minutes",
        rules=lambda seed, horizon_s: [Seats(shapes.restless(12, 36, 120, horizon_s, seed))],
    ),
    Scenario(
        name="bucket-headers",
        title="tokens per minute, with headers",
        kind=ScenarioKind.HEADERS,
        words="240,000 tokens that refill at 4,000 a second; every answer says how many are left",
        rules=tokens(headers=True),
        unit=Unit.TOKENS,
    ),
    Scenario(
        name="bucket-shared",
        title="a token quota shared with a neighbour",
        kind=ScenarioKind.HEADERS,
        words="a neighbour on the same quota takes a quarter of the refill, in bursts of a minute",
        rules=lambda seed, horizon_s: [
            Refilling("tokens", 240_000, 4_000, headers=True, neighbour=shapes.bursty(1_000, horizon_s, seed))
        ],
        unit=Unit.TOKENS,
        special=Goal(goodput=99.5, waste=0.3),
    ),
    Scenario(
        name="bucket-retry-after",
        title="tokens per minute, Retry-After only",
        kind=ScenarioKind.QUOTA,
        words="the same bucket; a 429 says in whole seconds when there is enough again",
        rules=tokens(retry_after=True),
        unit=Unit.TOKENS,
    ),
    Scenario(
        name="bucket-bare",
        title="tokens per minute, bare 429",
        kind=ScenarioKind.QUOTA,
        words="the same bucket; a 429 says nothing",
        rules=tokens(),
        unit=Unit.TOKENS,
    ),
    Scenario(
        name="requests-bare",
        title="requests per minute, bare 429",
        kind=ScenarioKind.QUOTA,
        words="120 requests that refill at 2 a second; a 429 says nothing",
        rules=lambda _, __: [Refilling("requests", 120, 2)],
        unit=Unit.REQUESTS,
    ),
    Scenario(
        name="agents",
        title="10 agents at once, a day",
        kind=ScenarioKind.AGENTS,
        words="runs of 13 minutes on average; the 11th dies with a rate limit after half a minute",
        rules=seats(10),
        mix=_AGENT_MIX,
        horizon_s=DAY,
        reject_s=30.0,
        pool=AGENTS,
    ),
    Scenario(
        name="agents-step",
        title="12, then 5, then 12 agents at once",
        kind=ScenarioKind.AGENTS,
        words="as agents, with less than half of the seats in the middle of the day",
        rules=seats(12, 5),
        mix=_AGENT_MIX,
        horizon_s=DAY,
        reject_s=30.0,
        pool=AGENTS,
    ),
    Scenario(
        name="bursts",
        title="four seconds of 429 every ten minutes",
        kind=ScenarioKind.TROUBLE,
        words="24 seats, but every ten minutes all calls are refused for four seconds, whatever the load",
        rules=lambda _, horizon_s: [
            Seats([(0.0, 24)]),
            Outages(shapes.every(300, 600, 4, horizon_s), SignalKind.THROTTLED),
        ],
    ),
    Scenario(
        name="outages",
        title="outages of one and two minutes, and stray overloads",
        kind=ScenarioKind.TROUBLE,
        words="24 seats; three times no call is served at all; one call in 500 meets an overload of its own",
        rules=lambda _, horizon_s: [
            Seats([(0.0, 24)]),
            Outages(
                [
                    (horizon_s * at, horizon_s * at + lasts_s)
                    for at, lasts_s in ((1 / 6, 60), (1 / 2, 120), (5 / 6, 60))
                ]
            ),
            Flaky(),
        ],
        mix=Mix(unlucky=0.002),
    ),
    Scenario(
        name="acceleration",
        title="use may only grow slowly",
        kind=ScenarioKind.TROUBLE,
        words="32 seats, and never more than half as many again as in the last minute",
        rules=lambda _, __: [Seats([(0.0, 32)]), Acceleration()],
    ),
    Scenario(
        name="stale",
        title="seats that outlive their calls",
        kind=ScenarioKind.TROUBLE,
        words="24 seats; one call in 200 ends for its client, but its seat stays taken 20 times as long",
        rules=seats(24),
        mix=Mix(stale=0.005),
    ),
    Scenario(
        name="processes-4",
        title="4 processes, one governor",
        kind=ScenarioKind.PROCESSES,
        words="24 seats for four processes that take turns",
        rules=seats(24),
        clients=4,
    ),
    Scenario(
        name="processes-20",
        title="20 processes, one governor",
        kind=ScenarioKind.PROCESSES,
        words="60 seats for twenty processes that take turns",
        rules=seats(60),
        clients=20,
    ),
    Scenario(
        name="processes-apart",
        title="4 processes that do not know each other",
        kind=ScenarioKind.PROCESSES,
        words="24 seats for four processes, each with a governor of its own: what coordination is for",
        rules=seats(24),
        clients=4,
        coordinated=False,
        judged=False,
    ),
)

SCENARIOS: Mapping[str, Scenario] = {scenario.name: scenario for scenario in _TUNING}
