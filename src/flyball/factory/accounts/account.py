"""The account of one run: a profile or the login that is there, who is logged in, and what agents get of it.

Each runtime's own files say who is logged in. They are read, never changed, and no secret is kept.

    claude     oauthAccount.emailAddress in .claude.json
    codex      the e-mail or the account id in auth.json; its token is read, not checked: the file is ours
    gemini     the active account in google_accounts.json
    opencode   the ids of the providers in auth.json, `provider` or `provider:account`

Fail-closed: a file that is missing, cannot be read or names no account does not match any profile.
"""

from __future__ import annotations

import base64
import binascii
import json
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from flyball.errors import AccountError, UsageError
from flyball.factory.accounts.environment import api_key, check_names, child_environment
from flyball.factory.accounts.profile import Profile, Profiles
from flyball.factory.project.config import ProjectConfig


@dataclass(frozen=True, slots=True)
class Account:
    """What the project's file says about it. Verified at each launch, since logins change."""

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


_LARGEST = 64 << 20
"""Claude Code keeps much else in that file."""


def verify_login(profile: Profile, ambient: Mapping[str, str]) -> str:
    """Whose account agents under this profile will use, looked at now. AccountError if it is not the one
    that the profile names, or if that cannot be told."""
    if profile.billing == "api-key":
        api_key(profile, ambient)
    if not profile.identity:
        return f"API key in {profile.api_key_env}"
    file, found = login_names(profile, ambient)
    if _plain(profile.identity) in map(_plain, found):
        return profile.identity
    who = " and ".join(found) or "no account"
    words = f"profile {profile.name} is for {profile.identity}, and {file} says that {who} is logged in"
    raise AccountError(f"{words}; log in as {profile.identity} there, or run under another profile")


def _plain(identity: str) -> str:
    return identity.strip().casefold()


def login_names(profile: Profile, ambient: Mapping[str, str]) -> tuple[Path, list[str]]:
    """The file that says it, and every name that the account logged in there goes by."""
    if profile.runtime not in _READERS:
        raise AccountError(
            f"profile {profile.name}: {profile.runtime} does not say who is logged in; leave its identity out"
        )
    place, read = _READERS[profile.runtime]
    home = Path(ambient.get("HOME") or os.path.expanduser("~"))
    file = place(profile.folder, home)
    try:
        found = read(_read_json(file))
    except (KeyError, TypeError, AttributeError, IndexError, ValueError) as error:
        raise AccountError(
            f"profile {profile.name}: cannot tell from {file} who is logged in; log in again"
        ) from error
    return file, [name for name in found if isinstance(name, str) and name.strip()]


def _read_json(file: Path) -> Any:
    try:
        with file.open("rb") as opened:
            return json.loads(opened.read(_LARGEST))
    except FileNotFoundError:
        raise AccountError(f"no account is logged in: there is no {file}; log in first") from None
    except (OSError, ValueError, RecursionError) as error:
        # Not the error itself: it may quote the file, which has secrets.
        raise AccountError(f"cannot read {file} ({type(error).__name__}); log in again") from None


def _codex_names(document: Any) -> list[Any]:
    if document.get("auth_mode", "chatgpt").lower() == "apikey":
        return []
    tokens = document["tokens"]
    claims = _claims(tokens["id_token"]) if tokens.get("id_token") else {}
    of_openai = claims.get("https://api.openai.com/auth") or {}
    return [claims.get("email", ""), tokens.get("account_id", ""), of_openai.get("chatgpt_account_id", "")]


def _claims(token: str) -> dict[str, Any]:
    body = token.split(".")[1]
    try:
        found = json.loads(base64.urlsafe_b64decode(body + "=" * (-len(body) % 4)))
    except binascii.Error as error:
        raise ValueError("no token") from error
    return found if isinstance(found, dict) else {}


def _opencode_names(document: Any) -> list[Any]:
    found = []
    for provider, login in document.items():
        account = login.get("accountId") or login.get("accountID")
        found += [provider, f"{provider}:{account}"] if account else [provider]
    return found


_Place = Callable[[Path | None, Path], Path]
_READERS: Mapping[str, tuple[_Place, Callable[[Any], list[Any]]]] = {
    "claude": (
        lambda folder, home: (folder or home) / ".claude.json",
        lambda document: [document["oauthAccount"]["emailAddress"]],
    ),
    "codex": (lambda folder, home: (folder or home / ".codex") / "auth.json", _codex_names),
    "gemini": (
        lambda folder, home: (folder or home) / ".gemini" / "google_accounts.json",
        lambda document: [document["active"]],
    ),
    "opencode": (
        lambda folder, home: (folder or home / ".local" / "share") / "opencode" / "auth.json",
        _opencode_names,
    ),
}
