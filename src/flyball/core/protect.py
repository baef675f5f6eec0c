"""Which paths no agent may change: whoever changes them decides what agents may do next.

Patterns are as people write them: a trailing ``/`` means the subtree, ``*`` and ``?`` stay within a name, and
``**`` crosses folders. Case, Unicode form and letters without a shape are ignored, because some file systems
ignore them too: ``.GitHub/workflows/x`` is the same file as ``.github/workflows/x`` on a Mac.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from posixpath import dirname, normpath

DEFAULT_PROTECTED: tuple[str, ...] = (
    "**/CLAUDE.md",
    "**/AGENTS.md",
    "**/GEMINI.md",
    "**/MEMORY.md",
    "flyball.toml",
    "tasks/",
    ".flyball/",
    "**/.claude/",
    "**/.codex/",
    "**/.gemini/",
    "**/.opencode/",
    "opencode.json",
    ".beads/",
    ".github/",
    ".gitlab/",
    ".gitlab-ci.yml",
    ".circleci/",
    ".ci/",
    "Jenkinsfile",
    "azure-pipelines.yml",
    "**/CODEOWNERS",
    ".githooks/",
    ".husky/",
    "hooks/",
    "**/.gitignore",
    "**/.gitattributes",
    ".gitmodules",
    "**/.envrc",
    ".pre-commit-config.yaml",
)


def protected_among(
    paths: Iterable[str], patterns: Sequence[str], links: Mapping[str, str] | None = None
) -> list[tuple[str, str]]:
    """Changed paths that are protected, each with its pattern.

    ``links`` says where changed symlinks point: one that leads into a protected place, or out of the
    repository altogether, is as good as the place itself.
    """
    found = []
    for path in paths:
        match = _match(path, patterns)
        target = (links or {}).get(path)
        if match is None and target is not None:
            match = _link_match(path, target, patterns)
        if match is not None:
            found.append((path, match))
    return found


def _match(path: str, patterns: Sequence[str]) -> str | None:
    plain = _plain(path)
    return next((pattern for pattern in patterns if _compiled(pattern).fullmatch(plain)), None)


def _link_match(path: str, target: str, patterns: Sequence[str]) -> str | None:
    to = normpath(f"{dirname(path)}/{target}".lstrip("/")) if not target.startswith("/") else target
    if to.startswith(("/", "../")) or to == "..":
        return "a symlink out of the repository"
    inside = [pattern for pattern in patterns if pattern.endswith("/")]
    return _match(to, patterns) or _match(f"{to}/x", inside)


def _plain(path: str) -> str:
    if path.isascii():
        return path.casefold()
    folded = unicodedata.normalize("NFC", unicodedata.normalize("NFD", path).casefold())
    return "".join(char for char in folded if unicodedata.category(char) != "Cf")


@lru_cache(maxsize=1024)
def _compiled(pattern: str) -> re.Pattern[str]:
    """
    >>> bool(_compiled("secrets/").fullmatch("secrets/a/b")), bool(_compiled("*.pem").fullmatch("x/k.pem"))
    (True, False)
    """
    text = _plain(pattern).removeprefix("./").lstrip("/")
    subtree = text.endswith("/")
    pieces = re.split(r"(\*\*/?|\*|\?)", text.rstrip("/"))
    parts = [_GLOBS.get(piece, re.escape(piece)) for piece in pieces]
    # A protected folder is protected itself too: a file or a link may take its place.
    return re.compile("".join(parts) + ("(/.*)?" if subtree else ""), re.DOTALL)


_GLOBS = {"**/": "(?:.*/)?", "**": ".*", "*": "[^/]*", "?": "[^/]"}
