"""Durations, sizes and pairs as people write them."""

from __future__ import annotations

import argparse

import pytest

from flyball.cli.ui import units
from tests.cases import every


@every(
    "text, seconds",
    [("0", 0), ("90", 90), ("90s", 90), ("10m", 600), ("1h30m", 5400), ("1.5h", 5400), ("2d", 172800)],
)
def test_durations(text: str, seconds: float) -> None:
    assert units.duration(text) == seconds


@every("text", ["", "-5", "5x", "1h30", "m", "10 m", "1e3", "nan"])
def test_what_is_not_a_duration_is_said_with_an_example(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError, match="write 90s, 10m or 1h30m"):
        units.duration(text)


@every(
    "text, count",
    [("2GiB", 2 << 30), ("500MB", 500_000_000), ("1.5 GiB", 3 << 29), ("4096", 4096), ("2g", 2 << 30)],
)
def test_sizes(text: str, count: int) -> None:
    assert units.size(text) == count


@pytest.mark.parametrize("text", ["", "two", "2XB", "-1"])
def test_what_is_not_a_size_is_said_with_an_example(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError, match="write 2GiB or 500MB"):
        units.size(text)


def test_the_last_equals_sign_divides_a_pair() -> None:
    assert units.key_limit("a=b=2") == ("a=b", 2)
    assert units.key_weight("a=b=0.5") == ("a=b", 0.5)


@every("text", ["docker", "=2", "docker=", "docker=two", "docker=-1", "docker=1.5"])
def test_what_is_not_a_pair_is_said(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError, match="is not NAME=NUMBER"):
        units.key_limit(text)
