"""Starting a command under a keeper: with its lease or not at all, and independent of us from then on.

    1  spawn the keeper; it forks the command's process, which waits at the gate
    2  learn that process's pid; tie the lease to it, write it down
    3  open the gate

Killed before 3, we take the gate with us and nothing has run. Killed after 3, we take nothing with us:
output goes to files, the keeper writes down how the command ended, and the lease lives as long as the
command.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from flyball.errors import AgentError
from flyball.governor.launch import supervisor
from flyball.governor.launch.supervisor import REFUSED, STARTED, STATUS, STDERR, STDOUT
from flyball.host.child_process import start_apart
from flyball.host.process import identify

_SCRIPT = str(Path(supervisor.__file__))


class SupervisedChild:
    """A command that waits at its gate. ``folder`` holds what it prints and how it ended."""

    def __init__(
        self,
        argv: Sequence[str],
        *,
        env: Mapping[str, str],
        cwd: Path,
        folder: Path,
        stdin: Path | None = None,
    ) -> None:
        gate, self._gate = os.pipe()
        said, say = os.pipe()
        try:
            with _open_streams(folder, stdin) as (given, out, err):
                self._keeper = start_apart(
                    [sys.executable, "-I", "-S", _SCRIPT, str(gate), str(say), str(folder), "--", *argv],
                    env=dict(env),
                    cwd=cwd,
                    stdin=given,
                    stdout=out,
                    stderr=err,
                    pass_fds=(gate, say),
                )
        except OSError as error:
            os.close(self._gate)
            os.close(said)
            raise AgentError(f"cannot start a keeper for {argv[0]}: {error.strerror}") from error
        finally:
            os.close(gate)
            os.close(say)
        with open(said, "rb") as file:
            line = file.readline()
        if not line:
            self.cancel()
            raise AgentError(f"the keeper for {argv[0]} ended before it had started")
        self.pid = int(line)
        self.holder, self.keeper = identify(self.pid), identify(self._keeper.pid)
        self._folder = folder

    def open_gate(self) -> None:
        """Let the command run."""
        (self._folder / STARTED).touch(mode=0o600)
        with contextlib.suppress(BrokenPipeError):
            os.write(self._gate, b"g")
        os.close(self._gate)
        self._gate = -1

    def cancel(self) -> None:
        """End it without having run anything."""
        if self._gate >= 0:
            os.close(self._gate)
            self._gate = -1
        self._keeper.wait()

    def reap(self) -> int | None:
        """The exit code of a keeper that has ended, by which its process is gone for good."""
        return self._keeper.poll()


def exit_code(folder: Path) -> int | None:
    """How a command ended, as its keeper wrote it down; negative: by that signal; None: not (yet) known."""
    try:
        return int((folder / STATUS).read_text())
    except (OSError, ValueError):
        return None


def refusal(folder: Path) -> str:
    """Why the system would not run a command at all; empty if it did."""
    try:
        return (folder / REFUSED).read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


@contextlib.contextmanager
def _open_streams(folder: Path, stdin: Path | None):  # type: ignore[no-untyped-def]  # three descriptors
    with contextlib.ExitStack() as stack:
        given = stack.enter_context(open(stdin or os.devnull, "rb"))
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND
        files = [os.open(folder / name, flags, 0o600) for name in (STDOUT, STDERR)]
        for file in files:
            stack.callback(os.close, file)
        yield given, files[0], files[1]
