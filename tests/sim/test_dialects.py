"""Whole answers and streams, as each vendor's clients ask for them; the seat is free with the last word."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from flyball.core.provider.http_response import from_http
from flyball.core.signals import SignalKind
from flyball.sim.provider.capacity import Capacity
from flyball.sim.provider.dialect import Dialect, ProviderReply
from flyball.sim.provider.server import DIALECTS, Provider

STREAM = {"stream": True, "max_tokens": 10}
dialects = pytest.mark.parametrize("dialect", DIALECTS, ids=lambda dialect: type(dialect).__name__)


@pytest.fixture
def provider() -> Iterator[Provider]:
    with Provider(Capacity.parse("1"), sleep=lambda _: None) as provider:
        yield provider


@dialects
def test_a_stream_keeps_its_seat_until_its_last_event(dialect: Dialect, provider: Provider) -> None:
    inside: list[int] = []

    def write(reply: ProviderReply, parts: Iterator[bytes]) -> None:
        inside.extend(provider.tally().inside for _ in parts)

    provider.handle(dialect, STREAM, write)
    assert len(inside) > 2
    assert inside == [1] * (len(inside) - 1) + [0]


@dialects
def test_a_client_that_leaves_in_the_middle_gives_its_seat_back(dialect: Dialect, provider: Provider) -> None:
    def write(reply: ProviderReply, parts: Iterator[bytes]) -> None:
        next(parts)
        raise BrokenPipeError

    with pytest.raises(BrokenPipeError):
        provider.handle(dialect, STREAM, write)
    assert (provider.tally().inside, provider.tally().open) == (0, 0)


@dialects
def test_an_answer_in_one_piece_is_one_part(dialect: Dialect) -> None:
    assert len(dialect.answer({}, number=1).parts()) == 1
    assert len(dialect.answer(STREAM, number=1).parts()) > 2


@dialects
def test_a_refusal_reads_as_a_throttle(dialect: Dialect) -> None:
    reply = dialect.throttle(number=1, retry_after_s=7)
    signal = from_http(reply.status, dict(reply.headers), reply.parts()[0])
    assert (signal.kind, signal.retry_after_s) == (SignalKind.THROTTLED, 7.0)
    assert from_http(400, None, dialect.invalid("no", number=1).parts()[0]).kind is SignalKind.CLIENT_ERROR
