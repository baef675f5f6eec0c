"""Nodes as real processes, and an observer outside that counts what they have in flight."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from tests.faults import share_node

POOL = "p"


class Observer:
    """Hears of every piece of work. What a killed process had in flight is over when it is reaped."""

    def __init__(self, folder: Path) -> None:
        self.path = str(folder / "observer")
        self._ear = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._ear.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 22)
        self._ear.bind(self.path)
        self.in_flight: dict[int, set[int]] = {}
        """The pieces of each node."""
        self.pieces: Counter[int] = Counter()
        self.limits: dict[int, int] = {}
        self.renewals: dict[int, int] = {}
        self.words: dict[int, list[str]] = {}
        self.most = 0
        self._began_anew = threading.Event()
        self._thread = threading.Thread(target=self._listen, daemon=True)
        self._thread.start()

    def _listen(self) -> None:
        while text := self._ear.recv(256).decode():
            pid, word, *rest = text.split()
            self._hear(int(pid), word, [int(each) for each in rest])

    def _hear(self, pid: int, word: str, numbers: list[int]) -> None:
        if word == "begins":
            self.in_flight.setdefault(pid, set()).update(numbers)
            self.pieces[pid] += 1
            self.most = max(self.most, self.running)
        elif word == "ends":
            # Not those of a node that was thought gone.
            self.in_flight.get(pid, set()).difference_update(numbers)
        elif word == "limit":
            self.limits[pid], self.renewals[pid] = numbers
        elif word == "gone":
            self.in_flight.pop(pid, None)
            self.limits.pop(pid, None)
        elif word == "anew":
            self.most = self.running
            self._began_anew.set()
        else:
            self.words.setdefault(pid, []).append(word)

    def gone(self, pid: int) -> None:
        self._tell(f"{pid} gone")

    def anew(self) -> None:
        """Forget the most that was in flight before now; what was told before this is heard first."""
        self._began_anew.clear()
        self._tell("0 anew")
        assert self._began_anew.wait(60.0)

    @property
    def running(self) -> int:
        return sum(map(len, list(self.in_flight.values())))

    @property
    def work(self) -> int:
        return sum(self.pieces.values())

    def close(self) -> None:
        self._tell("")
        self._thread.join(10.0)
        self._ear.close()

    def _tell(self, text: str) -> None:
        with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as mouth:
            mouth.sendto(text.encode(), self.path)


class Fleet:
    """Nodes of one pool. All of them are gone at the end."""

    def __init__(self, url: str, folder: Path) -> None:
        self.url, self.observer = url, Observer(folder)
        self._nodes: list[subprocess.Popen[bytes]] = []

    def start(
        self, node: str, *, workers: int = 6, piece_s: float = 0.004, url: str = ""
    ) -> subprocess.Popen[bytes]:
        words = [url or self.url, POOL, node, str(workers), str(piece_s), self.observer.path]
        process = subprocess.Popen([sys.executable, share_node.__file__, *words])
        self._nodes.append(process)
        return process

    def works(self, *nodes: subprocess.Popen[bytes], pieces: int = 30) -> None:
        """Wait until each of these has done some more work."""
        before = {node.pid: self.observer.pieces[node.pid] for node in nodes}
        for node in nodes:
            self.until(
                lambda pid=node.pid: self.observer.pieces[pid] >= before[pid] + pieces,  # type: ignore[misc]
                f"node {node.pid} to work",
            )

    def kill(self, node: subprocess.Popen[bytes]) -> None:
        node.kill()
        node.wait()
        self.observer.gone(node.pid)

    def stop(self, *nodes: subprocess.Popen[bytes]) -> None:
        """Ask them to leave; they must end well."""
        for node in nodes:
            node.send_signal(signal.SIGTERM)
        for node in nodes:
            assert node.wait(30.0) == 0
            assert "closed" in self.observer.words[node.pid]

    def until(self, holds: Callable[[], object], what: str, *, within_s: float = 90.0) -> None:
        end = time.monotonic() + within_s
        while not holds():
            for node in self._nodes:
                assert node.poll() in (None, 0, -9), f"node {node.pid} ended with {node.returncode}"
            assert time.monotonic() < end, f"waited {within_s:g} s in vain for {what}"
            time.sleep(0.01)

    def close(self) -> None:
        for node in self._nodes:
            with contextlib.suppress(ProcessLookupError):
                os.kill(node.pid, signal.SIGCONT)
            node.kill()
            node.wait()
        self.observer.close()
