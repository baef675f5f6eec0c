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
    return next((pattern for pattern in patterns if _compile(pattern).matches(plain)), None)


def _link_match(path: str, target: str, patterns: Sequence[str]) -> str | None:
    to = normpath(f"{dirname(path)}/{target}".lstrip("/")) if not target.startswith("/") else target
    if to.startswith(("/", "../")) or to == "..":
        return "a symlink out of the repository"
    return _match(to, patterns) or _above(path, patterns)


def _above(path: str, patterns: Sequence[str]) -> str | None:
    """A pattern to which a path leads, if it is a folder or a link to one."""
    plain = _plain(path)
    return next(
        (each for each in patterns if any(way.matches(plain, beneath=False) for way in _ways(each))), None
    )


def _plain(path: str) -> str:
    if path.isascii():
        return path.casefold()
    folded = unicodedata.normalize("NFC", unicodedata.normalize("NFD", path).casefold())
    return "".join(char for char in folded if unicodedata.category(char) != "Cf")


_WILDCARD = re.compile(r"(\*\*/|\*\*|\*|\?)")


class _Matcher:
    """A pattern ready to be compared with paths, in time that grows with the path's length alone.

    The positions in the pattern that what was read so far may lead to are the bits of one number; nothing
    backtracks, so neither a pattern with many wildcards nor a path that was made for it takes long.
    """

    def __init__(self, text: str) -> None:
        self._literals: dict[str, int] = {}
        self._one = self._name = self._any = self._next = self._past = 0
        """Positions that take one character of a name, any number of those, any number of any; and those from
        which the next, and the one behind a folder, is reached at once."""
        self._needed = ""
        at = 0
        for piece in _WILDCARD.split(text):
            if piece == "**/":
                self._next |= 1 << at | 1 << (at + 1)
                self._past |= 1 << at
                self._any |= 1 << (at + 1)
                self._take("/", at + 2)
                at += 3
            elif piece in ("*", "**"):
                self._next |= 1 << at
                if piece == "*":
                    self._name |= 1 << at
                else:
                    self._any |= 1 << at
                at += 1
            elif piece == "?":
                self._one |= 1 << at
                at += 1
            else:
                self._needed = max(self._needed, piece, key=len)
                for char in piece:
                    self._take(char, at)
                    at += 1
        self._end = 1 << at

    def _take(self, char: str, at: int) -> None:
        self._literals[char] = self._literals.get(char, 0) | 1 << at

    def matches(self, path: str, *, beneath: bool = True) -> bool:
        """Is the whole path meant, or, with ``beneath``, a folder that it lies in?"""
        if self._needed not in path:
            return False
        here = self._reach(1)
        for char in path:
            if char == "/" and beneath and here & self._end:
                return True
            step = (here & self._literals.get(char, 0)) << 1 | (here & self._any)
            if char != "/":
                step |= (here & self._one) << 1 | (here & self._name)
            if not step:
                return False
            here = self._reach(step)
        return bool(here & self._end)

    def _reach(self, here: int) -> int:
        while True:
            reached = here | (here & self._next) << 1 | (here & self._past) << 3
            if reached == here:
                return here
            here = reached


@lru_cache(maxsize=1024)
def _compile(pattern: str) -> _Matcher:
    """
    >>> _compile("secrets").matches("secrets/a/b"), _compile("*.pem").matches("x/k.pem")
    (True, False)
    """
    # Always the path itself too: a file or a link may take a folder's place.
    return _Matcher(_without_root(pattern))


@lru_cache(maxsize=1024)
def _ways(pattern: str) -> tuple[_Matcher, ...]:
    """The folders above what a pattern protects.

    Those that may be anywhere are none: what lies behind a link there has a path of its own, and the pattern
    meets that as well.

    >>> [way.matches("a/b", beneath=False) for way in _ways("a/b/c")], _ways("**/CLAUDE.md")
    ([False, True], ())
    """
    names = _without_root(pattern).split("/")
    ways = ["/".join(names[:count]) for count in range(1, len(names))]
    return tuple(_Matcher(way) for way in ways if way != "**")


def _without_root(pattern: str) -> str:
    return _plain(pattern).removeprefix("./").strip("/")
