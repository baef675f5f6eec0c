"""What flyball asks of an agent's runtime: start it, read its output, judge how it ended, say how to go on.

A reader is fed bytes as they come, cut anywhere, mixed with garbage. It keeps a bounded amount of them, never
raises for anything in them, and never looks at a clock: the wall clock comes in with each piece, because some
runtimes state a reset as a time of day.

Much is read, little is believed:

    believed       a terminal event, an event flagged as an error, the exit status
    not believed   what the model or a tool said, however much it sounds like a rate limit

A run that waited out a throttle and went on has told of it and ends as it ends. Its tries in between are one
*episode*, told once; the first sign of work closes it.

A launch is one command line: headless, the prompt on stdin, the output that our reader reads best. It has the
strictest permissions that still let the agent do what it is told without a person to ask: change files in its
working directory, and run the commands that its assignment names. What the project says itself always wins
over what we would say.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from flyball.core.signals import End, Signal

if TYPE_CHECKING:
    from flyball.core.budget.usage_windows import UsageReport


@dataclass(frozen=True, slots=True)
class Tokens:
    """``input`` is everything that was sent, cached or not."""

    input: int = 0
    output: int = 0

    @property
    def total(self) -> int:
        return self.input + self.output

    def __add__(self, other: Tokens) -> Tokens:
        return Tokens(self.input + other.input, self.output + other.output)


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """What is known of a run so far; None is not known."""

    session: str | None = None
    """What it can be asked to go on with; None until there is something to go on with."""
    model: str | None = None
    tokens: Tokens | None = None
    """Of this run. A codex that goes on with a session counts the session's earlier ones as well."""
    cost_usd: float | None = None
    turns: int | None = None
    """Answers of the model that have come so far, each with the tools it called: what ``max_turns`` bounds.
    Sub-agents have turns of their own. codex does not tell its answers apart: there it is the tools that it
    used, and one for the last word."""
    activity: str = ""
    """The last thing it did, in a word or two."""
    active_at: float | None = None
    """Wall clock of the last output."""
    windows: tuple[UsageReport, ...] = ()
    """What the provider itself said about the account's usage windows."""
    denials: tuple[str, ...] = ()
    """What it wanted to do and was not permitted to, each once, such as ``Bash: npm test``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ending:
    """How a run ended and everything it said about itself."""

    end: End
    reason: str
    """One sentence for a person, without the word of the ending and without a full stop."""
    signal: Signal | None = None
    """What the provider said, where that decided the ending."""
    told: bool = False
    """``signal`` was already among those that came while the run was read."""
    session_gone: bool = False
    """It never began, because the session that it should go on with is not there: start afresh."""
    progress: Progress = Progress()
    last_words: str = ""
    """The model's last message, where the runtime's output tells it apart from everything else."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Assignment:
    """What is asked of an agent, apart from the prompt."""

    program: Sequence[str] = ()
    """How to call it, where that is not by its name; for a ``command`` the whole of it."""
    model: str = ""
    args: Sequence[str] = ()
    """The project's own options. What they name is left to them."""
    max_turns: int | None = None
    max_cost_usd: float | None = None
    """Ceilings for the runtimes that have such options; the others are watched from outside."""
    session: str | None = None
    """Go on with this one, in a session of its own where the runtime can fork it."""
    effort: str = ""
    """How much thought it takes: low, medium, high; for the runtimes that have such an option."""
    commands: Sequence[str] = ()
    """Shell commands that it may run, exactly as they are written: those that it is told to run."""
    command_beginnings: Sequence[str] = ()
    """Beginnings of such commands, in whole words: ``git add``."""


@dataclass(frozen=True, slots=True)
class Launch:
    """How to start it. The prompt goes in on stdin, from a file."""

    argv: tuple[str, ...]
    env: Mapping[str, str] = field(default_factory=dict)
    """To be set unless the project sets them itself."""


class Reader(Protocol):
    """One run's output. Use it for one run only."""

    def feed(self, chunk: bytes, *, wall_s: float) -> list[Signal]:
        """The next bytes of stdout; the signals in them, each episode once."""
        ...

    def feed_stderr(self, chunk: bytes, *, wall_s: float) -> list[Signal]:
        """The next bytes of stderr."""
        ...

    def progress(self) -> Progress: ...

    def finish(self, exit_code: int | None, *, wall_s: float) -> Ending:
        """Judge the run. A negative code is death by that signal; None: how it exited is not known."""
        ...


class Runtime(Protocol):
    """One kind of agent."""

    @property
    def name(self) -> str: ...

    @property
    def reports_cost(self) -> bool:
        """Does its output say what a run cost in dollars? Where it does not, no ceiling in dollars holds."""
        ...

    def reader(self) -> Reader: ...

    def wrote(self, stdout: bytes, stderr: bytes) -> bool:
        """Is this the beginning of this runtime's output?"""
        ...

    def launch(self, assignment: Assignment) -> Launch: ...

    def resuming(self, argv: Sequence[str], session: str) -> list[str]:
        """The command line that goes on where a session stopped."""
        ...
