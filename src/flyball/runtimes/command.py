"""Any other command: its output means nothing to flyball, its exit status is all there is."""

from __future__ import annotations

from collections.abc import Sequence

from flyball.core.signals import Signal
from flyball.runtimes.port import Ending, Progress
from flyball.runtimes.reading import by_exit


class CommandReader:
    def __init__(self) -> None:
        self._active_at: float | None = None

    def feed(self, chunk: bytes, *, wall_s: float) -> list[Signal]:
        self._active_at = wall_s if chunk else self._active_at
        return []

    def feed_stderr(self, chunk: bytes, *, wall_s: float) -> list[Signal]:
        return self.feed(chunk, wall_s=wall_s)

    def progress(self) -> Progress:
        return Progress(active_at=self._active_at)

    def finish(self, exit_code: int | None, *, wall_s: float) -> Ending:  # noqa: ARG002 - part of the port
        ending = by_exit(exit_code)
        return Ending(end=ending.end, reason=ending.reason, progress=self.progress())


class Command:
    name = "command"

    def reader(self) -> CommandReader:
        return CommandReader()

    def wrote(self, stdout: bytes, stderr: bytes) -> bool:  # noqa: ARG002 - anything may be a command's
        return True

    def resuming(self, argv: Sequence[str], session: str) -> list[str]:  # noqa: ARG002 - it has no sessions
        return list(argv)
