"""Scenarios no controller is tuned on: other shapes and sizes, the same classes. For the final table only."""

from __future__ import annotations

from collections.abc import Mapping

from flyball.sim.simulator import shapes
from flyball.sim.simulator.jobs import Mix
from flyball.sim.simulator.limits import Flaky, Outages, Refilling, Seats
from flyball.sim.simulator.scenario import AGENTS, DAY, SCENARIOS, Scenario, ScenarioKind, Unit, seats

_HELD_OUT = (
    Scenario(
        name="ramp",
        title="6 to 48 at once, steadily",
        kind=ScenarioKind.HARD,
        words="the seats grow in a straight line over two hours",
        rules=lambda _, end_s: [Seats(shapes.sample_steps(lambda t_s: 6 + 42 * t_s / end_s, end_s, 1.0))],
    ),
    Scenario(
        name="square",
        title="30 and 15 at once in turn",
        kind=ScenarioKind.HARD,
        words="the seats halve and come back at random times, ten minutes apart on average",
        rules=lambda seed, horizon_s: [Seats(shapes.square(15, 30, 600, horizon_s, seed))],
    ),
    Scenario(
        name="seven",
        title="7 at once",
        kind=ScenarioKind.HARD,
        words="a small account",
        rules=seats(7),
    ),
    Scenario(
        name="wide",
        title="120 at once",
        kind=ScenarioKind.HARD,
        words="a large account",
        rules=seats(120),
    ),
    Scenario(
        name="heavy-tail",
        title="24 at once, very uneven calls",
        kind=ScenarioKind.HARD,
        words="one call in a hundred takes more than eight times the mean",
        rules=seats(24),
        mix=Mix(service_sigma=1.2),
    ),
    Scenario(
        name="seats-retry-after",
        title="24 at once, with Retry-After",
        kind=ScenarioKind.HARD,
        words="a 429 for one too many asks to wait three seconds, though a seat may be free sooner",
        rules=lambda _, __: [Seats([(0.0, 24)], retry_after_s=3.0)],
    ),
    Scenario(
        name="walk",
        title="10 to 40 at once, wandering",
        kind=ScenarioKind.VOLATILE,
        words="the seats move by up to two, up or down, every 20 seconds",
        rules=lambda seed, horizon_s: [Seats(shapes.walk(10, 40, 20, horizon_s, seed))],
    ),
    Scenario(
        name="two-buckets",
        title="requests and tokens per minute, with headers",
        kind=ScenarioKind.HEADERS,
        words="both quotas are about equally tight, so which one binds changes by the minute",
        rules=lambda _, __: [
            Refilling("tokens", 240_000, 4_000, headers=True),
            Refilling("requests", 120, 2, headers=True),
        ],
        unit=Unit.TOKENS,
    ),
    Scenario(
        name="bucket-small",
        title="a small token quota, bare 429",
        kind=ScenarioKind.QUOTA,
        words="60,000 tokens that refill at 1,000 a second; a 429 says nothing",
        rules=lambda _, __: [Refilling("tokens", 60_000, 1_000)],
        unit=Unit.TOKENS,
    ),
    Scenario(
        name="agents-drift",
        title="19 to 31 agents at once, drifting",
        kind=ScenarioKind.AGENTS,
        words="runs of 13 minutes; the seats follow a sine around 25 over the day",
        rules=lambda _, horizon_s: [Seats(shapes.wave(25, 6, horizon_s, every_s=60.0))],
        mix=Mix(780.0, 0.8),
        horizon_s=DAY,
        reject_s=30.0,
        pool=AGENTS,
    ),
    Scenario(
        name="outages-mixed",
        title="outages from seconds to ten minutes",
        kind=ScenarioKind.TROUBLE,
        words="24 seats; outages of very different lengths, and one call in 500 meets an overload of its own",
        rules=lambda seed, horizon_s: [
            Seats([(0.0, 24)]),
            Outages(shapes.mixed_outages(horizon_s, seed)),
            Flaky(),
        ],
        mix=Mix(unlucky=0.002),
    ),
)

HELD_OUT: Mapping[str, Scenario] = {scenario.name: scenario for scenario in _HELD_OUT}
EVERY_SCENARIO: Mapping[str, Scenario] = {**SCENARIOS, **HELD_OUT}
