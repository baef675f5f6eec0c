"""What the shipped rule is searched with, and how many states of it in a soak.

Many searches of a soak end by themselves: every world that these bounds allow has then been visited, however
many moves away. The others stop at ``Scenario.full``. In every test run each gets the first ``QUICK_STATES``.
"""

from __future__ import annotations

from tests.explore.world import AtFence, Process, Scenario

HERE, LATER, SLOW = Process(), Process(starts=False), Process(drift=1)
TWIN = Process(node="a")
REBORN, HEIR = Process(node="a", heir=2), Process(node="a", starts=False)
QUICK_STATES = 4_000

TO_THE_END = 2_500_000
"""Enough for those that end."""

SCENARIOS = (
    Scenario(name="messages", time=False, wire=2, impatient=True, full=TO_THE_END),
    Scenario(name="messages, three nodes", time=False, processes=(HERE, HERE, HERE), caps=(3,), full=50_000),
    Scenario(name="messages, one node id twice", time=False, processes=(TWIN, TWIN, HERE), full=50_000),
    Scenario(name="messages, the cap moves", time=False, caps=(2, 1, 3), rare={"cap": 3, "notice": 1}),
    Scenario(
        name="messages, the plan at once",
        time=False,
        caps=(3, 1),
        rare={"cap": 2},
        twice=False,
        prompt=True,
        full=50_000,
    ),
    Scenario(name="messages, by demand", time=False, demand=True, rare={"mood": 2}),
    Scenario(
        name="messages, leave and join",
        time=False,
        processes=(HERE, HERE, LATER),
        rare={"leave": 1, "join": 1},
    ),
    Scenario(name="time", ttls=(2,), full=50_000),
    Scenario(name="time, a long lease", ttls=(4,), twice=False),
    Scenario(name="time, overtaking", ttls=(2,), caps=(1,), wire=2, twice=False, lossy=False),
    Scenario(
        name="time, three nodes",
        ttls=(2,),
        processes=(HERE, HERE, HERE),
        caps=(3,),
        twice=False,
        lossy=False,
    ),
    Scenario(name="drift", ttls=(3,), processes=(SLOW, HERE), twice=False, lossy=False, full=50_000),
    Scenario(name="hung replies", ttls=(2,), caps=(1,), twice=False, impatient=True),
    Scenario(name="the cap moves", ttls=(2,), caps=(2, 1), rare={"cap": 2}, twice=False, lossy=False),
    Scenario(name="the lease's length moves", ttls=(3, 2), rare={"ttl": 2}, twice=False),
    Scenario(
        name="restart under one node id",
        ttls=(2,),
        processes=(REBORN, HERE, HEIR),
        rare={"crash": 1},
        twice=False,
        lossy=False,
    ),
    Scenario(name="leave with work", ttls=(2,), rare={"leave": 1}, twice=False, lossy=False),
    Scenario(name="flush", ttls=(2,), rare={"flush": 1}, twice=False, lossy=False, full=50_000),
    Scenario(name="flush, with loss", ttls=(2,), caps=(1,), rare={"flush": 1}, twice=False),
    Scenario(
        name="flush, the plan at once", ttls=(2,), rare={"flush": 1}, twice=False, lossy=False, prompt=True
    ),
    Scenario(name="flush, overtaking", ttls=(2,), wire=2, rare={"flush": 1}, twice=False, lossy=False),
    Scenario(name="an old snapshot", ttls=(2,), rare={"save": 1, "restore": 1}, twice=False, lossy=False),
    Scenario(
        name="grace", ttls=(2,), grace=1, at_fence=AtFence.LINGER, twice=False, lossy=False, full=50_000
    ),
    Scenario(
        name="stubborn work",
        ttls=(2,),
        caps=(1,),
        at_fence=AtFence.STUBBORN,
        twice=False,
        lossy=False,
    ),
    Scenario(
        name="stubborn work, flush",
        ttls=(2,),
        at_fence=AtFence.STUBBORN,
        rare={"flush": 1},
        twice=False,
        lossy=False,
    ),
    Scenario(name="local outage", ttls=(2,), at_fence=AtFence.STUBBORN, local=1, twice=False, lossy=False),
    Scenario(name="turns", ttls=(2,), caps=(1,), twice=False),
    Scenario(
        name="turns, three nodes",
        ttls=(2,),
        caps=(1,),
        processes=(HERE, HERE, HERE),
        twice=False,
        lossy=False,
    ),
    Scenario(
        name="everything",
        ttls=(2,),
        caps=(2, 1),
        processes=(REBORN, HERE, HEIR),
        rare={"crash": 1, "leave": 1, "flush": 1, "cap": 2, "notice": 1},
    ),
)
