"""Runs a fuzzer for a bounded time. Not found by pytest: ``make soak`` calls it.

``make soak`` installs atheris, which flyball does not depend on (its wheels are for a few Pythons on
Linux and macOS); where it cannot be had this says so and ends well. An input that fails is left in a file
named ``crash-*``, to be replayed with ``--replay FILE``.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable, Sequence
from importlib import import_module
from pathlib import Path

DEFAULT_S = 300


def drive(
    name: str, one_input: Callable[[bytes], None], seed: Callable[[Path], None], argv: Sequence[str]
) -> int:
    if list(argv[:1]) == ["--replay"]:
        one_input(Path(argv[1]).read_bytes())
        return 0
    try:
        atheris = import_module("atheris")
    except ImportError:
        print(f"atheris is not installed (pip install atheris); {name} did not run", file=sys.stderr)
        return 0
    seconds = int(argv[0]) if argv else DEFAULT_S
    atheris.instrument_all()
    with tempfile.TemporaryDirectory(prefix="flyball-fuzz-") as corpus:
        seed(Path(corpus))
        atheris.Setup([name, corpus, f"-max_total_time={seconds}", "-max_len=20000"], one_input)
        atheris.Fuzz()
    return 0
