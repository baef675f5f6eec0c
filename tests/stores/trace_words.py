"""What may be said in a trace (traces.py): names, waits, settings, asks and renewals, sensible or not."""

from __future__ import annotations

from hypothesis import strategies as st

from flyball.core.pool.settings import CONTROLLERS, MachineSettings
from flyball.core.signals import Bucket, WindowReading

POOLS = ("p", "q")
pools = st.sampled_from("pppq")
projects = st.sampled_from("aabc")
names = st.sampled_from(["", "t-1", "t-2", "t-3"])
numbers = st.integers(0, 10_000)
nodes = st.sampled_from(["n1", "n1", "n2", "n3", "knot ü"])
waits = st.one_of(
    st.sampled_from([0.02, 0.06, 0.3, 1.0, 1.0, 2.1, 4.0]),
    st.sampled_from([0.0, 0.1, 1.0, 2.5, 8.0, 29.0, 60.0, 119.0, 120.0, 300.0, 600.0, 1800.0]),
    st.sampled_from([3600.0, 86_400.0, 30 * 86_400.0]),
)
pool_changes = st.fixed_dictionaries(
    {},
    optional={
        "profile": st.sampled_from(["mixed", "agents", "calls"]),
        "controller": st.sampled_from(["measured", "measured", *CONTROLLERS]),
        "adaptive": st.booleans(),
        "cap": st.integers(0, 6),
        "cap_ceiling": st.integers(1, 9),
        "share": st.sampled_from(["strict", "lend"]),
        "reserve": st.integers(0, 2),
        "spacing_s": st.sampled_from([0.0, 2.0]),
        "ageing_s": st.sampled_from([10.0, 60.0]),
        "heartbeat_s": st.sampled_from([0.3, 1.0, 7.0]),
        "grace_s": st.sampled_from([0.0, 0.0, 30.0]),
        "allotment": st.sampled_from(["even", "demand"]),
        "estimates": st.sampled_from(["median", "min"]),
        "weights": st.dictionaries(st.sampled_from("ab"), st.sampled_from([0, 0.5, 2.0]), max_size=2),
        "usage_slow": st.sampled_from([0.0, 0.0, 0.5]),
        "usage_drain": st.sampled_from([0.0, 0.0, 0.9]),
        "usage_keep": st.sampled_from([0.0, 0.0, 0.3]),
        "maxima": st.dictionaries(st.sampled_from("ab"), st.integers(0, 3), max_size=2),
        "windows": st.dictionaries(
            st.sampled_from(["requests", "tokens"]), st.sampled_from(["0", "4/min", "1k/min", "often"])
        ),
    },
)
machines = st.builds(
    MachineSettings,
    st.sampled_from([None, None, 2, 4]),
    st.sampled_from([None, None, 1 << 30]),
    st.sampled_from([{}, {"gpu": 1}, {"gpu": 2, "docker": 1}]),
)
costs = st.fixed_dictionaries(
    {}, optional={"tokens": st.sampled_from([0.0, 10.0, 400.0, 5000.0]), "requests": st.just(2.0)}
)
buckets = st.lists(
    st.builds(
        Bucket,
        st.sampled_from(["tokens", "requests"]),
        st.sampled_from([None, 10.0, 1000.0]),
        st.sampled_from([0.0, 5.0, 900.0]),
        st.sampled_from([None, 0.1, 30.0, 3600.0]),
    ),
    max_size=2,
).map(tuple)
readings = st.lists(
    st.builds(
        WindowReading,
        st.sampled_from(["5h", "7d", "7d opus"]),
        st.sampled_from([0.1, 0.6, 0.75, 0.95, 1.0]),
        st.sampled_from([None, 1.0, 60.0, 3600.0]),
        st.sampled_from(["", "work"]),
        age_s=st.sampled_from([0.0, 0.0, 30.0]),
    ),
    max_size=2,
).map(tuple) | st.just(())
resources = st.sampled_from([{}, {}, {}, {}, {"gpu": 1}, {"gpu": 2}, {"tpu": 1}])

renewals = st.fixed_dictionaries(
    {
        "holds": st.integers(0, 4),
        "in_flight": st.integers(0, 4),
        "wants": st.sampled_from([0, 1, 2, 2, 5, 9]),
        "weight": st.sampled_from([1.0, 1.0, 2.0, 1 / 3]),
        "beyond": st.sampled_from([0, 0, 0, 1, 3]),
        "leaving": st.sampled_from([False] * 6 + [True]),
        "peak": st.integers(0, 5),
        "hold_s": st.sampled_from([0.0, 0.7, 30.0]),
        "refused_age_s": st.sampled_from([None, 0.0, 0.4, 5.0]),
        "estimate": st.sampled_from([None, None, None, 0.5, 3.7, 6.0]),
    }
)
answers = st.tuples(
    st.sampled_from([0, 0, 1, 4]), st.sampled_from([0, 0, 0, 0, 1, 3]), st.sampled_from([0] * 7 + [1])
)
