"""A person at an interactive shell, in a terminal of its own."""

from __future__ import annotations

import os
import pty
import select
import signal
import time


class Terminal:
    """An interactive bash. What is typed reaches its foreground job, as from a keyboard."""

    def __init__(self) -> None:
        self.pid, self.file = pty.fork()
        if self.pid == 0:
            os.environ["PS1"] = "$ "
            os.execvp("bash", ["bash", "--norc", "--noprofile", "--noediting", "-i"])
        self.seen = b""

    def type(self, text: str) -> None:
        os.write(self.file, text.encode())

    def read_until(self, text: str) -> None:
        """Read on until the text was shown; all that was shown before is behind us."""
        end = time.monotonic() + 60
        while text.encode() not in self.seen:
            assert time.monotonic() < end, f"{text!r} was never shown: {self.seen.decode()!r}"
            if select.select([self.file], [], [], 0.1)[0]:
                self.seen += os.read(self.file, 4096)
        self.seen = self.seen.partition(text.encode())[2]

    def group(self) -> int:
        """The process group in the foreground: the shell's own while no job has the terminal."""
        return os.tcgetpgrp(self.file)

    def close(self) -> None:
        os.close(self.file)
        os.kill(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)
