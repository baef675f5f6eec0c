"""``flyball`` in a process of its own, forked from one that has loaded it: imports are most of a short run.

Everything else is as it is typed: folder, environment, output, exit status. A test that needs it to come up
from nothing, or to send it signals, starts ``python -m flyball`` instead.
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import pkgutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import IO, Any, NoReturn

ROOMS = ("cli", "factory", "governor", "runtimes", "stores.sqlite", "core")


class Warm:
    """For this process. The other one ends with it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._server = subprocess.Popen(
            [sys.executable, "-m", "tests.warm"],
            cwd=Path(__file__).parent.parent,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def run(
        self, words: Sequence[str], *, cwd: Path, env: Mapping[str, str], timeout_s: float, die_at: str = ""
    ) -> tuple[int, str, str]:
        """Exit status as ``subprocess`` has it, output, errors. ``die_at``: for ``killed_flyball``."""
        with tempfile.TemporaryDirectory(prefix="fb-warm-") as folder, self._lock:
            out, err = Path(folder) / "out", Path(folder) / "err"
            told = {
                "words": list(words),
                "cwd": str(cwd),
                "env": dict(env),
                "out": str(out),
                "err": str(err),
                "die_at": die_at,
            }
            print(json.dumps(told), file=self._server.stdin, flush=True)
            timer = threading.Timer(timeout_s, os.kill, (int(self._said()), signal.SIGKILL))
            timer.start()
            code = int(self._said())
            timer.cancel()
            return code, out.read_text("utf-8", "replace"), err.read_text("utf-8", "replace")

    def _said(self) -> str:
        assert self._server.stdout is not None
        return self._server.stdout.readline()


@lru_cache(maxsize=1)
def warm() -> Warm:
    return Warm()


# -- the other process ----------------------------------------------------------------------------------


def serve() -> None:
    _load()
    for line in sys.stdin:
        told = json.loads(line)
        pid = os.fork()
        if pid == 0:
            _become(told)
        print(pid, flush=True)
        print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), flush=True)


def _load() -> None:
    """All that a run may import, read and compile, once for all who are forked from here."""
    for room in ROOMS:
        package = importlib.import_module(f"flyball.{room}")
        for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            importlib.import_module(module.name)
    import yaml  # noqa: F401

    from flyball.factory.project.config_reader import load_config

    with tempfile.TemporaryDirectory(prefix="fb-warm-") as folder:
        (Path(folder) / "flyball.toml").write_text('[project]\nid = "p"\n')
        load_config(Path(folder))
    # A collection would touch, and so copy, all that the two processes share.
    gc.collect()
    gc.freeze()


def _become(told: Mapping[str, Any]) -> NoReturn:
    """Leaves only through ``_exit``."""
    from flyball.cli.main import main
    from tests.factory.killed_flyball import kill_at

    code: object = 1
    try:
        sys.stdin, sys.stdout, sys.stderr = map(
            _opened, (0, 1, 2), (os.devnull, told["out"], told["err"]), "rww"
        )
        os.chdir(told["cwd"])
        os.environ.clear()
        os.environ.update(told["env"])
        time.tzset()
        if told["die_at"]:
            kill_at(told["die_at"])
        code = main(told["words"])
    except SystemExit as stop:
        code = stop.code
    except BaseException:
        sys.excepthook(*sys.exc_info())
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code if isinstance(code, int) else 1)


def _opened(number: int, path: str, mode: str) -> IO[Any]:
    """The file as one of the three that every process has."""
    with open(path, mode) as file:
        os.dup2(file.fileno(), number)
    return open(number, mode, encoding="utf-8", errors="backslashreplace" if number == 2 else None)


if __name__ == "__main__":
    serve()
