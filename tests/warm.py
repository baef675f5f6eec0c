"""``flyball`` in a process of its own, forked from one that has loaded it: imports are most of a short run.

Everything else is as it is typed: folder, environment, output, signals, exit status. A test that needs it to
come up from nothing, or that looks at its command line, starts ``python -m flyball`` instead.

The process that forks is the parent: it tells this one what it started and how each of them ended.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import json
import os
import pkgutil
import select
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from queue import SimpleQueue
from typing import IO, Any, NoReturn

ROOMS = ("cli", "factory", "governor", "runtimes", "stores.sqlite", "stores.memory", "core")
_HEAD_BYTES = 8
"""A request begins with the length of the rest; the files of the new process come with it."""


class WarmProcess(subprocess.Popen[str]):
    """What ``subprocess.Popen`` can do with a process, for one whose parent is another."""

    def __init__(self, words: Sequence[str], pid: int, outputs: tuple[IO[str], IO[str]] | None) -> None:
        self.args, self.pid = list(words), pid
        self.returncode: int | None = None
        self.stdin = None
        self.stdout, self.stderr = outputs or (None, None)
        self.ended = threading.Event()
        self.code = 0
        """How it ended."""
        # What the methods that are not replaced here look at.
        self.encoding, self.errors, self.text_mode = "utf-8", "replace", True
        self._child_created = self._communication_started = False
        self._input = None

    def poll(self) -> int | None:
        if self.returncode is None and self.ended.is_set():
            self.returncode = self.code
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        if not self.ended.wait(timeout):
            raise subprocess.TimeoutExpired(self.args, timeout or 0.0)
        self.returncode = self.code
        return self.code


class Warm:
    """For this process. The other one ends with it."""

    def __init__(self) -> None:
        self._control, theirs = socket.socketpair()
        with theirs:
            self._server = subprocess.Popen(
                [sys.executable, "-m", "tests.warm", str(theirs.fileno())],
                cwd=Path(__file__).parent.parent,
                stdin=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
            )
        self._lock = threading.Lock()
        self._began: SimpleQueue[int] = SimpleQueue()
        self._running: dict[int, WarmProcess] = {}
        self._endings: dict[int, int] = {}
        threading.Thread(target=self._listen, daemon=True).start()

    def run(
        self, words: Sequence[str], *, cwd: Path, env: Mapping[str, str], timeout_s: float, die_at: str = ""
    ) -> tuple[int, str, str]:
        """Exit status as ``subprocess`` has it, output, errors. ``die_at``: for ``killed_flyball``."""
        with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
            process = self._fork(words, (out.fileno(), err.fileno()), None, cwd=cwd, env=env, die_at=die_at)
            try:
                process.wait(timeout_s)
            except subprocess.TimeoutExpired:
                process.kill()
            code = process.wait()
            return code, _text(out), _text(err)

    def start(
        self,
        words: Sequence[str],
        *,
        cwd: Path,
        env: Mapping[str, str],
        die_at: str = "",
        group: bool = False,
    ) -> subprocess.Popen[str]:
        """Goes on while the test does. ``group``: in a process group of its own."""
        (out, to_out), (err, to_err) = os.pipe(), os.pipe()
        outputs = _reader(out), _reader(err)
        try:
            return self._fork(words, (to_out, to_err), outputs, cwd=cwd, env=env, die_at=die_at, group=group)
        finally:
            os.close(to_out)
            os.close(to_err)

    def _fork(
        self,
        words: Sequence[str],
        files: tuple[int, int],
        outputs: tuple[IO[str], IO[str]] | None,
        *,
        cwd: Path,
        env: Mapping[str, str],
        die_at: str,
        group: bool = False,
    ) -> WarmProcess:
        told = {"words": list(words), "cwd": str(cwd), "env": dict(env), "die_at": die_at, "group": group}
        request = json.dumps(told).encode()
        with self._lock:
            socket.send_fds(self._control, [b"%*d" % (_HEAD_BYTES, len(request))], files)
            self._control.sendall(request)
            pid = self._began.get()
            assert pid, "the process that forks is gone"
            process = WarmProcess(words, pid, outputs)
            self._running[pid] = process
            self._end_of(pid)
        return process

    def _listen(self) -> None:
        with self._control.makefile() as lines:
            for line in lines:
                event, pid, code = line.split()
                if event == "began":
                    self._began.put(int(pid))
                else:
                    self._endings[int(pid)] = int(code)
                    self._end_of(int(pid))
        self._began.put(0)

    def _end_of(self, pid: int) -> None:
        """Tell it, once both it and its end are known; either may be first."""
        if pid in self._endings and (process := self._running.pop(pid, None)) is not None:
            process.code = self._endings.pop(pid)
            process.ended.set()


def _reader(file: int) -> IO[str]:
    return open(file, encoding="utf-8", errors="replace")


def _text(file: IO[bytes]) -> str:
    file.seek(0)
    return file.read().decode("utf-8", "replace")


@lru_cache(maxsize=1)
def warm() -> Warm:
    return Warm()


# -- the other process ----------------------------------------------------------------------------------


def serve(control: socket.socket) -> None:
    _load()
    woken, wakes = os.pipe()
    os.set_blocking(wakes, False)
    signal.set_wakeup_fd(wakes)
    # Without a handler nothing is written there.
    signal.signal(signal.SIGCHLD, lambda *_: None)
    while True:
        ready = select.select([control.fileno(), woken], [], [])[0]
        if woken in ready:
            os.read(woken, 4096)
            _tell_endings(control)
        if control.fileno() in ready and not _serve_one(control):
            return


def _serve_one(control: socket.socket) -> bool:
    """False when the process that asks is gone."""
    head, files, _, _ = socket.recv_fds(control, _HEAD_BYTES, 2)
    if not head:
        return False
    request = b""
    while len(request) < int(head):
        request += control.recv(int(head) - len(request))
    told = json.loads(request)
    pid = os.fork()
    if pid == 0:
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        control.close()
        _become(told, files)
    for file in files:
        os.close(file)
    if told["group"]:
        with contextlib.suppress(OSError):  # it did so itself, and is over
            os.setpgid(pid, pid)
    control.sendall(b"began %d 0\n" % pid)
    return True


def _tell_endings(control: socket.socket) -> None:
    with contextlib.suppress(ChildProcessError):
        while (ended := os.waitpid(-1, os.WNOHANG))[0]:
            control.sendall(b"ended %d %d\n" % (ended[0], os.waitstatus_to_exitcode(ended[1])))


def _load() -> None:
    """All that a run may import, read and compile, once for all who are forked from here."""
    for room in ROOMS:
        package = importlib.import_module(f"flyball.{room}")
        for module in pkgutil.walk_packages(getattr(package, "__path__", ()), f"{package.__name__}."):
            importlib.import_module(module.name)
    import concurrent.futures.thread  # noqa: F401
    import pwd  # noqa: F401
    from importlib.resources import files

    import yaml  # noqa: F401

    from flyball.factory.project.config_reader import load_config

    files("flyball").joinpath("py.typed").is_file()
    with tempfile.TemporaryDirectory(prefix="fb-warm-") as folder:
        (Path(folder) / "flyball.toml").write_text('[project]\nid = "p"\n')
        load_config(Path(folder))
    # A collection would touch, and so copy, all that the two processes share.
    gc.collect()
    gc.freeze()


def _become(told: Mapping[str, Any], files: Sequence[int]) -> NoReturn:
    """Leaves only through ``_exit``."""
    from flyball.cli.main import main
    from tests.factory.killed_flyball import kill_at

    code: object = 1
    try:
        if told["group"]:
            os.setpgid(0, 0)
        nothing = os.open(os.devnull, os.O_RDONLY)
        for number, file in enumerate((nothing, *files)):
            os.dup2(file, number)
            os.close(file)
        sys.stdin, sys.stdout, sys.stderr = map(_opened, (0, 1, 2), "rww")
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


def _opened(number: int, mode: str) -> IO[Any]:
    """Buffered as Python buffers each of the three."""
    errors = "backslashreplace" if number == 2 else None
    return open(number, mode, buffering=1 if number == 2 else -1, encoding="utf-8", errors=errors)


if __name__ == "__main__":
    with socket.socket(fileno=int(sys.argv[1])) as place:
        serve(place)
