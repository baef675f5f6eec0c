"""Budgets over time: reserving, settling, giving back, and the mirror of a provider's bucket."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flyball.core.pool import rate_window as windowing
from flyball.core.pool.rate_window import LEVEL_RESERVE, REQUESTS, Source, Window
from flyball.core.signals import Bucket, Signal, SignalKind
from flyball.errors import UsageError
from flyball.stores.codec import dump_windows, load_windows
from tests.cases import every
from tests.core.kit import T0

TOKENS = "tokens"
LIMIT, PER_S = 60_000.0, 1_000.0
NOTHING: Mapping[str, float] = {}


def tokens(level: float = LIMIT, *, source: Source = Source.DECLARED) -> Window:
    return Window(TOKENS, LIMIT, PER_S, level, T0, source)


def level_of(windows: tuple[Window, ...], name: str = TOKENS, *, at: float = T0) -> float:
    (found,) = (window for window in windows if window.name == name)
    return found.level_at(at)


def throttled(remaining: float, *, limit: float | None = LIMIT, name: str = TOKENS) -> Signal:
    return Signal(SignalKind.THROTTLED, buckets=(Bucket(name, limit, remaining),))


# -- reserve, settle, refund ------------------------------------------------------------------------


def test_a_window_refills_steadily_and_never_beyond_its_limit() -> None:
    window = tokens(0)
    assert [window.level_at(T0 + wait_s) for wait_s in (0, 1, 30, 60, 600)] == [0, 1e3, 30e3, LIMIT, LIMIT]


def test_a_clock_that_stepped_back_refills_nothing_and_takes_nothing() -> None:
    assert tokens(500).level_at(T0 - 100) == 500


def test_a_call_waits_until_what_it_lacks_has_refilled() -> None:
    assert tokens(500).room_at(2_500, T0) == T0 + 2.0
    assert tokens(2_500).room_at(2_500, T0) == T0


def test_a_call_larger_than_the_whole_window_waits_for_a_full_one() -> None:
    assert tokens(0).room_at(10 * LIMIT, T0) == T0 + 60
    assert tokens().room_at(10 * LIMIT, T0) == T0


def test_after_a_call_larger_than_the_window_the_next_waits_for_what_it_really_took() -> None:
    (window,) = windowing.take([tokens()], {TOKENS: 2 * LIMIT}, T0)
    assert window.room_at(1_000, T0) == T0 + 61


def test_a_call_is_one_request_whether_it_says_so_or_not() -> None:
    requests = windowing.declared_window(REQUESTS, 60, 60.0, T0)
    assert level_of(windowing.take([requests], NOTHING, T0), REQUESTS) == 59
    assert level_of(windowing.take([requests], {REQUESTS: 3}, T0), REQUESTS) == 57


def test_a_call_that_names_no_tokens_takes_none() -> None:
    assert level_of(windowing.take([tokens()], NOTHING, T0)) == LIMIT


def test_all_windows_must_have_room_and_the_last_one_is_named() -> None:
    requests = windowing.declared_window(REQUESTS, 60, 60.0, T0)
    (spent,) = windowing.take([requests], {REQUESTS: 60}, T0)
    assert windowing.room_at([spent, tokens(0)], {TOKENS: 500}, T0) == (T0 + 1.0, REQUESTS)
    assert windowing.room_at([spent, tokens(0)], {TOKENS: 5_000}, T0) == (T0 + 5.0, TOKENS)
    assert windowing.room_at([requests, tokens()], {TOKENS: 5_000}, T0) == (T0, "")


def _sent(*windows: Window, cost: Mapping[str, float]) -> tuple[tuple[Window, ...], Mapping[str, float]]:
    taken = windowing.take(windows, cost, T0)
    return taken, windowing.marks(taken)


def test_settling_replaces_the_estimate_by_what_was_used() -> None:
    taken, mark = _sent(tokens(), cost={TOKENS: 8_000})
    settled = windowing.reconcile(taken, {TOKENS: 8_000}, {TOKENS: 3_000}, sent_at=T0, mark=mark, now=T0)
    assert level_of(settled) == LIMIT - 3_000


def test_settling_may_take_more_than_was_reserved() -> None:
    taken, mark = _sent(tokens(1_000), cost={TOKENS: 1_000})
    settled = windowing.reconcile(taken, {TOKENS: 1_000}, {TOKENS: 5_000}, sent_at=T0, mark=mark, now=T0)
    assert level_of(settled) == -4_000


def test_settling_leaves_windows_alone_that_it_does_not_name() -> None:
    requests = windowing.declared_window(REQUESTS, 60, 60.0, T0)
    taken, mark = _sent(requests, tokens(), cost={TOKENS: 100})
    settled = windowing.reconcile(taken, {TOKENS: 100}, {TOKENS: 50}, sent_at=T0, mark=mark, now=T0)
    assert level_of(settled, REQUESTS) == 59


def test_a_rejected_call_burns_nothing() -> None:
    requests = windowing.declared_window(REQUESTS, 60, 60.0, T0)
    taken, mark = _sent(requests, tokens(), cost={TOKENS: 8_000})
    back = windowing.refund(taken, {TOKENS: 8_000}, sent_at=T0, mark=mark, now=T0)
    assert (level_of(back, REQUESTS), level_of(back)) == (60, LIMIT)


def test_a_call_gets_nothing_back_from_a_window_that_came_after_it() -> None:
    back = windowing.refund([tokens(100)], {TOKENS: 8_000}, sent_at=T0 - 9, mark=NOTHING, now=T0)
    assert level_of(back) == 100


def test_giving_back_never_fills_a_window_beyond_its_limit() -> None:
    taken, mark = _sent(tokens(), cost={TOKENS: 8_000})
    back = windowing.refund(taken, {TOKENS: 8_000}, sent_at=T0, mark=mark, now=T0 + 30)
    assert level_of(back, at=T0 + 30) == LIMIT


# -- the mirror -------------------------------------------------------------------------------------


@dataclass
class Provider:
    """An ideal bucket: it takes what fits when it arrives, and every answer says what was left then."""

    limit: float
    per_s: float
    level: float
    at: float = T0

    def left(self, now: float) -> float:
        self.level, self.at = min(self.limit, self.level + self.per_s * (now - self.at)), now
        return self.level

    def answer(self, cost: float, now: float) -> tuple[bool, Bucket]:
        served = self.left(now) >= cost
        if served:
            self.level -= cost
        full_s = (self.limit - self.level) / self.per_s
        return served, Bucket(TOKENS, self.limit, self.level, full_s)


@dataclass
class Client:
    """Sends whatever it is told to, and keeps the mirror as a gate does."""

    provider: Provider
    now: float = T0
    windows: tuple[Window, ...] = ()
    in_flight: list[tuple[float, float, Mapping[str, float], bool, Bucket]] = field(default_factory=list)

    def send(self, cost: float) -> None:
        self.windows = windowing.take(self.windows, {TOKENS: cost}, self.now)
        served, bucket = self.provider.answer(cost, self.now)
        self.in_flight.append((self.now, cost, windowing.marks(self.windows), served, bucket))

    def hear(self, index: int) -> None:
        """The answer to one of the calls in flight arrives."""
        sent_at, cost, mark, served, bucket = self.in_flight.pop(index)
        self.windows = windowing.learn(self.windows, [bucket], sent_at=sent_at, mark=mark, now=self.now)
        if not served:
            self.windows = windowing.refund(
                self.windows, {TOKENS: cost}, sent_at=sent_at, mark=mark, now=self.now
            )
        else:
            self.windows = windowing.reconcile(
                self.windows, {TOKENS: cost}, {TOKENS: cost}, sent_at=sent_at, mark=mark, now=self.now
            )


_steps = st.lists(
    st.tuples(st.integers(0, 5), st.integers(1, 400), st.sampled_from([0.25, 0.5, 1.0])), max_size=60
)


def _played(steps: list[tuple[int, int, float]]) -> Client:
    """A first call shows the bucket; then calls are sent and answered in any order."""
    client = Client(Provider(1e6, 8.0, 2_000.0))
    client.send(1.0)
    client.hear(0)
    for what, number, wait_s in steps:
        client.now += wait_s
        if what <= 2:
            client.send(float(number))
        elif client.in_flight:
            client.hear(number % len(client.in_flight))
    return client


@given(_steps)
def test_the_mirror_equals_the_bucket_once_the_newest_answer_is_in(
    steps: list[tuple[int, int, float]],
) -> None:
    client = _played(steps)
    if client.in_flight:
        client.hear(len(client.in_flight) - 1)
    newest_heard = client.windows[0].seen_sent_at
    assert all(sent_at < newest_heard for sent_at, *_ in client.in_flight)
    assert level_of(client.windows, at=client.now) == pytest.approx(client.provider.left(client.now))


@given(_steps)
def test_the_mirror_equals_the_bucket_when_everything_was_answered_in_any_order(
    steps: list[tuple[int, int, float]],
) -> None:
    client = _played(steps)
    while client.in_flight:
        client.hear(0 if len(client.in_flight) % 2 else len(client.in_flight) - 1)
    assert level_of(client.windows, at=client.now) == pytest.approx(client.provider.left(client.now))


@given(_steps)
def test_the_mirror_never_shows_more_than_the_bucket_holds(steps: list[tuple[int, int, float]]) -> None:
    """Calls that were refused but not heard of yet count as spent: too little is shown, never too much."""
    client = _played(steps)
    shown, real = level_of(client.windows, at=client.now), client.provider.left(client.now)
    assert shown <= real + 1e-6


def reported(remaining: float, *, sent_at: float = T0, now: float = T0) -> tuple[Window, ...]:
    return windowing.learn([], [Bucket(TOKENS, LIMIT, remaining)], sent_at=sent_at, mark=NOTHING, now=now)


def test_a_refusal_that_says_what_is_left_gives_nothing_back_on_top() -> None:
    """What the provider says is left after it refused the call already lacks nothing of it."""
    taken = windowing.take(reported(20_000), {TOKENS: 30_000}, T0 + 1)
    mark = windowing.marks(taken)
    heard = windowing.learn(taken, [Bucket(TOKENS, LIMIT, 21_000)], sent_at=T0 + 1, mark=mark, now=T0 + 1)
    back = windowing.refund(heard, {TOKENS: 30_000}, sent_at=T0 + 1, mark=mark, now=T0 + 1)
    assert level_of(back, at=T0 + 1) == 21_000


def test_only_the_answer_to_the_newest_request_counts() -> None:
    newest = reported(10_000, sent_at=T0 + 5, now=T0 + 6)
    older = windowing.learn(newest, [Bucket(TOKENS, LIMIT, 50_000)], sent_at=T0 + 4, mark=NOTHING, now=T0 + 6)
    assert older == newest


def test_the_refill_follows_from_the_time_until_it_is_full() -> None:
    (window,) = windowing.learn([], [Bucket(TOKENS, LIMIT, 0.0, 3_600.0)], sent_at=T0, mark=NOTHING, now=T0)
    assert window.refill_per_s == pytest.approx(LIMIT / 3_600)


@pytest.mark.parametrize(
    "bucket",
    [
        Bucket(TOKENS, LIMIT, 0.0),
        Bucket(TOKENS, LIMIT, LIMIT - 1, 1.0),
        Bucket(TOKENS, LIMIT, 0.0, 0.0),
        Bucket(TOKENS, LIMIT, 0.0, 1e9),
    ],
    ids=["no reset", "nearly full", "full at once", "full in a lifetime"],
)
def test_a_reset_that_says_nothing_means_a_limit_per_minute(bucket: Bucket) -> None:
    (window,) = windowing.learn([], [bucket], sent_at=T0, mark=NOTHING, now=T0)
    assert window.refill_per_s == LIMIT / 60


def test_resets_in_whole_seconds_are_smoothed() -> None:
    windows = windowing.learn([], [Bucket(TOKENS, LIMIT, 0.0, 60.0)], sent_at=T0, mark=NOTHING, now=T0)
    for number in range(1, 40):
        bucket = Bucket(TOKENS, LIMIT, LIMIT - 9_500.0, 10.0 if number % 2 else 9.0)
        windows = windowing.learn(windows, [bucket], sent_at=T0 + number, mark=NOTHING, now=T0 + number)
    assert windows[0].refill_per_s == pytest.approx(PER_S, rel=0.05)


def test_a_tenth_of_a_reported_bucket_is_left_alone() -> None:
    (window,) = reported(LIMIT * LEVEL_RESERVE + 500)
    assert window.room_at(500, T0) == T0
    assert window.room_at(501, T0) > T0


def test_nothing_is_held_back_of_a_declared_window() -> None:
    assert tokens(500).room_at(500, T0) == T0


def test_a_bucket_without_a_limit_teaches_nothing_until_its_limit_is_known() -> None:
    assert windowing.learn([], [Bucket(TOKENS, None, 5.0)], sent_at=T0, mark=NOTHING, now=T0) == ()
    again = windowing.learn(
        reported(100), [Bucket(TOKENS, None, 5.0)], sent_at=T0 + 1, mark={TOKENS: 0.0}, now=T0 + 1
    )
    assert level_of(again, at=T0 + 1) == 5.0


def test_headers_leave_declared_windows_as_the_person_wrote_them() -> None:
    declared = (tokens(500),)
    heard = windowing.learn(declared, [Bucket(TOKENS, 9.0, 0.0)], sent_at=T0, mark=NOTHING, now=T0)
    assert heard == declared


def test_an_estimate_lives_beside_what_headers_report_under_the_same_name() -> None:
    estimated = tokens(7, source=Source.ESTIMATED)
    heard = windowing.learn((estimated,), [Bucket(TOKENS, LIMIT, 5.0)], sent_at=T0, mark=NOTHING, now=T0)
    assert [(window.source, window.level) for window in heard] == [
        (Source.ESTIMATED, 7),
        (Source.REPORTED, 5.0),
    ]


# -- does a quota explain a refusal? ------------------------------------------------------------------


def test_a_mirrored_quota_without_room_for_the_call_explains_its_refusal() -> None:
    assert windowing.explains(reported(500), throttled(500), {TOKENS: 501})
    assert not windowing.explains(reported(500), throttled(500), {TOKENS: 500})


def test_a_call_without_an_estimate_is_explained_by_an_empty_quota_only() -> None:
    assert windowing.explains(reported(0), throttled(0), NOTHING)
    assert not windowing.explains(reported(1), throttled(1), NOTHING)


def test_a_quota_without_a_wait_explains_nothing() -> None:
    """Else nothing at all would answer the refusals: no window holds the next call, no level falls."""
    assert not windowing.explains((), throttled(0, limit=None), NOTHING)
    assert not windowing.explains((tokens(),), throttled(0), NOTHING)


# -- what people declare ------------------------------------------------------------------------------


@every(
    "text, amount, per_s",
    [
        ("60/min", 60, 60),
        ("80k/min", 80_000, 60),
        ("5/s", 5, 1),
        ("2M/5h", 2e6, 18_000),
        ("1.5k / 2 d", 1_500, 172_800),
        ("  1/10s ", 1, 10),
    ],
)
def test_rates_are_read_as_people_write_them(text: str, amount: float, per_s: float) -> None:
    assert windowing.parse_rate(text) == (amount, per_s)


@every("text", ["", "60", "60/", "/min", "60/year", "-1/min", "1e3/min", "60/min/s", "\uff160/min", 60, None])
def test_what_is_not_a_rate_is_refused_with_the_way_to_write_one(text: object) -> None:
    with pytest.raises(UsageError, match="60/min"):
        windowing.parse_rate(text)  # type: ignore[arg-type]


@pytest.mark.parametrize(("amount", "per_s"), [(0, 60), (-1, 60), (1, 0), (math.nan, 60)])
def test_a_window_of_nothing_is_refused(amount: float, per_s: float) -> None:
    with pytest.raises(UsageError, match="above 0"):
        windowing.declared_window(TOKENS, amount, per_s, T0)


def test_a_declared_window_starts_full() -> None:
    (window,) = windowing.declare((), {TOKENS: "60k/min"}, T0)
    assert (window.limit, window.refill_per_s, window.level_at(T0)) == (LIMIT, PER_S, LIMIT)


def test_declaring_the_same_again_changes_nothing() -> None:
    windows = windowing.take(windowing.declare((), {TOKENS: "60k/min"}, T0), {TOKENS: 9.0}, T0)
    assert windowing.declare(windows, {TOKENS: "60k/min"}, T0 + 5) == windows


def test_declaring_another_size_keeps_what_was_spent() -> None:
    windows = windowing.take(windowing.declare((), {TOKENS: "60k/min"}, T0), {TOKENS: 9_000}, T0)
    larger = windowing.declare(windows, {TOKENS: "90k/min"}, T0)
    assert level_of(larger) == 81_000


def test_what_is_declared_no_longer_is_gone() -> None:
    windows = windowing.declare((), {TOKENS: "60k/min", REQUESTS: "60/min"}, T0)
    assert [window.name for window in windowing.declare(windows, {REQUESTS: "60/min"}, T0)] == [REQUESTS]
    assert windowing.declare(windows, {}, T0) == ()


def test_what_a_person_declares_replaces_what_headers_said() -> None:
    windows = windowing.declare(reported(5), {TOKENS: "60k/min"}, T0)
    assert [window.source for window in windows] == [Source.DECLARED]


def test_an_estimate_survives_what_a_person_declares_under_the_same_name() -> None:
    """A person wrote more than there is: that is why there is an estimate at all."""
    estimated = tokens(7, source=Source.ESTIMATED)
    windows = windowing.declare((estimated,), {TOKENS: "60k/min"}, T0)
    assert windowing.declare(windows, {TOKENS: "60k/min"}, T0 + 1) == windows
    assert estimated in windows


# -- stored -------------------------------------------------------------------------------------------


def test_windows_survive_being_stored() -> None:
    windows = (*windowing.declare((), {REQUESTS: "60/min"}, T0), *reported(123.5))
    assert load_windows(dump_windows(windows)) == windows
    assert load_windows(dump_windows(())) == ()
