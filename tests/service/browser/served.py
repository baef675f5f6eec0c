"""``flyball serve`` as a process of its own, over a home of its own, with tokens."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
from pathlib import Path

from flyball.governor.governor import Governor
from flyball.service.tokens import Scope, TokenFile

READY_S = 30.0
END_S = 20.0


class Served:
    """One server. ``stop`` and ``start`` again keep its address and its home."""

    def __init__(self, home: Path, *options: str, url: str = "") -> None:
        self.home, self._options = home, options
        self.address = url or f"sqlite://{home / 'governor.db'}"
        self.governor = Governor(self.address)
        self._tokens = TokenFile(home)
        self._process: subprocess.Popen[str] | None = None
        self.url, self._port = "", "0"

    def token(self, scope: Scope, name: str = "") -> str:
        return self._tokens.add(name or f"test-{scope.value}", scope)

    def forget(self, scope: Scope) -> None:
        self._tokens.remove(f"test-{scope.value}")

    def start(self) -> Served:
        environment = {**os.environ, "FLYBALL_HOME": str(self.home), "FLYBALL_URL": self.address}
        command = [sys.executable, "-m", "flyball", "serve", "--port", self._port, *self._options]
        self._process = subprocess.Popen(
            command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        self.url = self._told_address()
        self._port = self.url.rstrip("/").rpartition(":")[2]
        return self

    def _told_address(self) -> str:
        """It says where it is as soon as it can be reached."""
        process = self._process
        assert process is not None
        assert process.stdout is not None
        said: list[str] = []
        overdue = threading.Timer(READY_S, process.kill)
        overdue.start()
        try:
            for line in process.stdout:
                said.append(line)
                found = re.search(r"http://[\w.:\[\]]+/?", line)
                if found:
                    # Whatever it says later must not fill the pipe.
                    threading.Thread(target=process.stdout.read, daemon=True).start()
                    return found[0].rstrip("/") + "/"
        finally:
            overdue.cancel()
        raise AssertionError(f"flyball serve did not start: {''.join(said)}")

    def stop(self, number: int = signal.SIGTERM) -> None:
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(number)
            self._process.wait(END_S)
        if self._process is not None and self._process.stdout is not None:
            self._process.stdout.close()
        self._process = None

    def close(self) -> None:
        self.stop(signal.SIGKILL)
        self.governor.close()
