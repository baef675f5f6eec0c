"""Asking another program (``bd``, ``gh``): one call, bounded in time, its answer as it was given.

What it prints goes into files, not pipes: a daemon that it leaves behind may keep its end of a pipe open for
ever. It gets a session of its own, so that Ctrl-C does not end it in the middle of a write.
"""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO

from flyball.errors import SourceError
from flyball.host.child_process import start_apart

_GRACE_S = 5.0
"""What a program gets to finish what it writes when we are interrupted."""


@dataclass(frozen=True, slots=True)
class ProgramOutput:
    code: int
    out: bytes
    err: bytes


@dataclass(frozen=True, slots=True)
class Program:
    command: tuple[str, ...]
    """The program, and arguments that come before all others."""
    folder: Path
    """Where it runs."""
    install: str
    """How to get it, for the message that it is missing."""
    env: Mapping[str, str] = field(default_factory=dict)
    timeout_s: float = 120.0

    @property
    def name(self) -> str:
        return os.path.basename(self.command[0])

    def run(self, *args: str, stdin: str = "") -> ProgramOutput:
        """Run it to its end. SourceError where it cannot be started or does not come back in time."""
        with TemporaryFile() as said, TemporaryFile() as complained, TemporaryFile() as told:
            told.write(stdin.encode("utf-8", "surrogateescape"))
            told.seek(0)
            code = self._wait(self._start(args, stdin=told, stdout=said, stderr=complained), args)
            return ProgramOutput(code, _content(said), _content(complained))

    def _start(
        self, args: tuple[str, ...], *, stdin: IO[bytes], stdout: IO[bytes], stderr: IO[bytes]
    ) -> subprocess.Popen[bytes]:
        try:
            return start_apart(
                [*self.command, *args],
                cwd=self.folder,
                env={**os.environ, **self.env},
                stdin=stdin,
                stdout=stdout,
                stderr=stderr,
            )
        except FileNotFoundError as error:
            if not self.folder.is_dir():
                raise SourceError(f"there is no folder {self.folder}") from error
            raise SourceError(f"{self.name} was not found; {self.install}") from error
        except (OSError, ValueError) as error:
            raise SourceError(f"{self.name} cannot be started: {error}") from error

    def _wait(self, process: subprocess.Popen[bytes], args: tuple[str, ...]) -> int:
        try:
            return process.wait(self.timeout_s)
        except subprocess.TimeoutExpired as error:
            _end(process, grace_s=0)
            words = f"{self.name} {args[0]} took longer than {self.timeout_s:g} s in {self.folder}"
            raise SourceError(words) from error
        except BaseException:
            _end(process, grace_s=_GRACE_S)
            raise


def _end(process: subprocess.Popen[bytes], *, grace_s: float) -> None:
    """End it and its children, which may hold its locks, unless it ends by itself in time."""
    with suppress(subprocess.TimeoutExpired):
        process.wait(grace_s)
        return
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    process.kill()
    process.wait()


def _content(file: IO[bytes]) -> bytes:
    file.seek(0)
    return file.read()
