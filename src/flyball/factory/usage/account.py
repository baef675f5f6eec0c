"""Whose money it is: the account that a project's agents use, and where its runtime keeps what it did.

Two accounts never mix. A profile whose folder nobody named has no folder: what lies in the user's own would
be somebody else's spending.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from flyball.factory.config import ProjectConfig

CLAUDE = "claude"
CONFIG_DIR = "CLAUDE_CONFIG_DIR"
DEFAULT = "default"
API_KEYS: Mapping[str, str] = {
    CLAUDE: "ANTHROPIC_API_KEY",
    "codex": "OPENAI_API_KEY",
    "gemini": "GEMINI_API_KEY",
}
"""The variable in which a runtime takes the key of an account that pays for every call."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Account:
    name: str
    """The profile; ``default:<runtime>`` where a project names none."""
    runtime: str
    folder: Path | None = None
    """Where claude keeps its transcripts; None: nobody knows, or it is another runtime."""
    key_env: str = ""
    """The variable with the API key that a person set aside for this account."""

    @property
    def file_name(self) -> str:
        return f"{self.name}.json"


def account_of(
    config: ProjectConfig,
    *,
    folder: Path | None = None,
    key_env: str = "",
    environ: Mapping[str, str] | None = None,
) -> Account:
    """``folder`` and ``key_env`` are what the profile says, where there is one."""
    runtime, profile = config.agent.runtime, config.account.profile
    known = folder or _folder(config, os.environ if environ is None else environ)
    return Account(
        name=profile or f"{DEFAULT}:{runtime}",
        runtime=runtime,
        folder=known if runtime == CLAUDE else None,
        key_env=key_env,
    )


def _folder(config: ProjectConfig, environ: Mapping[str, str]) -> Path | None:
    named = config.agent.env.get(CONFIG_DIR)
    if named:
        return Path(named).expanduser()
    if config.account.profile:
        return None
    return default_folder(environ)


def default_folder(environ: Mapping[str, str] = os.environ) -> Path:
    """Where claude keeps what it did for whoever is logged in."""
    named = environ.get(CONFIG_DIR)
    return Path(named).expanduser() if named else Path.home() / ".claude"
