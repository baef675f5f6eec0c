"""One pool in one process: what the gate lets through, whatever its controller and its provider say."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flyball.core.pool import plan
from flyball.core.pool.control.fixed import FixedController
from flyball.core.pool.control.port import SignalContext, UsageSample
from flyball.core.pool.learned import CapEvent, CapState
from flyball.core.pool.local_pool import INFINITY, CallStart, LocalPool
from flyball.core.pool.model import Phase
from flyball.core.pool.setting_table import resolve_pool
from flyball.core.pool.settings import CONTROLLERS, PoolChanges, PoolSettings
from flyball.core.signals import Bucket, Signal, SignalKind
from tests.core.kit import T0

OK, THROTTLED, OVERLOADED, TIMEOUT, UNKNOWN = (
    Signal(kind)
    for kind in (
        SignalKind.OK,
        SignalKind.THROTTLED,
        SignalKind.OVERLOADED,
        SignalKind.TIMEOUT,
        SignalKind.UNKNOWN,
    )
)
NOTHING: Mapping[str, float] = {}


@dataclass
class Driver:
    """A gate with simulated time: it starts what the gate lets through and remembers what is in flight."""

    gate: LocalPool
    now: float = T0

    def wait(self, seconds: float) -> None:
        self.now += seconds

    def open(self, cost: Mapping[str, float] = NOTHING) -> bool:
        return self.gate.earliest_start(self.now, cost) <= self.now

    def start(self, cost: Mapping[str, float] = NOTHING) -> CallStart:
        assert self.open(cost)
        return self.gate.start(self.now, cost)

    def fill(self, cost: Mapping[str, float] = NOTHING) -> list[CallStart]:
        started = []
        while self.open(cost):
            started.append(self.gate.start(self.now, cost))
        return started

    def end(self, start: CallStart, signal: Signal = OK, **used: float) -> None:
        self.gate.end(start, signal, self.now, actual=used)


def driver(**changes: object) -> Driver:
    usual: PoolChanges = {"profile": "calls", "cap": 8, "cap_ceiling": 16}
    return Driver(LocalPool(resolve_pool({**usual, **changes}), T0))  # type: ignore[typeddict-item]


# -- never more than allowed --------------------------------------------------------------------------


class MadController(FixedController):
    """Says whatever it likes, whenever it is asked."""

    name = "mad"

    def __init__(self, levels: Callable[[], float]) -> None:
        self._levels = levels

    def on_signal(self, state: CapState, s: PoolSettings, heard: SignalContext) -> tuple[CapState, CapEvent]:
        return replace(state, level=self._levels()), CapEvent.CUT

    def on_usage(self, state: CapState, s: PoolSettings, seen: UsageSample) -> CapState:
        return replace(state, level=self._levels())


@pytest.mark.parametrize("level", [1e300, math.inf, -math.inf, math.nan, -5.0, 16.999, 0.0])
def test_a_controller_that_goes_mad_cannot_exceed_the_ceiling_nor_the_floor(
    monkeypatch: pytest.MonkeyPatch, level: float
) -> None:
    monkeypatch.setattr(plan, "controller_for", lambda _: MadController(lambda: level))
    d = driver(cap_floor=2)
    for _ in range(3):
        d.end(d.start(), THROTTLED)
        d.wait(1000)
    assert 2 <= len(d.fill()) <= 16


_steps = st.lists(
    st.tuples(
        st.sampled_from(["fill", "fill", "ok", "ok", "refuse", "overload", "timeout", "abandon", "unknown"]),
        st.sampled_from([0.0, 0.05, 0.3, 1.0, 10.0, 400.0]),
        st.integers(0, 1000),
    ),
    max_size=60,
)
_signals = {
    "ok": OK,
    "refuse": THROTTLED,
    "overload": OVERLOADED,
    "timeout": TIMEOUT,
    "unknown": UNKNOWN,
}


def _played(d: Driver, steps: list[tuple[str, float, int]], check: Callable[[int], None]) -> None:
    flying: list[CallStart] = []
    for what, wait_s, number in steps:
        d.wait(wait_s)
        if what == "fill":
            flying += d.fill()
        elif flying:
            start = flying.pop(number % len(flying))
            if what == "abandon":
                d.gate.abandon(start, d.now)
            else:
                d.end(start, _signals[what])
        check(len(flying))


@pytest.mark.parametrize("controller", CONTROLLERS)
@given(_steps)
def test_under_any_controller_in_flight_never_exceeds_the_ceiling(
    controller: str, steps: list[tuple[str, float, int]]
) -> None:
    d = driver(controller=controller, cap=4, cap_ceiling=6)

    def check(flying: int) -> None:
        assert d.gate.in_use == flying <= 6

    _played(d, steps, check)


@given(_steps, st.lists(st.floats(allow_nan=True, allow_infinity=True), min_size=1))
def test_whatever_a_mad_controller_says_in_flight_never_exceeds_the_ceiling(
    steps: list[tuple[str, float, int]], levels: list[float]
) -> None:
    numbers = iter(levels * 10_000)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(plan, "controller_for", lambda _: MadController(lambda: next(numbers)))
        d = driver(cap=4, cap_ceiling=6)

        def check(flying: int) -> None:
            assert flying <= 6

        _played(d, steps, check)


@pytest.mark.parametrize("controller", CONTROLLERS)
@given(_steps)
def test_under_any_controller_work_starts_again_when_everything_ended_and_time_passed(
    controller: str, steps: list[tuple[str, float, int]]
) -> None:
    d = driver(controller=controller, cap=4, cap_ceiling=6)
    flying: list[CallStart] = []
    for what, wait_s, number in steps:
        d.wait(wait_s)
        if what == "fill":
            flying += d.fill()
        elif flying:
            d.end(flying.pop(number % len(flying)), _signals.get(what, OK))
    for start in flying:
        d.end(start)
    for _ in range(10):
        at = d.gate.earliest_start(d.now)
        if at <= d.now:
            break
        assert at < INFINITY, "nothing is in flight, so only time can open it"
        d.now = at
    assert d.open()


def test_a_full_gate_says_when_to_look_again() -> None:
    d = driver()
    assert len(d.fill()) == 8
    assert d.gate.earliest_start(d.now) > d.now


def test_a_static_gate_never_moves() -> None:
    d = driver(adaptive=False)
    for start in d.fill():
        d.end(start, THROTTLED)
    assert len(d.fill()) == 8


# -- closed and the trial ------------------------------------------------------------------------------


def test_retry_after_closes_it_until_then() -> None:
    d = driver()
    d.end(d.start(), Signal(SignalKind.THROTTLED, 5.0))
    assert d.gate.earliest_start(d.now) >= T0 + 5
    d.now = d.gate.earliest_start(d.now)
    assert d.open()


def _open_breaker(**changes: object) -> Driver:
    d = driver(cap=1, cap_ceiling=4, **changes)
    d.end(d.start(), THROTTLED)
    assert d.gate.limits.phase is Phase.OPEN
    return d


def _trial() -> tuple[Driver, CallStart]:
    d = _open_breaker()
    d.now = d.gate.earliest_start(d.now)
    return d, d.start()


def test_an_open_breaker_lets_no_call_through_until_its_break_is_over() -> None:
    d = _open_breaker()
    assert not d.open()
    d.now = d.gate.earliest_start(d.now)
    assert d.open()


def test_one_trial_at_a_time() -> None:
    d, _ = _trial()
    assert not d.open()


def test_a_trial_that_is_answered_closes_the_breaker() -> None:
    d, trial = _trial()
    d.end(trial, OK)
    assert d.gate.limits.phase is Phase.CLOSED
    assert d.open()


def test_a_trial_that_is_refused_opens_it_for_longer() -> None:
    d = _open_breaker(break_s=10.0, break_max_s=100.0, controller="article")
    d.now = d.gate.earliest_start(d.now)
    trial, before = d.start(), d.now
    d.end(trial, THROTTLED)
    assert d.gate.earliest_start(d.now) == before + 20.0


@pytest.mark.parametrize("ending", ["abandoned", "unknown"])
def test_a_trial_that_said_nothing_leaves_it_to_the_next(ending: str) -> None:
    d, trial = _trial()
    if ending == "abandoned":
        d.gate.abandon(trial, d.now)
    else:
        d.end(trial, UNKNOWN)
    assert d.gate.limits.phase is Phase.TRIAL
    assert d.open()


def test_a_trial_still_running_after_its_clean_time_closes_the_breaker() -> None:
    d, _ = _trial()
    d.now = d.gate.earliest_start(d.now)
    d.gate.renew(d.now)
    assert d.gate.limits.phase is Phase.CLOSED


def test_an_old_call_refused_during_the_trial_does_not_judge_it() -> None:
    d = driver(cap=3, cap_ceiling=6)
    old, *others = d.fill()
    for start in others:
        d.end(start, THROTTLED)
    while d.gate.limits.phase.value != "open":
        d.now = max(d.now, d.gate.earliest_start(d.now))
        for start in d.fill():
            d.end(start, OVERLOADED)
    d.now = d.gate.earliest_start(d.now)
    d.start()
    d.end(old, THROTTLED)
    assert d.gate.limits.phase is Phase.TRIAL


# -- windows ----------------------------------------------------------------------------------------


def test_concurrency_and_windows_must_both_have_room() -> None:
    d = driver(windows={"requests": "3/min"})
    assert len(d.fill()) == 3
    assert d.gate.earliest_start(d.now) == T0 + 20


def test_a_window_lets_calls_through_as_it_refills() -> None:
    d = driver(windows={"requests": "3/min"})
    for start in d.fill():
        d.end(start)
    d.wait(20)
    assert len(d.fill()) == 1


def test_a_rejected_call_gives_back_what_it_reserved() -> None:
    d = driver(windows={"tokens": "1000/min"}, controller="fixed")
    d.end(d.start({"tokens": 1000.0}), THROTTLED)
    assert d.open({"tokens": 1000.0})


def test_an_abandoned_call_gives_back_what_it_reserved_and_teaches_nothing() -> None:
    d = driver(windows={"tokens": "1000/min"})
    before = d.gate.memory
    d.gate.abandon(d.start({"tokens": 1000.0}), d.now)
    assert d.open({"tokens": 1000.0})
    assert (d.gate.memory, d.gate.in_use) == (before, 0)


def test_a_served_call_pays_what_it_used() -> None:
    d = driver(windows={"tokens": "1000/min"})
    d.end(d.start({"tokens": 1000.0}), OK, tokens=400.0)
    assert d.open({"tokens": 600.0})
    assert not d.open({"tokens": 601.0})


def _answer(remaining: float, kind: SignalKind = SignalKind.OK, *, limit: float = 1000.0) -> Signal:
    return Signal(kind, buckets=(Bucket("tokens", limit, remaining, 60.0),))


def test_headers_teach_a_window_that_calls_then_wait_for() -> None:
    d = driver()
    d.end(d.start({"tokens": 100.0}), _answer(150.0))
    assert d.open({"tokens": 50.0})
    assert not d.open({"tokens": 51.0}), "a tenth is left alone"


def test_a_refusal_that_the_headers_explain_leaves_the_level_alone() -> None:
    d = driver()
    for start in d.fill({"tokens": 100.0}):
        d.end(start, _answer(20.0, SignalKind.THROTTLED))
    assert d.gate.cap == 8


def test_after_a_refusal_that_the_headers_explain_the_call_waits_for_the_window() -> None:
    d = driver()
    d.end(d.start({"tokens": 500.0}), _answer(20.0, SignalKind.THROTTLED))
    assert d.gate.earliest_start(d.now, {"tokens": 500.0}) > T0 + 10


def test_a_provider_that_shows_room_and_refuses_still_lowers_the_level() -> None:
    d = driver()
    starts = d.fill({"tokens": 10.0})
    d.wait(0.2)
    d.end(starts[5], _answer(900.0, SignalKind.THROTTLED))
    assert d.gate.cap == 5


def test_a_refusal_explained_by_a_quota_that_a_person_declared_larger_lowers_the_level() -> None:
    """Nothing else would slow down what is refused: the declared window has room."""
    d = driver(windows={"tokens": "100k/min"})
    starts = d.fill({"tokens": 10.0})
    d.wait(0.2)
    d.end(starts[5], _answer(0.0, SignalKind.THROTTLED))
    assert d.gate.cap == 5


# -- hearing, changing --------------------------------------------------------------------------------


def test_a_refusal_heard_while_the_call_goes_on_counts_once() -> None:
    d = driver(windows={"requests": "60/min"})
    starts = d.fill()
    d.wait(0.2)
    d.gate.report(starts[5], THROTTLED, d.now)
    cap, windows = d.gate.cap, d.gate.windows
    d.gate.end(starts[5], THROTTLED, d.now, heard=True)
    assert (cap, d.gate.cap, d.gate.windows) == (5, 5, windows)
    assert d.gate.memory.cap.throttle_count == 1


@pytest.mark.parametrize("controller", CONTROLLERS)
def test_a_retry_that_is_refused_on_firm_ground_is_no_second_reason_to_slow_down(controller: str) -> None:
    d = driver(controller=controller)
    starts = d.fill()
    d.wait(0.2)
    d.end(starts[5], Signal(SignalKind.THROTTLED, 7.0, repeated=True))
    assert (d.gate.cap, d.gate.limits.closed_until) == (8, None)
    assert d.gate.memory.cap.throttle_count == 0


def test_a_retry_that_is_refused_undoes_the_probe_that_it_answers_and_closes_nothing() -> None:
    d = driver()
    d.fill()
    while not d.open():
        d.now = d.gate.earliest_start(d.now)
    probe = d.start()
    assert d.gate.cap == 9
    d.wait(0.2)
    d.end(probe, Signal(SignalKind.THROTTLED, 7.0, repeated=True))
    assert (d.gate.cap, d.gate.limits.closed_until) == (8, None)


def long_wait(d: Driver, scope: str = "") -> list[CallStart]:
    """Calls take 2 s, and then one of those in flight is told to come back in a minute."""
    for start in d.fill():
        d.now = T0 + 2.0
        d.end(start)
    starts = d.fill()
    d.wait(0.2)
    d.end(starts.pop(), Signal(SignalKind.THROTTLED, 60.0, scope=scope))
    return starts


def test_after_a_lone_refusal_one_call_is_tried_two_holds_later_and_others_follow_if_it_is_served() -> None:
    d = driver()
    refused_at = T0 + 2.2
    for start in long_wait(d):
        d.end(start)
    assert d.gate.earliest_start(d.now) == pytest.approx(refused_at + 4.0)
    d.now = d.gate.earliest_start(d.now)
    assert len(d.fill()) == 1
    d.wait(2.0)
    assert len(d.fill()) > 1


def test_a_call_that_is_tried_and_refused_closes_the_pool_as_long_as_it_is_told() -> None:
    d = driver()
    for start in long_wait(d):
        d.end(start)
    d.now = d.gate.earliest_start(d.now)
    (tried,) = d.fill()
    d.wait(0.2)
    d.end(tried, Signal(SignalKind.THROTTLED, 55.0))
    assert d.gate.limits.closed_until == pytest.approx(d.now + 55.0)


def test_a_refusal_that_is_not_alone_closes_the_pool_as_long_as_it_is_told() -> None:
    d = driver()
    starts = long_wait(d)
    d.wait(0.1)
    d.end(starts[0], Signal(SignalKind.THROTTLED, 60.0))
    assert d.gate.earliest_start(d.now) == pytest.approx(d.now + 60.0)


def test_where_the_provider_says_that_it_is_a_quota_the_pool_waits_as_long_as_it_is_told() -> None:
    d = driver()
    long_wait(d, scope="tokens")
    assert d.gate.limits.closed_until == pytest.approx(d.now + 60.0)


def test_another_controller_keeps_the_level_and_nothing_else_that_was_learned() -> None:
    d = driver()
    starts = d.fill()
    d.wait(0.2)
    d.end(starts[5], THROTTLED)
    d.gate.change(replace(d.gate.settings, controller="koryph"), d.now, reseed=False)
    assert (d.gate.cap, d.gate.memory.cap.measured, d.gate.memory.cap.hold_until) == (5, None, 0.0)
    assert d.gate.memory.cap.throttle_count == 1


def test_time_that_passes_in_a_full_gate_raises_the_cap_without_a_single_end() -> None:
    d = driver()
    d.fill()
    for _ in range(20):
        d.now = d.gate.earliest_start(d.now)
        d.fill()
    assert d.gate.in_use > 8
