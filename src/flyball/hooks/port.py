"""What a runtime brings: where its hooks are set, which there are, what they say, what answers them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from flyball.errors import UsageError
from flyball.hooks.events import HookEvent
from flyball.host.user_home import user_home

WAIT_S = 300.0
"""So long a subagent waits for a slot before it is denied, unless another time was named at the install."""
QUICK_S = 30.0
"""What a hook that does not wait may take."""
SPARE_S = 30.0
"""What a hook that waits may take beyond its wait, so that it ends by itself."""


@dataclass(frozen=True, slots=True)
class HookEntry:
    """One of our hooks in an agent's settings."""

    event: str
    matcher: str | None
    waits: bool

    def timeout_s(self, wait_s: float) -> float:
        """How long it may take, where a subagent waits so long for a slot."""
        return wait_s + SPARE_S if self.waits else QUICK_S

    def group(self, hook: Mapping[str, Any]) -> dict[str, Any]:
        """This entry with its one hook, as the settings of claude, codex and gemini hold it."""
        return {**({} if self.matcher is None else {"matcher": self.matcher}), "hooks": [hook]}


class HookRuntime(Protocol):
    """A runtime that calls hooks: where they are installed, and what their events mean."""

    name: str
    entries: Sequence[HookEntry]

    def settings_path(self, env: Mapping[str, str]) -> Path:
        """The file that holds its hooks."""

    def group(self, entry: HookEntry, command: str, wait_s: float) -> dict[str, Any]:
        """An entry as its settings hold it."""

    def parse_event(self, name: str, payload: Mapping[str, Any]) -> HookEvent | None:
        """What a hook says; None: it does not concern us."""

    def denial(self, name: str, words: str) -> str:
        """What denies a subagent, for stdout."""

    def hint(self, env: Mapping[str, str]) -> str:
        """What is left for a person to do after the install; empty: nothing."""


def user_folder(env: Mapping[str, str], variable: str | None = None) -> Path:
    """A person's home, or the folder that a variable names in its place."""
    named = (env.get(variable) if variable is not None else None) or env.get("HOME")
    home = Path(named) if named else user_home()
    if home is None:
        raise UsageError("this user has no home where an agent's settings could be; set HOME")
    return home
