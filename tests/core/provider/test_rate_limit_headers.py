"""The IETF's RateLimit fields: read as far as they make sense, and mirrored like any other buckets."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from flyball.core.pool.rate_window import learn
from flyball.core.provider.http_response import from_http
from flyball.core.provider.rate_limit_headers import parse_ratelimit
from flyball.core.signals import Bucket, SignalKind
from tests.cases import every


@every(
    "field, policy",
    [
        ("", ""),
        (",;=,", "default"),
        ('"default"', '"default";q=100'),
        ('"default";r=many', ""),
        ('"default";r', ""),
        ('"unclosed;r=5', ""),
        ("limit=100, reset=30", "100;w=60"),
        ('"at-once";r=5', '"at-once";q=10;qu="concurrent-requests"'),
        ('"bytes";r=5', '"bytes";q=10;qu="content-bytes"'),
    ],
)
def test_what_says_nothing_that_can_be_counted_is_left_out(field: str, policy: str) -> None:
    assert parse_ratelimit(field, policy) == {}


@every(
    "field, policy, bucket",
    [
        ('"default";r=50;t=30', '"default";q=100;w=60', Bucket("requests", 100, 50, 30, 60)),
        ("default;r=50;t=30", "default;l=100;w=60", Bucket("requests", 100, 50, 30, 60)),
        ('"a, b;\\"c";r=50', '"a, b;\\"c";q=100;w=60;pk=:c29tZQ==:', Bucket("requests", 100, 50, None, 60)),
        ("limit=100, remaining=50, reset=30", "100;w=60", Bucket("requests", 100, 50, 30, 60)),
        ("remaining=50", "", Bucket("requests", None, 50)),
        ('"default";r=50', "", Bucket("requests", None, 50)),
        ('"default";r=-3;t=-1', '"default";q=0;w=0', Bucket("requests", None, 0)),
        ('"default";r=500;t=1e11', '"default";q=100;w=1e11', Bucket("requests", 100, 100)),
        ('"x";r=50;t=30', '"x";q=100;w=60;qu="tokens"', Bucket("tokens", 100, 50, 30, 60)),
        ('"Input-Tokens";r=50', '"Input-Tokens";q=100', Bucket("input-tokens", 100, 50)),
        ('"";r=5;new;t=7', "", Bucket("requests", None, 5, 7)),
        ('garbage"here, "ok";r=5', "", Bucket("requests", None, 5)),
    ],
)
def test_a_field_is_read_as_far_as_it_makes_sense(field: str, policy: str, bucket: Bucket) -> None:
    assert list(parse_ratelimit(field, policy).values()) == [bucket]


def test_of_several_policies_the_one_with_least_left_is_told() -> None:
    headers = {
        "RateLimit": '"second";r=4;t=1, "day";r=9000;t=40000, "t";r=7',
        "RateLimit-Policy": '"second";q=5;w=1, "day";q=10000;w=86400, "t";q=50;qu="tokens"',
    }
    assert from_http(200, headers).buckets == (Bucket("requests", 5, 4, 1, 1), Bucket("tokens", 50, 7))


def test_a_field_may_be_spread_over_several_headers() -> None:
    lines = [("RateLimit", '"day";r=90'), ("ratelimit", '"second";r=4')]
    assert from_http(200, lines).buckets == (Bucket("requests", None, 4),)


def test_the_older_three_headers_say_the_same() -> None:
    headers = {"RateLimit-Limit": "100, 100;w=60", "RateLimit-Remaining": "50", "RateLimit-Reset": "30"}
    assert from_http(200, headers).buckets == (Bucket("requests", 100, 50, 30),)


def test_the_providers_own_word_counts_more() -> None:
    headers = {"ratelimit": '"default";r=50', "anthropic-ratelimit-requests-remaining": "3"}
    assert from_http(200, headers).buckets == (Bucket("requests", None, 3),)


def test_little_left_is_a_warning() -> None:
    headers = {"ratelimit": '"default";r=1;t=30', "ratelimit-policy": '"default";q=100;w=60'}
    assert from_http(200, headers).kind is SignalKind.NEAR_LIMIT


def test_the_mirror_refills_as_the_policy_says() -> None:
    (window,) = learn((), [Bucket("requests", 100, 50, 30, 200)], sent_at=0.0, mark={}, now=0.0)
    assert (window.level, window.refill_per_s) == (50, 0.5)


@given(st.text(max_size=300), st.text(max_size=300))
def test_nothing_raises_and_what_is_told_is_sane(field: str, policy: str) -> None:
    for bucket in (*parse_ratelimit(field, policy).values(), *from_http(200, {"ratelimit": field}).buckets):
        assert bucket.remaining >= 0
        assert bucket.limit is None or bucket.remaining <= bucket.limit
        assert bucket.reset_s is None or bucket.reset_s >= 0


PIECES = ('"a"', ";r=5", ";t=1", ",", "=", '"', ";q=9", ";w=60", "\\", "limit=1", ";", " ", ":x:")


@given(st.lists(st.sampled_from(PIECES), max_size=60))
def test_a_field_of_broken_pieces_takes_no_time(pieces: list[str]) -> None:
    parse_ratelimit("".join(pieces), "".join(reversed(pieces)))
