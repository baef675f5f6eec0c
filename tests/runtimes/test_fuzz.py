"""Anything at all may come out of an agent: a reader never raises, and never cares where the pieces end."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flyball.core.signals import LIMITING, End
from flyball.runtimes import error_text
from flyball.runtimes.registry import NAMES, load, wrote
from flyball.testing.runtime_checks import WALL_S
from tests.runtimes.recorded import of

RUNTIMES = [name for name in NAMES if name != "command"]
EXIT_CODES = st.one_of(st.none(), st.integers(-64, 255))

_scalars = st.one_of(
    st.none(), st.booleans(), st.integers(-(10**20), 10**20), st.floats(), st.text(max_size=20)
)
_values = st.recursive(
    _scalars,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=8), inner, max_size=3)
    ),
    max_leaves=8,
)


@st.composite
def mutated_lines(draw: st.DrawFn, runtime: str) -> bytes:
    """Lines of real recordings with fields replaced, removed, cut or mixed with noise."""
    recorded = draw(st.sampled_from(of(runtime)))
    lines = []
    for line in (recorded.stdout + recorded.stderr).splitlines()[:30]:
        what = draw(st.integers(0, 5))
        if what == 0:
            line = line[: draw(st.integers(0, len(line)))]
        elif what == 1:
            line = draw(st.binary(max_size=40))
        elif what == 2:
            line = _changed(line, draw)
        lines.append(line)
    return b"\n".join(lines)


def _changed(line: bytes, draw: st.DrawFn) -> bytes:
    try:
        event: Any = json.loads(line)
    except ValueError:
        return line
    place = event
    while isinstance(place, dict) and place:
        key = draw(st.sampled_from(sorted(place)))
        if isinstance(place[key], dict) and place[key] and draw(st.booleans()):
            place = place[key]
            continue
        place[key] = draw(_values)
        break
    return json.dumps(event, separators=(",", ":")).encode()


def _read(runtime: str, data: bytes, stderr: bytes, exit_code: int | None, size: int) -> object:
    reader = load(runtime).reader()
    kinds = []
    for at in range(0, len(data), size):
        kinds += [signal.kind for signal in reader.feed(data[at : at + size], wall_s=WALL_S)]
    for at in range(0, len(stderr), size):
        kinds += [signal.kind for signal in reader.feed_stderr(stderr[at : at + size], wall_s=WALL_S)]
    ending = reader.finish(exit_code, wall_s=WALL_S)
    assert ending.reason
    if ending.end is End.LIMITED:
        assert ending.signal is not None
        assert ending.signal.kind in LIMITING
    if ending.signal is not None and ending.signal.retry_after_s is not None:
        assert ending.signal.retry_after_s > 0
    return ending, kinds


@pytest.mark.parametrize("runtime", RUNTIMES)
@given(data=st.data())
def test_broken_streams_never_break_a_reader(runtime: str, data: st.DataObject) -> None:
    stdout, stderr = data.draw(mutated_lines(runtime)), data.draw(mutated_lines(runtime))
    exit_code, size = data.draw(EXIT_CODES), data.draw(st.integers(1, 50))
    whole = _read(runtime, stdout, stderr, exit_code, 1 << 20)
    assert repr(_read(runtime, stdout, stderr, exit_code, size)) == repr(whole)


@pytest.mark.parametrize("runtime", RUNTIMES)
@given(stdout=st.binary(max_size=300), stderr=st.binary(max_size=300), exit_code=EXIT_CODES)
def test_noise_never_breaks_a_reader(
    runtime: str, stdout: bytes, stderr: bytes, exit_code: int | None
) -> None:
    _read(runtime, stdout, stderr, exit_code, 7)
    wrote(stdout, stderr)


@given(st.text(max_size=300), st.one_of(st.none(), st.integers(100, 599)), st.floats())
def test_any_error_message_has_a_meaning(text: str, status: int | None, wall_s: float) -> None:
    signal = error_text.signal_of(text, wall_s=wall_s, status=status)
    assert signal.retry_after_s is None or signal.retry_after_s > 0
    error_text.stated_wait_s(f"try again at {text}", wall_s=wall_s)
    error_text.stated_wait_s(f"retry in {text}", wall_s=wall_s)
