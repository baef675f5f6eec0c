"""Profiles: whose account agents of one runtime use, and how it is paid for. Settings, never state.

A profile holds names and never a secret: the e-mail or id that must be logged in, the folder of that login,
the name of the variable with an API key. Each is a file, ``FLYBALL_HOME/registry/accounts/<name>.toml``, in
the registry's repository and changed as projects are: an atomic write, a line of audit and a commit, under
the registry's lock. Reading takes no lock and writes nothing. A file that cannot be understood is named
beside the good ones, never overwritten and never used.

``config_dir`` is for a login beside the personal one. The personal one has none: the runtime's own default
is used, and its variable (``CLAUDE_CONFIG_DIR``, ...) is left unset. Pointing it at the default folder is
refused, because it is not the same: with it Claude Code looks for ``.claude.json`` inside that folder, not
beside it, and would find another login or none.

A variable that decides whose account is used overrides a login. So under a profile none of them passes unless
the profile itself names it: a key that happens to be in the environment must not be charged.
"""

from __future__ import annotations

import os
import re
import shlex
import tomllib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import msgspec

from flyball.core.suggestions import did_you_mean
from flyball.core.tasks.task import check_id, same_id_key
from flyball.errors import StoreError, StoreUnreadableError, UsageError
from flyball.factory.project.registry_history import RegistryHistory
from flyball.host.atomic_file import UNFINISHED, replace_file

CONFIG_DIRS: Mapping[str, str] = {
    "claude": "CLAUDE_CONFIG_DIR",
    "codex": "CODEX_HOME",
    "gemini": "GEMINI_CLI_HOME",
    "opencode": "XDG_DATA_HOME",
}
"""The variable that tells a runtime where its login is."""

_ANTHROPIC = (
    "ANTHROPIC_API_KEY",
    "ANTHROPIC_AUTH_TOKEN",
    "ANTHROPIC_BASE_URL",
    "CLAUDE_CODE_OAUTH_TOKEN",
    "CLAUDE_CODE_OAUTH_REFRESH_TOKEN",
    "CLAUDE_CODE_USE_BEDROCK",
    "CLAUDE_CODE_USE_VERTEX",
    "CLAUDE_CODE_USE_FOUNDRY",
    "AWS_BEARER_TOKEN_BEDROCK",
)
_OPENAI = ("OPENAI_API_KEY", "OPENAI_BASE_URL", "OPENAI_ORGANIZATION", "OPENAI_PROJECT", "CODEX_API_KEY")
_GOOGLE = (
    "GEMINI_API_KEY",
    "GOOGLE_API_KEY",
    "GOOGLE_APPLICATION_CREDENTIALS",
    "GOOGLE_CLOUD_PROJECT",
    "GOOGLE_GENAI_USE_GCA",
    "GOOGLE_GENAI_USE_VERTEXAI",
    "GOOGLE_GEMINI_BASE_URL",
)
_OWN: Mapping[str, tuple[str, ...]] = {
    "claude": _ANTHROPIC,
    "codex": _OPENAI,
    "gemini": _GOOGLE,
    "opencode": (*_ANTHROPIC, *_OPENAI, *_GOOGLE, "OPENCODE_CONFIG", "OPENCODE_CONFIG_CONTENT"),
    "command": (*_ANTHROPIC, *_OPENAI, *_GOOGLE),
}
_PROVIDER: Mapping[str, tuple[str, ...]] = {
    "claude": ("ANTHROPIC_", "CLAUDE_", "DISABLE_"),
    "codex": ("OPENAI_", "CODEX_"),
    "gemini": ("GEMINI_", "GOOGLE_"),
}
_EVERY = tuple(prefix for prefixes in _PROVIDER.values() for prefix in prefixes)


def credential_variables(runtime: str) -> frozenset[str]:
    """Variables that override this runtime's login."""
    return frozenset((*_OWN[runtime], *([CONFIG_DIRS[runtime]] if runtime in CONFIG_DIRS else [])))


def provider_prefixes(runtime: str) -> tuple[str, ...]:
    """How a runtime's own variables begin; opencode and a command may use any provider."""
    return _PROVIDER.get(runtime, (*_EVERY, "OPENCODE_"))


Billing = Literal["subscription", "api-key"]
RuntimeName = Literal["claude", "codex", "gemini", "opencode", "command"]
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_DEFAULTS: Mapping[str, str] = {
    "claude": "~/.claude",
    "codex": "~/.codex",
    "gemini": "~",
    "opencode": "~/.local/share",
}
"""Where a runtime looks by itself."""


class Profile(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    name: str
    runtime: RuntimeName
    identity: str = ""
    """Who must be logged in: an e-mail, or an id where the runtime has no e-mail."""
    config_dir: str = ""
    billing: Billing = "subscription"
    api_key_env: str = ""
    """The name of a variable, never a key."""
    env: tuple[str, ...] = ()
    """Variables of yours that agents under this profile get."""

    @property
    def folder(self) -> Path | None:
        """Where its login is; None: where the runtime looks by itself."""
        return Path(self.config_dir).expanduser() if self.config_dir else None


def check_profile(profile: Profile) -> Profile:
    """The profile itself, if it makes sense."""
    for words in _problems(profile):
        raise UsageError(f"profile {profile.name}: {words}")
    return profile


def _problems(profile: Profile) -> Iterator[str]:
    check_id(profile.name, "an account's name")
    if profile.billing == "api-key" and not profile.api_key_env:
        yield "billing by API key needs the name of its variable: --api-key-env NAME"
    if profile.billing == "subscription" and not profile.identity:
        yield "say who must be logged in: --identity you@example.org"
    if profile.identity and profile.runtime == "command":
        yield "a command has no login that could be verified; leave --identity out and bill by API key"
    if profile.identity != profile.identity.strip() or not profile.identity.isprintable():
        yield "its identity has spaces around it, or characters that cannot be shown"
    yield from _name_problems(profile)
    yield from _folder_problems(profile)


def _name_problems(profile: Profile) -> Iterator[str]:
    named = (*profile.env, *([profile.api_key_env] if profile.api_key_env else []))
    for name in named:
        if not _VARIABLE.fullmatch(name):
            # A key that was pasted here must not be repeated in a message.
            yield "--env and --api-key-env take names of variables, and one of these is not a name"
    for name in profile.env:
        if name in credential_variables(profile.runtime):
            yield f"{name} decides whose account is used; name it with --api-key-env, not --env"


def _folder_problems(profile: Profile) -> Iterator[str]:
    folder = profile.folder
    if folder is None:
        return
    if profile.runtime not in CONFIG_DIRS:
        yield f"{profile.runtime} has no folder of its own to log in to"
    elif not folder.is_absolute():
        yield f"config_dir {profile.config_dir} must be absolute, or begin with ~"
    elif os.path.realpath(folder) == os.path.realpath(os.path.expanduser(_DEFAULTS[profile.runtime])):
        words = f"{profile.config_dir} is where {profile.runtime} looks by itself"
        yield f"{words}; leave --config-dir out for that"


# -- as a file --------------------------------------------------------------------------------------------


def dump_profile(profile: Profile) -> bytes:
    """As TOML, every key said."""
    entries = msgspec.to_builtins(profile).items()
    text = "".join(f"{key} = {msgspec.json.encode(value).decode()}\n" for key, value in entries)
    # Texts and lists of texts are written as in JSON, but for one character.
    return text.replace("\x7f", "\\u007f").encode()


def parse_profile(content: bytes) -> Profile:
    """UsageError if it cannot be understood."""
    try:
        document = tomllib.loads(content.decode("utf-8"))
        return check_profile(msgspec.convert(document, Profile))
    except (UnicodeDecodeError, tomllib.TOMLDecodeError, msgspec.ValidationError) as error:
        raise UsageError(str(error)) from error


ACCOUNTS = "accounts"
_LARGEST = 1 << 16


@dataclass(frozen=True, slots=True)
class BrokenProfile:
    """A file that cannot be understood."""

    name: str
    file: Path
    words: str


class Profiles:
    """Safe to use from many processes at once."""

    def __init__(self, home: Path) -> None:
        self.folder = home / "registry" / ACCOUNTS
        self._history = RegistryHistory(home / "registry", kind=ACCOUNTS)

    # -- reading --------------------------------------------------------------------------------------

    def list(self) -> tuple[list[Profile], list[BrokenProfile]]:
        try:
            names = sorted(name for name in os.listdir(self.folder) if name.endswith(".toml"))
        except FileNotFoundError:
            return [], []
        except OSError as error:
            words = f"cannot read {self.folder} ({error.strerror}); set FLYBALL_HOME to a folder you own"
            raise StoreError(words) from error
        read = [_read(self.folder / name) for name in names]
        good = [one for one in read if isinstance(one, Profile)]
        return good, [one for one in read if isinstance(one, BrokenProfile)]

    def get(self, name: str) -> Profile:
        profiles, broken = self.list()
        for profile in profiles:
            if profile.name == name:
                return profile
        for one in broken:
            if one.name == name:
                raise StoreUnreadableError(one.words)
        known = [profile.name for profile in profiles]
        making = f"{shlex.join(['flyball', 'account', 'add', name])} ... makes it"
        making += f" (there are: {', '.join(known) or 'none yet'})"
        raise UsageError(f"there is no profile {name!r}; {did_you_mean(name, known) or making}")

    # -- changing -------------------------------------------------------------------------------------

    def add(self, profile: Profile, *, replace: bool = False) -> None:
        """Write a profile down. UsageError if its name is taken and ``replace`` is not set."""
        check_profile(profile)
        with self._changing():
            profiles, broken = self.list()
            for known in (*(one.name for one in profiles), *(one.name for one in broken)):
                if same_id_key(known) == same_id_key(profile.name) and not (
                    replace and known == profile.name
                ):
                    way_out = f"--replace changes it, flyball account remove {known} forgets it"
                    raise UsageError(f"there is a profile {known} already; {way_out}")
            replace_file(self._file(profile.name), dump_profile(profile))
            self._record("account add", profile.name)

    def remove(self, name: str) -> None:
        """Forget a profile; no login is touched. What cannot be read can be forgotten too."""
        with self._changing():
            if not any(one.name == name for one in self.list()[1]):
                self.get(name)
            self._file(name).unlink()
            self._record("account remove", name)

    def _file(self, name: str) -> Path:
        return self.folder / f"{name}.toml"

    @contextmanager
    def _changing(self) -> Iterator[None]:
        with self._history.changing():
            for left in self.folder.glob(UNFINISHED):
                left.unlink()
            yield

    def _record(self, what: str, name: str) -> None:
        """With everything that was only written before: by a process killed in between, or by hand."""
        bad = {f"{ACCOUNTS}/{one.file.name}" for one in self.list()[1]}
        self._history.record(what, f"{what} {name}", skip=bad, id=name)


def _read(file: Path) -> Profile | BrokenProfile:
    try:
        with file.open("rb") as opened:
            profile = parse_profile(opened.read(_LARGEST))
    except OSError as error:
        return _broken_profile(file, str(error.strerror))
    except UsageError as error:
        return _broken_profile(file, str(error))
    return profile if profile.name == file.stem else _broken_profile(file, "its name is not the file's")


def _broken_profile(file: Path, why: str) -> BrokenProfile:
    where = str(file.parent.parent)
    back = shlex.join(["git", "-C", where, "checkout", "--", f"{ACCOUNTS}/{file.name}"])
    return BrokenProfile(
        file.stem, file, f"cannot understand {file} ({why}); mend it, or bring it back with {back}"
    )
