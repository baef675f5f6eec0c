"""Coverage-guided fuzzing of the readers: ``python -m tests.soak.fuzz_readers [SECONDS]``.

It starts from the recordings and stops at the first input that raises, reads differently when cut into
pieces, or is judged without a reason.
"""

from __future__ import annotations

import sys
from pathlib import Path

from flyball.core.signals import LIMITING, End
from flyball.runtimes import error_text
from flyball.runtimes.registry import NAMES, load, wrote
from tests.runtimes.recorded import recordings
from tests.soak.driver import drive

WALL_S = 1_794_728_000.0
_SEPARATOR = b"\x00stderr\x00"


def one_input(data: bytes) -> None:
    """The first bytes choose runtime, exit code and cuts; the rest is stdout, then stderr."""
    if len(data) < 4:
        return
    name = NAMES[data[0] % len(NAMES)]
    exit_code = None if data[1] == 255 else data[1] - 64
    stdout, _, stderr = data[3:].partition(_SEPARATOR)
    whole = _read(name, stdout, stderr, exit_code, 1 << 20)
    pieces = _read(name, stdout, stderr, exit_code, data[2] % 64 + 1)
    if repr(whole) != repr(pieces):
        raise AssertionError(f"{name}: whole {whole}, in pieces {pieces}")
    wrote(stdout, stderr)
    error_text.signal_of(stdout.decode("utf-8", "replace"), wall_s=WALL_S)


def _read(name: str, stdout: bytes, stderr: bytes, exit_code: int | None, size: int) -> object:
    reader = load(name).reader()
    kinds = []
    for data, feed in ((stdout, reader.feed), (stderr, reader.feed_stderr)):
        for at in range(0, len(data), size):
            kinds += [signal.kind for signal in feed(data[at : at + size], wall_s=WALL_S)]
    ending = reader.finish(exit_code, wall_s=WALL_S)
    if not ending.reason or (ending.end is End.LIMITED) != (
        ending.signal is not None and ending.signal.kind in LIMITING
    ):
        raise AssertionError(f"{name}: {ending}")
    return ending, kinds


def seed_inputs(folder: Path) -> None:
    for number, (name, each) in enumerate(recordings()):
        code = (each.exit_code or 0) + 64
        head = bytes([NAMES.index(name), code % 255, 7])
        (folder / f"{number}").write_bytes(head + each.stdout + _SEPARATOR + each.stderr)


if __name__ == "__main__":
    sys.exit(drive("fuzz_readers", one_input, seed_inputs, sys.argv[1:]))
