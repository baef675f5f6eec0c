"""``make test``: every test at once, then what failed once more and alone, then what was not tested.

A test that passes only when it runs alone raced with something, or met a time limit on a busy machine.
Either is a fault of the test or of flyball, so it is named at the end, with the command that repeats it. It
fails the run where FLYBALL_STRICT is set; otherwise one busy neighbour would cost a change its landing.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from tests.tools import missing, report

SOME_FAILED = 1
"""What pytest exits with when tests failed and nothing else was wrong."""
MOST_AGAIN = 40
"""More than these are not failures by chance."""


def main(arguments: Sequence[str], folder: Path = Path()) -> int:
    """``arguments`` go to pytest, in ``folder``."""
    code = _pytest(["--cache-clear", *arguments], folder)
    failed = _last_failed(folder)
    racy: list[str] = []
    if code == SOME_FAILED and 0 < len(failed) <= MOST_AGAIN:
        print(f"once more, one after the other: {len(failed)} that failed beside others", flush=True)
        code = _pytest(["--last-failed", *arguments, "-n", "0"], folder)
        racy = [] if code > SOME_FAILED else sorted(failed - _last_failed(folder))
    if racy:
        print("\nPASSED ONLY THE SECOND TIME: each of these has a race or a time limit to be found.")
        print("Repeat it beside a load on all cores:")
        for test in racy:
            print(f"  {sys.executable} -m pytest '{test}'")
    if line := report(missing()):
        print(line)
    return code or int(bool(racy) and bool(os.environ.get("FLYBALL_STRICT")))


def _pytest(arguments: Sequence[str], folder: Path) -> int:
    return subprocess.run([sys.executable, "-m", "pytest", *arguments], cwd=folder).returncode


def _last_failed(folder: Path) -> set[str]:
    path = folder / ".pytest_cache" / "v" / "cache" / "lastfailed"
    return set(json.loads(path.read_text("utf-8"))) if path.exists() else set()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
