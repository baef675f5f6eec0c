"""How a known agent is led through the gateway: by what it is told where to call, and only with a key.

    claude     ANTHROPIC_BASE_URL
    codex      -c openai_base_url=..., or -c model_providers.NAME.base_url=... for a provider of its config
    gemini     GOOGLE_GEMINI_BASE_URL
    opencode   provider.NAME.options.baseURL, in OPENCODE_CONFIG_CONTENT

An agent that runs with a subscription's login is left alone: that traffic goes to its provider and nowhere
else. So is one whose settings cannot be read, or lead to a cloud's own service (Bedrock, Vertex). Such an
agent holds a slot as long as it lives.

``find_route`` looks at the environment and the agent's own settings; ``AgentRoute.change`` says what to add
to the launch.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from pathlib import Path
from typing import Any

from flyball.errors import UsageError
from flyball.gateway.address import base_address
from flyball.gateway.environment import VENDORS, has_key
from flyball.gateway.no_proxy import spare_loopback

GATEWAY_VARIABLE = "FLYBALL_GATEWAY"
"""Set for every process whose calls the gateway counts, so that nothing else counts them again."""


class NoRoute(Enum):
    """Why an agent's calls are not led through the gateway."""

    LOGIN = "it runs with a login, and a login's calls go to its provider alone"
    NO_KEY = "its environment has no key"
    CLOUD = "it calls a cloud's own service"
    SETTINGS = "its settings do not say where it calls"
    UNKNOWN = "it is not an agent that is known"


@dataclass(frozen=True, slots=True)
class LaunchChange:
    """What is added to a launch."""

    variables: Mapping[str, str] = field(default_factory=dict)
    options: tuple[str, ...] = ()
    """Right behind the program's name."""


@dataclass(frozen=True, slots=True)
class AgentRoute:
    """Where an agent calls by itself, and how to say where it should."""

    bases: tuple[str, ...]
    _say: Callable[[Sequence[str]], LaunchChange]
    _around: Mapping[str, str] = field(default_factory=dict)
    """What its environment needs beside."""

    def change(
        self, gateway: str, *, project: str, name: str, pool: str | None = None, priority: int = 0
    ) -> LaunchChange:
        """``pool``: None leaves it to the provider's host."""
        led = [
            base_address(gateway, base, project=project, name=name, pool=pool, priority=priority)
            for base in self.bases
        ]
        said = self._say(led)
        return LaunchChange({**self._around, **said.variables, GATEWAY_VARIABLE: "1"}, said.options)


def find_route(
    runtime: str, argv: Sequence[str], env: Mapping[str, str], *, folder: Path | None = None
) -> AgentRoute | NoRoute:
    """How this launch would be led through the gateway; ``folder`` is where it runs."""
    finders = {"claude": _claude, "codex": _codex, "gemini": _gemini, "opencode": _opencode}
    finder = finders.get(runtime)
    if finder is None:
        return NoRoute.UNKNOWN
    try:
        found = finder(argv, env, folder or Path.cwd())
        if isinstance(found, AgentRoute):
            for base in found.bases:
                base_address("", base, project="-", name="-")
            found = replace(found, _around=spare_loopback(env))
    except (OSError, ValueError, UsageError, AttributeError, TypeError, RecursionError):
        # A settings file in a form that we do not understand: then we do not touch where it calls.
        return NoRoute.SETTINGS
    return found


def _by_variable(variable: str, base: str) -> AgentRoute:
    return AgentRoute((base,), lambda led: LaunchChange({variable: led[0]}))


_VENDORS = {vendor.name: vendor for vendor in VENDORS}


def _claude(_argv: Sequence[str], env: Mapping[str, str], _folder: Path) -> AgentRoute | NoRoute:
    vendor = _VENDORS["anthropic"]
    if any(env.get(f"CLAUDE_CODE_USE_{cloud}") for cloud in ("BEDROCK", "VERTEX", "FOUNDRY")):
        return NoRoute.CLOUD
    if env.get("CLAUDE_CODE_OAUTH_TOKEN"):
        return NoRoute.LOGIN
    if not has_key(vendor, env):
        return NoRoute.LOGIN
    return _by_variable(vendor.variable, env.get(vendor.variable) or vendor.base)


def _gemini(_argv: Sequence[str], env: Mapping[str, str], _folder: Path) -> AgentRoute | NoRoute:
    vendor = _VENDORS["google"]
    if env.get("GOOGLE_GENAI_USE_VERTEXAI"):
        return NoRoute.CLOUD
    settings = _read_json(_home(env, "GEMINI_CLI_HOME") / ".gemini" / "settings.json")
    chosen = settings.get("security", {}).get("auth", {}).get("selectedType")
    if chosen not in (None, "gemini-api-key"):
        return NoRoute.LOGIN
    if not has_key(vendor, env):
        return NoRoute.NO_KEY
    return _by_variable(vendor.variable, env.get(vendor.variable) or vendor.base)


# -- codex --------------------------------------------------------------------------------------------------


_BARE_KEY = re.compile(r"[A-Za-z0-9_-]+")


def _codex(argv: Sequence[str], env: Mapping[str, str], _folder: Path) -> AgentRoute | NoRoute:
    if any(_decides_provider(word) for word in argv):
        return NoRoute.SETTINGS
    home = Path(env["CODEX_HOME"]) if env.get("CODEX_HOME") else _home(env) / ".codex"
    config = _read_toml(home / "config.toml")
    if config.get("profile"):
        return NoRoute.SETTINGS
    provider = config.get("model_provider", "openai")
    terms = config.get("model_providers", {}).get(provider)
    if terms is not None:
        if not env.get(terms.get("env_key", "")) or not terms.get("base_url"):
            return NoRoute.NO_KEY
        if not _BARE_KEY.fullmatch(provider):
            return NoRoute.SETTINGS  # codex takes the dots and quotes of -c for something else
        return _by_option(f"model_providers.{provider}.base_url", terms["base_url"])
    if provider != "openai":
        return NoRoute.SETTINGS
    kept = _read_json(home / "auth.json")
    if kept.get("tokens") and not env.get("CODEX_API_KEY"):
        return NoRoute.LOGIN
    if not (env.get("CODEX_API_KEY") or kept.get("OPENAI_API_KEY")):
        return NoRoute.NO_KEY
    vendor = _VENDORS["openai"]
    base = config.get("openai_base_url") or env.get(vendor.variable) or vendor.base
    return _by_option("openai_base_url", base)


def _decides_provider(word: str) -> bool:
    return word in ("-p", "--profile", "--oss") or word.startswith(
        ("--profile=", "model_provider", "profile=", "openai_base_url")
    )


def _by_option(key: str, base: str) -> AgentRoute:
    return AgentRoute((base,), lambda led: LaunchChange(options=("-c", f"{key}={json.dumps(led[0])}")))


# -- opencode -----------------------------------------------------------------------------------------------

_OPENCODE_BASES = {
    "anthropic": "https://api.anthropic.com/v1",
    "openai": "https://api.openai.com/v1",
    "google": "https://generativelanguage.googleapis.com/v1beta",
}
_CONTENT = "OPENCODE_CONFIG_CONTENT"


def _opencode(_argv: Sequence[str], env: Mapping[str, str], folder: Path) -> AgentRoute | NoRoute:
    config = _opencode_config(env, folder)
    data = Path(env["XDG_DATA_HOME"]) if env.get("XDG_DATA_HOME") else _home(env) / ".local" / "share"
    logins = _read_json(data / "opencode" / "auth.json")
    bases: dict[str, str] = {}
    for name, usual in _OPENCODE_BASES.items():
        options = config.get("provider", {}).get(name, {}).get("options", {})
        kept = logins.get(name, {}).get("type")
        if kept not in (None, "api"):
            return NoRoute.LOGIN
        if options.get("apiKey") or kept == "api" or has_key(_VENDORS[name], env):
            bases[name] = options.get("baseURL") or usual
    if not bases:
        return NoRoute.NO_KEY
    before = json.loads(env.get(_CONTENT) or "{}")

    def say(led: Sequence[str]) -> LaunchChange:
        ours = {name: {"options": {"baseURL": address}} for name, address in zip(bases, led, strict=True)}
        return LaunchChange({_CONTENT: json.dumps(_merge(before, {"provider": ours}))})

    return AgentRoute(tuple(bases.values()), say)


def _opencode_config(env: Mapping[str, str], folder: Path) -> dict[str, Any]:
    """All of its settings files, the later over the earlier, as opencode itself reads them."""
    base = Path(env["XDG_CONFIG_HOME"]) if env.get("XDG_CONFIG_HOME") else _home(env) / ".config"
    files = [base / "opencode" / name for name in ("config.json", "opencode.json", "opencode.jsonc")]
    if env.get("OPENCODE_CONFIG"):
        files.append(Path(env["OPENCODE_CONFIG"]))
    for place in reversed((folder, *folder.parents)):
        files += [place / name for name in ("opencode.json", "opencode.jsonc")]
    config: dict[str, Any] = {}
    for file in files:
        config = _merge(config, _read_json(file))
    return _merge(config, json.loads(env.get(_CONTENT) or "{}"))


def _merge(old: dict[str, Any], new: dict[str, Any]) -> dict[str, Any]:
    both = {
        key: _merge(old[key], value)
        for key, value in new.items()
        if isinstance(value, dict) and isinstance(old.get(key), dict)
    }
    return {**old, **new, **both}


# -- settings files -----------------------------------------------------------------------------------------


def _home(env: Mapping[str, str], variable: str = "HOME") -> Path:
    return Path(env.get(variable) or env.get("HOME") or os.path.expanduser("~"))


def _read_toml(path: Path) -> dict[str, Any]:
    import tomllib  # only codex has such settings, and every waiting exec of an agent would hold it

    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}


_COMMENT = re.compile(r'"(?:\\.|[^"\\])*"|//[^\n]*|/\*.*?\*/', re.DOTALL)
_LAST_COMMA = re.compile(r'"(?:\\.|[^"\\])*"|,(?=\s*[}\]])', re.DOTALL)


def _read_json(path: Path) -> dict[str, Any]:
    """A settings file; comments and a comma behind the last entry are fine, as they are for the agents."""
    try:
        text = path.read_text(encoding="utf-8")
    except (FileNotFoundError, NotADirectoryError):
        return {}
    for pattern in (_COMMENT, _LAST_COMMA):
        text = pattern.sub(lambda found: found[0] if found[0].startswith('"') else "", text)
    read = json.loads(text or "{}")
    if not isinstance(read, dict):
        raise ValueError(f"{path} is not a table of settings")
    return read
