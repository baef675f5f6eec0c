"""What a repository gives away about itself: how it is tested, and what a fresh checkout needs first.

Guesses, for a person to look at in ``flyball init`` before anything is written. Files that cannot be read say
nothing.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

OnPath = Callable[[str], object]
"""Is there a program of this name? ``shutil.which`` answers."""

AGENTS = ("claude", "codex", "gemini", "opencode")
_LARGEST = 1 << 20
_TARGETS = re.compile(r"([\w. /-]+):(?!=)", re.ASCII)
_NPM_HAS_NONE = "no test specified"
_LOCKS = {
    "pnpm-lock.yaml": ("pnpm", "pnpm install --frozen-lockfile"),
    "yarn.lock": ("yarn", "yarn install"),
    "package-lock.json": ("npm", "npm ci"),
}


def guess_runtime(on_path: OnPath) -> str:
    """The first known agent that is installed; claude if none is."""
    return next((name for name in AGENTS if on_path(name)), AGENTS[0])


def guess_gate(root: Path, on_path: OnPath) -> list[str]:
    """The commands that test this repository. A Makefile speaks for the whole of it."""
    targets = _make_targets(root)
    for target in ("test", "check"):
        if target in targets:
            return [f"make {target}"]
    return list(_by_language(root, on_path))


def guess_bootstrap(root: Path) -> list[str]:
    """What must run in a new worktree before anything works there: git brings no installed packages."""
    return [install for file, (_, install) in _LOCKS.items() if (root / file).is_file()][:1]


def _by_language(root: Path, on_path: OnPath) -> Iterator[str]:
    if _has_npm_test(root):
        yield next(
            (f"{tool} test" for file, (tool, _) in _LOCKS.items() if (root / file).is_file()), "npm test"
        )
    if _has_pytest(root):
        yield f"{'python' if on_path('python') else 'python3'} -m pytest -q"
    if (root / "Cargo.toml").is_file():
        yield "cargo test"
    if (root / "go.mod").is_file():
        yield "go test ./..."


def _make_targets(root: Path) -> set[str]:
    # In the order in which make itself looks.
    texts = (_text(root / name) for name in ("GNUmakefile", "makefile", "Makefile"))
    found = (_TARGETS.match(line) for line in next(filter(None, texts), "").splitlines())
    return {target for match in found if match for target in match[1].split()}


def _has_npm_test(root: Path) -> bool:
    try:
        package: Any = json.loads(_text(root / "package.json") or "{}")
        script = package["scripts"]["test"]
    except (ValueError, KeyError, TypeError, RecursionError):
        return False
    return isinstance(script, str) and bool(script.strip()) and _NPM_HAS_NONE not in script


def _has_pytest(root: Path) -> bool:
    named = any("pytest" in _text(root / name) for name in ("pyproject.toml", "setup.cfg", "tox.ini"))
    return named or any(
        (root / name).is_file() for name in ("pytest.ini", "conftest.py", "tests/conftest.py")
    )


def _text(path: Path) -> str:
    try:
        with path.open("rb") as file:
            return file.read(_LARGEST).decode("utf-8", "replace")
    except OSError:
        return ""
