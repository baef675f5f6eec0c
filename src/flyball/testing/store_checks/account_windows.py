"""The usage windows of a pool's account: what was said of them is shared, and kept to."""

from __future__ import annotations

from flyball.core.pool.verdict import Reason
from flyball.core.signals import Signal, SignalKind, UsageCertainty, WindowReading
from flyball.testing.store_checks.scenario import Scene, expect, expect_equal, store_check

HOUR_S = 3600.0


def _hear(
    s: Scene,
    fraction: float,
    *,
    name: str = "5h",
    resets_in_s: float | None = HOUR_S,
    account: str = "default:claude",
    age_s: float = 0.0,
) -> None:
    reading = WindowReading(name, fraction, resets_in_s, account, age_s=age_s)
    signal = Signal(SignalKind.OK, windows=(reading,))
    s.store.report("p", signal, project="a", name="t-1", claim_id=None)


@store_check
def what_was_heard_of_a_usage_window_is_kept_with_its_age(s: Scene) -> None:
    _hear(s, 0.4)
    s.wait(60)
    (kept,) = s.snapshot().memory.windows
    expect_equal((kept.account, kept.name, kept.fraction), ("default:claude", "5h", 0.4), "the window")
    expect_equal((s.store.now() - kept.at, kept.resets_at), (60.0, kept.at + HOUR_S), "its times")
    expect_equal(kept.certainty, UsageCertainty.REPORTED, "how it is known")


@store_check
def the_newest_word_on_a_usage_window_wins(s: Scene) -> None:
    _hear(s, 0.4)
    s.wait(10)
    _hear(s, 0.5)
    _hear(s, 0.3, age_s=60)
    _hear(s, 0.9, account="work")
    kept = [(each.account, each.fraction) for each in s.snapshot().memory.windows]
    expect_equal(kept, [("default:claude", 0.5), ("work", 0.9)], "the windows")


@store_check
def a_usage_window_is_forgotten_at_its_reset(s: Scene) -> None:
    s.static(1, usage_drain=0.9)
    _hear(s, 0.95)
    s.expect_refusal(Reason.USED_UP_SOON)
    s.wait(HOUR_S + 1)
    s.take()


@store_check
def by_default_a_full_usage_window_holds_up_nothing(s: Scene) -> None:
    s.static(2)
    _hear(s, 0.99)
    s.take()
    expect("usage" in s.fact_kinds(), "that it is nearly used up is told")


@store_check
def from_drain_on_an_ask_is_parked_until_the_reset(s: Scene) -> None:
    s.static(2, usage_drain=0.9)
    running = s.take()
    _hear(s, 0.9)
    verdict = s.expect_refusal(Reason.USED_UP_SOON)
    expect_equal(verdict.retry_after_s, HOUR_S, "until the reset")
    s.expect_refusal(Reason.USED_UP_SOON, priority=5)
    parked = s.park()
    expect(s.is_held(running), "what runs goes on")
    s.wait(HOUR_S + 1)
    expect(s.poll(parked).granted, "after the reset it starts")


@store_check
def the_end_of_a_usage_window_is_kept_for_priority_above_0(s: Scene) -> None:
    s.static(4, usage_keep=0.2)
    _hear(s, 0.79)
    s.take()
    _hear(s, 0.81)
    s.expect_refusal(Reason.USED_UP_SOON)
    ordinary = s.park()
    s.take(priority=1)
    expect(not s.is_held(ordinary), "an ordinary ask does not start with it")


@store_check
def from_slow_on_fewer_run_at_once(s: Scene) -> None:
    s.static(10, usage_slow=0.8, usage_drain=0.9)
    _hear(s, 0.85)
    expect_equal(s.snapshot().cap, 5, "halfway between slow and drain")
    for _ in range(5):
        s.take()
    s.expect_refusal(Reason.CAP)


@store_check
def a_usage_window_without_a_known_reset_holds_no_longer_than_it_can_last(s: Scene) -> None:
    s.static(1, usage_drain=0.9)
    _hear(s, 0.95, resets_in_s=None)
    s.wait(4 * HOUR_S)
    s.expect_refusal(Reason.USED_UP_SOON)
    s.wait(HOUR_S + 1)
    s.take()


@store_check
def a_usage_window_of_one_model_concerns_the_pool_of_its_family(s: Scene) -> None:
    s.static(1, usage_drain=0.9)
    s.static(1, "p:opus", usage_drain=0.9)
    signal = Signal(SignalKind.OK, windows=(WindowReading("7d opus", 0.95, HOUR_S),))
    for pool in ("p", "p:opus"):
        s.store.report(pool, signal, project="a", name="t-1", claim_id=None)
    s.take()
    s.expect_refusal(Reason.USED_UP_SOON, pool="p:opus")


@store_check
def a_retry_after_closes_also_for_what_a_usage_window_lets_through(s: Scene) -> None:
    s.static(4, usage_keep=0.2)
    _hear(s, 0.85)
    s.throttle(retry_after_s=60)
    s.expect_refusal(Reason.RETRY_AFTER, priority=1)
    s.wait(61)
    s.take(priority=1)
    s.expect_refusal(Reason.USED_UP_SOON)
