"""What an agent finds in its environment: built up from nothing, never what is left after taking away.

    harmless     PATH, HOME, the terminal, language and time zone, XDG_*, but for names like secrets
    needed       proxies and certificates: without them nothing on some networks can be reached
    named        what the profile, ``guard.env`` and ``agent.env`` name
    flyball's    where its state is: FLYBALL_HOME, FLYBALL_URL, FLYBALL_HOST_ID
    the login's  under a profile: its folder, and its API key where it is billed by key. Nothing else that
                 decides whose account is used, whoever names it.

Of the first two and flyball's own, an address with a password in it, or with anything that may be one, stays
out all the same: who needs it is told by name.

Without a profile nobody said whose account to use. Then the variables of the runtime's own provider pass, as
they would without flyball: ``ANTHROPIC_*`` for claude and so on.

The gate and the bootstrap run what agents wrote, too. They get the same but for the login's, and where the
tools of a project are installed.

Who is logged in, as each runtime's own files say it. Looked at, never changed, and no secret is kept.

    claude     oauthAccount.emailAddress in .claude.json
    codex      the e-mail or the account id in auth.json; its token is read, not checked: the file is ours
    gemini     the active account in google_accounts.json
    opencode   the ids of the providers in auth.json, `provider` or `provider:account`

Fail-closed: what is missing, cannot be read, or says nothing is nobody, and nobody is not who was named.
"""

from __future__ import annotations

import base64
import binascii
import json
import os
import re
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from flyball.core.server_url import redacted
from flyball.errors import AccountError, UsageError
from flyball.factory.accounts.profile import CONFIG_DIRS, Profile, credential_variables, provider_prefixes

_HARMLESS = frozenset(
    {"PATH", "HOME", "USER", "LOGNAME", "SHELL", "TERM", "COLORTERM", "TMPDIR", "TZ", "LANG", "LANGUAGE"}
)
_HARMLESS_PREFIXES = ("LC_", "XDG_")
_NEEDED = frozenset(
    {
        *("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY"),
        *("http_proxy", "https_proxy", "all_proxy", "no_proxy"),
        *("SSL_CERT_FILE", "SSL_CERT_DIR", "NODE_EXTRA_CA_CERTS", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE"),
    }
)
_FLYBALL = frozenset({"FLYBALL_HOME", "FLYBALL_URL", "FLYBALL_HOST_ID"})
_TOOLS = frozenset(
    {
        *("CI", "VIRTUAL_ENV", "CONDA_PREFIX", "PYENV_ROOT", "UV_CACHE_DIR", "PIP_CACHE_DIR"),
        *("NVM_DIR", "NVM_BIN", "PNPM_HOME", "VOLTA_HOME", "JAVA_HOME", "SDKMAN_DIR", "DOTNET_ROOT"),
        *("GOPATH", "GOROOT", "GOCACHE", "GOMODCACHE", "CARGO_HOME", "RUSTUP_HOME", "GEM_HOME", "RBENV_ROOT"),
        *("ANDROID_HOME", "SDKROOT", "DEVELOPER_DIR", "ASDF_DIR", "ASDF_DATA_DIR", "NIX_PATH"),
    }
)
_SECRET = re.compile(r"TOKEN|SECRET|PASSW|CREDENTIAL|(^|_)KEY(_|$)|APIKEY|(^|_)AUTH(_|$)", re.IGNORECASE)


def child_environment(
    ambient: Mapping[str, str],
    *,
    runtime: str,
    profile: Profile | None = None,
    names: Iterable[str] = (),
    runtime_values: Mapping[str, str] | None = None,
    values: Mapping[str, str] | None = None,
) -> dict[str, str]:
    """Everything an agent gets of our environment. ``names`` is ``guard.env``, ``values`` ``agent.env``."""
    own = credential_variables(runtime) if profile is not None else frozenset()
    named = {*names, *(profile.env if profile is not None else ())} - own
    passed = {key: value for key, value in ambient.items() if key in named or _passes(key, value)}
    passed = {key: value for key, value in passed.items() if key not in own}
    if profile is None:
        prefixes = provider_prefixes(runtime)
        passed |= {key: value for key, value in ambient.items() if key.startswith(prefixes)}
    kept = {key: value for key, value in (values or {}).items() if key not in own}
    login = _login(profile, ambient) if profile is not None else {}
    return {**passed, **(runtime_values or {}), **kept, **login}


def gate_environment(ambient: Mapping[str, str], *, names: Iterable[str] = ()) -> dict[str, str]:
    """What the gate and the bootstrap get of our environment. ``names`` is ``gate.env``."""
    named = {*names, *_TOOLS}
    return {key: value for key, value in ambient.items() if key in named or _passes(key, value)}


def _passes(key: str, value: str) -> bool:
    if "://" in value and redacted(value) != value:
        return False
    if key in _HARMLESS or key in _NEEDED or key in _FLYBALL:
        return True
    return key.startswith(_HARMLESS_PREFIXES) and not _SECRET.search(key)


def _login(profile: Profile, ambient: Mapping[str, str]) -> dict[str, str]:
    login: dict[str, str] = {}
    if profile.folder is not None:
        login[CONFIG_DIRS[profile.runtime]] = str(profile.folder)
    if profile.billing == "api-key":
        login[key_name(profile)] = api_key(profile, ambient)
    return login


def api_key(profile: Profile, ambient: Mapping[str, str]) -> str:
    """The profile's API key; AccountError if it is not there."""
    found = ambient.get(profile.api_key_env, "").strip()
    if not found:
        words = f"profile {profile.name} is billed by the API key in {profile.api_key_env}, which is not set"
        raise AccountError(f"{words}; export it, or change the profile")
    return found


API_KEYS: Mapping[str, str] = {
    "claude": "ANTHROPIC_API_KEY",
    "codex": "OPENAI_API_KEY",
    "gemini": "GEMINI_API_KEY",
}


def key_name(profile: Profile) -> str:
    """The variable in which the runtime looks for a key. Yours may have a name that says what it is for."""
    return API_KEYS.get(profile.runtime, profile.api_key_env)


def check_names(profile: Profile, names: Iterable[str], values: Iterable[str]) -> None:
    """UsageError if the project's file would have another account used than the profile names."""
    own = credential_variables(profile.runtime)
    for key, found in (("guard.env", names), ("agent.env", values)):
        for name in sorted(own.intersection(found)):
            words = (
                f"{key} names {name}, which decides whose account is used; profile {profile.name} does that"
            )
            raise UsageError(f"{words}. Take it out of {key}, or run without account.profile")


_LARGEST = 64 << 20
"""Claude Code keeps much else in that file."""


def verify_login(profile: Profile, ambient: Mapping[str, str]) -> str:
    """Whose account agents under this profile will use, looked at now. AccountError if it is not the one
    that the profile names, or if nobody can tell."""
    if profile.billing == "api-key":
        api_key(profile, ambient)
    if not profile.identity:
        return f"API key in {profile.api_key_env}"
    file, found = login_names(profile, ambient)
    if _plain(profile.identity) in map(_plain, found):
        return profile.identity
    who = " and ".join(found) or "nobody"
    words = f"profile {profile.name} is for {profile.identity}, and {file} says {who} is logged in"
    raise AccountError(f"{words}; log in as {profile.identity} there, or run under another profile")


def _plain(identity: str) -> str:
    return identity.strip().casefold()


def login_names(profile: Profile, ambient: Mapping[str, str]) -> tuple[Path, list[str]]:
    """The file that says it, and every name that the account logged in there goes by."""
    if profile.runtime not in _READERS:
        raise AccountError(f"profile {profile.name}: nobody can tell who a {profile.runtime} is logged in as")
    place, read = _READERS[profile.runtime]
    home = Path(ambient.get("HOME") or os.path.expanduser("~"))
    file = place(profile.folder, home)
    try:
        found = read(_read_json(file))
    except (KeyError, TypeError, AttributeError, IndexError, ValueError) as error:
        raise AccountError(f"profile {profile.name}: cannot tell from {file} who is logged in") from error
    return file, [name for name in found if isinstance(name, str) and name.strip()]


def _read_json(file: Path) -> Any:
    try:
        with file.open("rb") as opened:
            return json.loads(opened.read(_LARGEST))
    except FileNotFoundError:
        raise AccountError(f"nobody is logged in: there is no {file}; log in first") from None
    except (OSError, ValueError, RecursionError) as error:
        # Not the error itself: it may quote the file, which has secrets.
        raise AccountError(f"cannot read {file} ({type(error).__name__}); log in again") from None


def _claude_file(folder: Path | None, home: Path) -> Path:
    return (folder or home) / ".claude.json"


def _codex_file(folder: Path | None, home: Path) -> Path:
    return (folder or home / ".codex") / "auth.json"


def _gemini_file(folder: Path | None, home: Path) -> Path:
    return (folder or home) / ".gemini" / "google_accounts.json"


def _opencode_file(folder: Path | None, home: Path) -> Path:
    return (folder or home / ".local" / "share") / "opencode" / "auth.json"


def _claude_names(document: Any) -> list[Any]:
    return [document["oauthAccount"]["emailAddress"]]


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


def _gemini_names(document: Any) -> list[Any]:
    return [document["active"]]


def _opencode_names(document: Any) -> list[Any]:
    found = []
    for provider, login in document.items():
        account = login.get("accountId") or login.get("accountID")
        found += [provider, f"{provider}:{account}"] if account else [provider]
    return found


_Place = Callable[[Path | None, Path], Path]
_READERS: Mapping[str, tuple[_Place, Callable[[Any], list[Any]]]] = {
    "claude": (_claude_file, _claude_names),
    "codex": (_codex_file, _codex_names),
    "gemini": (_gemini_file, _gemini_names),
    "opencode": (_opencode_file, _opencode_names),
}
