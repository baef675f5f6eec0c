"""What the shipped rule is searched with, and how many states of it in a soak and in every test run."""

from __future__ import annotations

from tests.explore.world import Process, Scenario

HERE, LATER = Process(), Process(starts=False)
REBORN = Process(heir=2)

SCENARIOS = (
    Scenario(name="messages", time=False, wire=2),
    Scenario(name="messages, three nodes", time=False, processes=(HERE, HERE, HERE), caps=(3,)),
    Scenario(name="time", ttl=2),
    Scenario(name="time, long lease", ttl=4, twice=False),
    Scenario(name="drift", ttl=3, processes=(Process(drift=1), Process(drift=1)), twice=False),
    Scenario(name="cap moves", time=False, wire=2, caps=(2, 1, 3), rare={"cap": 3, "notice": 1}),
    Scenario(name="cap moves, time", ttl=2, caps=(2, 1), rare={"cap": 2}, twice=False),
    Scenario(name="restart", ttl=2, processes=(REBORN, HERE, LATER), rare={"crash": 1}, twice=False),
    Scenario(name="leave and join", time=False, processes=(HERE, HERE, LATER), rare={"leave": 2, "join": 1}),
    Scenario(name="leave, time", ttl=2, rare={"leave": 1}, twice=False),
    Scenario(name="flush", ttl=2, rare={"flush": 1}, twice=False),
    Scenario(name="old snapshot", ttl=2, rare={"save": 1, "restore": 1}, twice=False, lossy=False),
    Scenario(name="grace", ttl=2, grace=1, at_fence="linger", rare={"flush": 1}, twice=False),
    Scenario(name="stubborn work", ttl=2, at_fence="stubborn", twice=False),
    Scenario(name="turns", ttl=4, caps=(1,), twice=False),
    Scenario(
        name="turns, three nodes", ttl=2, caps=(1,), processes=(HERE, HERE, HERE), twice=False, lossy=False
    ),
    Scenario(name="demand", time=False, wire=2, demand=True, rare={"mood": 2}),
    Scenario(
        name="everything",
        ttl=2,
        caps=(2, 1),
        processes=(REBORN, HERE, LATER),
        rare={"crash": 1, "leave": 1, "flush": 1, "cap": 2, "notice": 1},
    ),
)
