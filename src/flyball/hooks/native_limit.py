"""The bound on subagents that a runtime has itself, for agents that flyball starts and cannot look into.

An agent whose calls are not counted one by one holds one slot, and each subagent of it calls besides. Where
the hooks count these, the pool bounds them. Where nothing does, the agent is told how many it may have: by
the pool's setting ``subagents``, and none below these. What a person has set already stays.
"""

from __future__ import annotations

from collections.abc import Mapping

from flyball.errors import FlyballError

AT_ONCE = "CLAUDE_CODE_MAX_CONCURRENT_SUBAGENTS"
DEPTH = "CLAUDE_CODE_MAX_SUBAGENT_SPAWN_DEPTH"


def bound_variables(runtime: str, most: int, env: Mapping[str, str]) -> dict[str, str]:
    """What to add to the environment of such an agent.

    >>> bound_variables("claude", 2, {"CLAUDE_CODE_MAX_SUBAGENT_SPAWN_DEPTH": "3"})
    {'CLAUDE_CODE_MAX_CONCURRENT_SUBAGENTS': '2'}
    """
    wanted = {AT_ONCE: str(most), DEPTH: "1"} if runtime == "claude" else {}
    return {name: value for name, value in wanted.items() if name not in env}


def are_counted(runtime: str, env: Mapping[str, str]) -> bool:
    """Do hooks of ours count its subagents?"""
    if runtime != "claude" or env.get("FLYBALL_HOOKS") == "off":
        return False
    from flyball.hooks.registry import load_hooks

    hooks = load_hooks(runtime)
    try:
        # Every `flyball exec` asks, and most people have none: what reads them is loaded where some are.
        if b"flyball.hooks" not in hooks.settings_path(env).read_bytes():
            return False
    except OSError:
        return False
    from flyball.hooks.installation import read_installed

    try:
        installed = read_installed(hooks, env)
        return installed is not None and not installed.lost and not hooks.hint(env)
    except FlyballError:
        return False
