"""Which paths no agent may change, because they decide what agents may do next.

Patterns are as people write them, from the project's root: ``secrets`` and ``secrets/`` are the path and all
beneath it, ``*`` and ``?`` stay within a name, and ``**`` crosses folders. Case, Unicode form and letters
without a shape are ignored, because some file systems ignore them too: ``.GitHub/workflows/x`` is the same
file as ``.github/workflows/x`` on a Mac.

A symlink can change what a path means and leave the path alone. So it is refused where it leads into a
protected place or out of the repository, and where it stands in the place of a folder above one. A submodule
is a folder of another repository's making, and is refused there too.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import lru_cache
from posixpath import dirname, normpath

DEFAULT_PROTECTED: tuple[str, ...] = (
    # What agents are told, and what they run with.
    "**/CLAUDE.md",
    "**/CLAUDE.local.md",
    "**/AGENTS.md",
    "**/AGENTS.override.md",
    "**/GEMINI.md",
    "**/MEMORY.md",
    "**/.claude/",
    "**/.codex/",
    "**/.gemini/",
    "**/.opencode/",
    "**/.agents/",
    "**/.cursor/",
    "**/.cursorrules",
    "**/.windsurfrules",
    "**/.mcp.json",
    "**/opencode.json",
    "**/opencode.jsonc",
    # Flyball's own, and the tasks.
    "flyball.toml",
    "tasks/",
    ".flyball/",
    ".beads/",
    # What runs elsewhere as soon as it is pushed.
    ".github/",
    ".gitlab/",
    ".gitlab-ci.yml",
    ".gitea/",
    ".forgejo/",
    ".circleci/",
    ".buildkite/",
    ".woodpecker/",
    ".woodpecker.yml",
    ".woodpecker.yaml",
    ".drone.yml",
    ".travis.yml",
    "bitbucket-pipelines.yml",
    ".ci/",
    "Jenkinsfile",
    "azure-pipelines.yml",
    "**/CODEOWNERS",
    # What runs here when a person commits, opens the folder or enters it.
    ".githooks/",
    ".husky/",
    "hooks/",
    "lefthook.yml",
    "lefthook.yaml",
    ".lefthook.yml",
    ".lefthook.yaml",
    "**/.pre-commit-config.yaml",
    "**/.vscode/",
    "**/.devcontainer/",
    "**/.devcontainer.json",
    "**/.envrc",
    "**/.env",
    "**/mise.toml",
    "**/.mise.toml",
    "**/.tool-versions",
    "**/.npmrc",
    # What git makes of files.
    "**/.gitignore",
    "**/.gitattributes",
    ".gitmodules",
    "**/.lfsconfig",
)


def protected_among(
    paths: Iterable[str],
    patterns: Sequence[str],
    links: Mapping[str, str] | None = None,
    *,
    submodules: Collection[str] = (),
) -> list[tuple[str, str]]:
    """Changed paths that are protected, each with its pattern.

    ``links`` says where changed symlinks point; empty for what is none. ``submodules`` are changed paths that
    stand for a commit of another repository.
    """
    found = []
    for path in paths:
        match = _match(path, patterns)
        target = (links or {}).get(path)
        if match is None and target:
            match = _link_match(path, target, patterns)
        if match is None and path in submodules:
            match = _above(path, patterns)
        if match is not None:
            found.append((path, match))
    return found


def _match(path: str, patterns: Sequence[str]) -> str | None:
    plain = _plain(path)
    return next((pattern for pattern in patterns if _compile(pattern).fullmatch(plain)), None)


def _link_match(path: str, target: str, patterns: Sequence[str]) -> str | None:
    to = normpath(f"{dirname(path)}/{target}".lstrip("/")) if not target.startswith("/") else target
    if to.startswith(("/", "../")) or to == "..":
        return "a symlink out of the repository"
    return _match(to, patterns) or _above(path, patterns)


def _above(path: str, patterns: Sequence[str]) -> str | None:
    """A pattern to which a path leads, if it is a folder or a link to one."""
    plain = _plain(path)
    return next(
        (pattern for pattern in patterns if any(way.fullmatch(plain) for way in _ways(pattern))), None
    )


def _plain(path: str) -> str:
    if path.isascii():
        return path.casefold()
    folded = unicodedata.normalize("NFC", unicodedata.normalize("NFD", path).casefold())
    return "".join(char for char in folded if unicodedata.category(char) != "Cf")


@lru_cache(maxsize=1024)
def _compile(pattern: str) -> re.Pattern[str]:
    """
    >>> bool(_compile("secrets").fullmatch("secrets/a/b")), bool(_compile("*.pem").fullmatch("x/k.pem"))
    (True, False)
    """
    # Always the path itself too: a file or a link may take a folder's place.
    return re.compile(_expression(_without_root(pattern)) + "(/.*)?", re.DOTALL)


@lru_cache(maxsize=1024)
def _ways(pattern: str) -> tuple[re.Pattern[str], ...]:
    """The folders above what a pattern protects.

    Those that may be anywhere are none: what lies behind a link there has a path of its own, and the pattern
    meets that as well.

    >>> [way.pattern for way in _ways("a/b/c")], _ways("**/CLAUDE.md")
    (['a', 'a/b'], ())
    """
    names = _without_root(pattern).split("/")
    ways = ["/".join(names[:count]) for count in range(1, len(names))]
    return tuple(re.compile(_expression(way), re.DOTALL) for way in ways if way != "**")


def _without_root(pattern: str) -> str:
    return _plain(pattern).removeprefix("./").strip("/")


def _expression(text: str) -> str:
    pieces = re.split(r"(\*\*/?|\*|\?)", text)
    return "".join(_GLOBS.get(piece, re.escape(piece)) for piece in pieces)


_GLOBS = {"**/": "(?:.*/)?", "**": ".*", "*": "[^/]*", "?": "[^/]"}
