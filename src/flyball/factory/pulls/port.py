"""What the factory asks of a host of pull requests: find one, open one, look at one.

GitLab calls them merge requests; here they have one name. A host is reached through its own command line,
which has the user's login: flyball keeps no token. Every call may take its time and may come from any thread;
what goes wrong is a PullError that names the way out.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Protocol

from flyball.errors import FlyballError


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

    def look(self, number: int) -> Pull: ...
