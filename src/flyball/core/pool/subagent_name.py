"""The name of a subagent's lease says whose it is: ``claude-4121 > subagent Explore``."""

from __future__ import annotations

from flyball.core.pool.settings import NAME_LIMIT

_MARK = " > subagent "


def subagent_name(parent: str, kind: str) -> str:
    """
    >>> subagent_name("claude-4121", "Explore")
    'claude-4121 > subagent Explore'
    """
    own = f"{_MARK}{kind}"
    return f"{parent[: NAME_LIMIT - len(own)]}{own}"


def parse_subagent_name(name: str) -> tuple[str, str] | None:
    """The parent's name and the subagent's kind; None for the name of anything else.

    >>> parse_subagent_name("claude-4121 > subagent Explore"), parse_subagent_name("t-14")
    (('claude-4121', 'Explore'), None)
    """
    parent, mark, kind = name.rpartition(_MARK)
    return (parent, kind) if mark else None
