"""Which variables decide, for each runtime, whose account is used and where it is looked for.

A variable named here overrides a login. So under a profile none of them passes unless the profile itself
names it: a key that lies around in the environment must not spend anybody's money.
"""

from __future__ import annotations

from collections.abc import Mapping

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


def credentials_of(runtime: str) -> frozenset[str]:
    """Variables that override this runtime's login."""
    return frozenset((*_OWN[runtime], *([CONFIG_DIRS[runtime]] if runtime in CONFIG_DIRS else [])))


def provider_prefixes(runtime: str) -> tuple[str, ...]:
    """How a runtime's own variables begin; opencode and a command may use any provider."""
    return _PROVIDER.get(runtime, (*_EVERY, "OPENCODE_"))
