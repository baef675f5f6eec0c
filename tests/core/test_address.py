"""Addresses of servers: nothing secret is ever shown, and what cannot be read is refused by its name."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flyball.core.server_url import check_server, redacted
from flyball.errors import UsageError
from tests.cases import every

PASSWORDS = ["s3cret", "a/s3cret", "a?s3cret", "a#s3cret", "a@s3cret", "a://s3cret", "a:s3cret"]
FORMS = [
    "redis://:{}@box:6379/0",
    "redis://me:{}@box",
    "rediss://box?password={}",
    "redis+unix://:{}@/run/redis.sock",
    "postgresql://me:{}@box,other:5433/db?sslmode=require",
    "redis:{}@box",
    "redis:/:{}@box",
    "{}@box",
]


@every("password", PASSWORDS)
@every("form", FORMS)
def test_no_password_is_shown_however_it_is_written(form: str, password: str) -> None:
    assert "s3cret" not in redacted(form.format(password))


@given(st.text(alphabet="ab:/?#@=&%", max_size=12), st.sampled_from(FORMS[:6]))
def test_no_part_of_a_password_is_shown(noise: str, form: str) -> None:
    for password in (f"s3cret{noise}", f"{noise}s3cret"):
        assert "s3cret" not in redacted(form.format(password))


@pytest.mark.parametrize("password", ["a/s3cret", "a?s3cret", "a#s3cret"])
def test_a_password_that_ends_too_soon_is_refused_with_the_way_out(password: str) -> None:
    with pytest.raises(UsageError, match=r"FLYBALL_URL.*%2F") as refused:
        check_server(f"redis://:{password}@box:6379")
    assert "s3cret" not in str(refused.value)


@every(
    "address, words",
    [
        ("redis://box:port", "port in FLYBALL_URL"),
        ("redis://box:0", "port in FLYBALL_URL"),
        ("redis://:s3cret@box:70000", "port in FLYBALL_URL"),
        ("redis://box:6379:0", "IPv6"),
        ("redis://[::1:6379", "IPv6"),
        ("redis://::1]:6379", "IPv6"),
        ("redis://::1", "IPv6"),
    ],
)
def test_a_host_that_cannot_be_read_is_refused(address: str, words: str) -> None:
    with pytest.raises(UsageError, match=words) as refused:
        check_server(address)
    assert "s3cret" not in str(refused.value)


@every(
    "address, words",
    [
        ("redis://box", "redis://box"),
        ("redis://me:pw@[::1]:6379/2", "redis://[::1]:6379/2"),
        ("rediss+cluster://a:1,b:2", "rediss+cluster://a:1,b:2"),
        ("redis+unix://:pw@/run/s?space=x", "redis+unix:///run/s?space=x"),
        ("postgresql://me@box/db?sslmode=require&space=x#y", "postgresql://box/db?space=x"),
    ],
)
def test_what_can_be_read_is_kept_as_it_is(address: str, words: str) -> None:
    assert check_server(address) == address
    assert redacted(address) == words


def test_what_is_on_this_machine_is_shown_whole() -> None:
    for address in ("memory:", "sqlite:///home/me@work/governor.db"):
        assert redacted(address) == address
