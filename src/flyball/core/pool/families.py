"""Which pool a call uses, by its model.

Providers limit models by family: a refused opus says nothing about haiku. Where a pool has families
(``flyball pool set anthropic --family opus=claude-opus-*``), the calls of each use a pool of their own,
``anthropic:opus``, with a cap, a breaker and windows of its own. All others stay in the pool itself.

Families whose models go by a common name need no pattern: ``--family opus``.

Without families a pool is the whole account, so that its cap bounds all of the account's calls together.
"""

from __future__ import annotations

from collections.abc import Mapping
from fnmatch import fnmatchcase

KNOWN_FAMILIES: Mapping[str, str] = {
    "opus": "*opus*",
    "sonnet": "*sonnet*",
    "haiku": "*haiku*",
    "pro": "gemini-*-pro*",
    "flash": "gemini-*-flash*",
    "mini": "*-mini*",
    "nano": "*-nano*",
    "codex": "*-codex*",
}
"""What vendors limit together, by the name that its models have in common."""


def family_pool(pool: str, families: Mapping[str, str], model: str) -> str:
    """The pool for a call of this model; families are tried in their order.

    >>> families = {"opus": "claude-opus-*", "haiku": "*haiku*"}
    >>> family_pool("anthropic", families, "claude-opus-4-5"), family_pool("anthropic", families, "sonnet")
    ('anthropic:opus', 'anthropic')
    """
    wanted = model.lower()
    for name, pattern in families.items():
        if wanted and fnmatchcase(wanted, pattern.lower()):
            return f"{pool}:{name}"
    return pool
