"""Every behaviour of the suite, over every recording."""

from __future__ import annotations

import pytest

from flyball.core.signals import End
from flyball.runtimes.registry import NAMES, load, wrote
from flyball.testing import RUNTIME_CHECKS, Recording, check_runtime
from flyball.testing.runtime_checks import RuntimeCheck, read
from tests.runtimes.recorded import INDISTINGUISHABLE, of, recording, recordings

RUNTIMES = [name for name in NAMES if of(name)]


@pytest.mark.parametrize("check", RUNTIME_CHECKS, ids=lambda check: check.__name__)
@pytest.mark.parametrize("name", RUNTIMES)
def test_every_recording(name: str, check: RuntimeCheck) -> None:
    runtime = load(name)
    for each in of(name):
        if each.name in INDISTINGUISHABLE:
            continue
        try:
            check(runtime, each)
        except AssertionError as error:
            error.add_note(f"in {each.name}")
            raise


def test_all_216_recordings_are_there() -> None:
    assert len(recordings()) == 216


@pytest.mark.parametrize("name", RUNTIMES)
def test_the_runtime_is_recognised_by_what_it_printed_or_judged_right_all_the_same(name: str) -> None:
    wrong = []
    for each in of(name):
        found = wrote(each.stdout[:65536], each.stderr[:65536])
        ending, _ = read(found, each)
        right = each.right | {End.UNKNOWN} if each.name in INDISTINGUISHABLE else each.right
        if ending.end not in right or (each.streams and found.name != name):
            wrong.append((each.name, found.name, ending.end))
    assert not wrong


def test_the_suite_names_what_is_broken() -> None:
    wrong = Recording("made up", b"", b"", 0, frozenset({End.FAILED}))
    with pytest.raises(ExceptionGroup, match="1 behaviours of command are broken"):
        check_runtime(load("command"), [wrong])


def test_a_cut_gemini_stream_and_an_overloaded_one_cannot_be_told_apart() -> None:
    """The one label that is not met: these two runs print the same but for ids and times."""
    cut, overloaded = (recording(f"gemini/{name}") for name in ("midstream_cut", "midstream_overloaded"))
    assert cut.name in INDISTINGUISHABLE
    assert cut.exit_code == overloaded.exit_code
    assert cut.stderr == overloaded.stderr
    shapes = [[line[:40] for line in each.stdout.split(b'"timestamp"')] for each in (cut, overloaded)]
    assert len(shapes[0]) == len(shapes[1])
    assert read(load("gemini"), cut)[0].end is read(load("gemini"), overloaded)[0].end is End.UNKNOWN
