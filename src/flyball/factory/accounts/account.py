"""The account of one run: a profile, or nobody in particular, and what agents get of it."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from flyball.errors import UsageError
from flyball.factory.accounts.environment import check_names, child_environment, verify_login
from flyball.factory.accounts.profile import Profile
from flyball.factory.accounts.profiles import Profiles
from flyball.factory.project.config import ProjectConfig


@dataclass(frozen=True, slots=True)
class Account:
    """What the project's file says about it. Verified each time that somebody asks: logins change."""

    config: ProjectConfig
    profile: Profile | None = None

    def verify(self) -> str:
        """Whose account it is now; empty where no profile says whose it should be. AccountError otherwise."""
        return verify_login(self.profile, os.environ) if self.profile is not None else ""

    @property
    def words(self) -> str:
        """For people; as it was verified at every launch."""
        profile = self.profile
        if profile is None:
            return ""
        return f"{profile.name}: {profile.identity or f'API key in {profile.api_key_env}'}"

    def environment(self, runtime: Mapping[str, str]) -> dict[str, str]:
        """What every agent of the project gets of our environment."""
        return child_environment(
            os.environ,
            runtime=self.config.agent.runtime,
            profile=self.profile,
            names=self.config.guard.env,
            runtime_values=runtime,
            values=self.config.agent.env,
        )


def open_account(config: ProjectConfig, home: Path) -> Account:
    """The account that a project names, not yet verified."""
    name = config.account.profile
    if not name:
        return Account(config)
    profile = Profiles(home).get(name)
    if profile.runtime != config.agent.runtime:
        words = (
            f"account.profile {name} is for {profile.runtime}, and agent.runtime is {config.agent.runtime}"
        )
        raise UsageError(f"{words}; name a profile for {config.agent.runtime}, or none")
    check_names(profile, config.guard.env, config.agent.env)
    return Account(config, profile)
