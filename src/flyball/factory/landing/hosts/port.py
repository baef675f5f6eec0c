"""What the factory asks of a host of pull requests: find one, open one, look at one.

GitLab calls them merge requests; here they have one name. A host is reached through its own command line,
which has the user's login: flyball keeps no token. Every call may take its time and may come from any thread;
what goes wrong is a PullError that names the way out.

Asking a host's own command line.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Protocol

from flyball.errors import FlyballError, SourceError
from flyball.factory.tasks.command import Program


class PullError(FlyballError):
    """The host could not be asked, or did not do what it was asked for."""


class PullState(Enum):
    OPEN = "open"
    MERGED = "merged"
    CLOSED = "closed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Pull:
    number: int
    url: str
    state: PullState
    branch: str
    head: str
    """The commit that it is about now."""
    approved: bool = False
    commit: str = ""
    """What it became in the default branch, where the host knows."""


class PullHost(Protocol):
    @property
    def name(self) -> str: ...

    def find(self, branch: str) -> Pull | None:
        """The open pull request of a branch."""
        ...

    def open(self, *, branch: str, base: str, title: str, body: str) -> Pull: ...

    def get(self, number: int) -> Pull: ...


def run_program(program: Program, args: Sequence[str], *, stdin: str = "", way_out: str) -> bytes:
    """What a program answered; PullError if it failed."""
    try:
        answer = program.run(*args, stdin=stdin)
    except SourceError as error:
        raise PullError(str(error)) from error
    if answer.code != 0:
        lines = (answer.err or answer.out).decode("utf-8", "replace").strip().splitlines()
        why = lines[-1] if lines else f"exit status {answer.code}"
        raise PullError(f"{program.name} {args[0]} {args[1]} failed: {why}; {way_out}")
    return answer.out
