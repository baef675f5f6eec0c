from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from flyball.runtimes.stream_reader import LineSplitter


@given(st.binary(max_size=400), st.lists(st.integers(0, 400), max_size=8))
def test_lines_are_the_same_wherever_the_pieces_are_cut(data: bytes, cuts: list[int]) -> None:
    lines, found = LineSplitter(), []
    places = sorted({min(cut, len(data)) for cut in cuts} | {0, len(data)})
    for start, end in pairwise(places):
        found += lines.feed(data[start:end])
    whole = data.split(b"\n")
    assert found + lines.rest() == [*whole[:-1], *([whole[-1]] if whole[-1] else [])]


@given(st.lists(st.binary(max_size=30).map(lambda b: b.replace(b"\n", b"")), max_size=12), st.integers(1, 20))
def test_lines_beyond_the_limit_are_passed_over_and_the_others_kept(rows: list[bytes], size: int) -> None:
    lines, found = LineSplitter(limit=10), []
    data = b"".join(row + b"\n" for row in rows)
    for at in range(0, len(data), size):
        found += lines.feed(data[at : at + size])
    # A line that comes whole in one piece is there already; only what has to be held is bounded.
    assert [row for row in found if len(row) <= 10] == [row for row in rows if len(row) <= 10]
    assert lines.rest() == []
