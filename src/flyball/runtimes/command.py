"""Any other command: its output means nothing to flyball, its exit status is all there is.

75 is how a command says that it was limited, as ``flyball exec`` itself does (EX_TEMPFAIL).
"""

from __future__ import annotations

from collections.abc import Sequence

from flyball.core.signals import Certainty, End, Signal, SignalKind
from flyball.errors import UsageError
from flyball.host.exit_status import LIMITED
from flyball.runtimes.port import Assignment, Ending, Launch, Progress
from flyball.runtimes.stream_reader import by_exit


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
        if exit_code == LIMITED:
            signal = Signal(
                SignalKind.THROTTLED, certainty=Certainty.GUESSED, detail=f"exit status {LIMITED}"
            )
            reason = f"it said so by exit status {LIMITED}"
            return Ending(end=End.LIMITED, reason=reason, signal=signal, progress=self.progress())
        ending = by_exit(exit_code)
        return Ending(end=ending.end, reason=ending.reason, progress=self.progress())


class Command:
    name = "command"
    reports_cost = False

    def reader(self) -> CommandReader:
        return CommandReader()

    def wrote(self, stdout: bytes, stderr: bytes) -> bool:  # noqa: ARG002 - anything may be a command's
        return True

    def launch(self, assignment: Assignment) -> Launch:
        """As it is written; the model and the effort are for it to read."""
        if not assignment.program:
            raise UsageError("the runtime 'command' needs to know its command: set agent.command")
        wished = {"FLYBALL_MODEL": assignment.model, "FLYBALL_EFFORT": assignment.effort}
        env = {name: value for name, value in wished.items() if value}
        return Launch((*assignment.program, *assignment.args), env)

    def resuming(self, argv: Sequence[str], session: str) -> list[str]:  # noqa: ARG002 - it has no sessions
        return list(argv)
