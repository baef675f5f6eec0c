"""What an agent finds in its environment: built up from nothing, never what is left after taking away.

    harmless     PATH, HOME, the terminal, language and time zone, XDG_*, but for names like secrets
    needed       proxies and certificates: without them nothing on some networks can be reached
    named        what the profile, ``guard.env`` and ``agent.env`` name
    flyball's    where its state is: FLYBALL_HOME, FLYBALL_URL, FLYBALL_HOST_ID
    the login's  under a profile: its folder, and its API key where it is billed by key. Nothing else that
                 decides whose account is used, whatever names it.

Of the first two and flyball's own, an address with a password in it, or with anything that may be one, stays
out all the same: what needs it is given it by name. The key of ``flyball batch`` stays out whatever names it:
only a person sends a batch.

Without a profile it is not said whose account to use. Then the variables of the runtime's own provider pass,
as they would without flyball: ``ANTHROPIC_*`` for claude and so on.

The gate and the bootstrap run what agents wrote, too. They get the same but for the login's, and where the
tools of a project are installed.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

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
_ADDRESSES = frozenset(
    name for name in (*_NEEDED, "FLYBALL_URL") if name.upper().endswith(("_PROXY", "_URL"))
)
_NEVER = re.compile(r"FLYBALL_BATCH_")
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
    ambient = _without_batch_keys(ambient)
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
    ambient = _without_batch_keys(ambient)
    return {key: value for key, value in ambient.items() if key in named or _passes(key, value)}


def _without_batch_keys(ambient: Mapping[str, str]) -> Mapping[str, str]:
    return {key: value for key, value in ambient.items() if not _NEVER.match(key)}


def _passes(key: str, value: str) -> bool:
    # A proxy may be named without a scheme: ``me:s3cret@proxy:3128``.
    if ("://" in value or key in _ADDRESSES) and redacted(value) != value:
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
