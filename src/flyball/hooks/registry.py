"""Which runtimes have hooks."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, cast

from flyball.errors import UsageError

if TYPE_CHECKING:
    from flyball.hooks.port import HookRuntime

NAMES = ("claude", "codex", "gemini", "opencode")


def load_hooks(name: str) -> HookRuntime:
    """The hooks of a runtime by its name."""
    if name not in NAMES:
        raise UsageError(f"there are no hooks for {name!r}; there are for {', '.join(NAMES)}")
    return cast("HookRuntime", getattr(import_module(f"flyball.hooks.{name}"), f"{name.capitalize()}Hooks")())
