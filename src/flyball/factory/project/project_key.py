"""Which project this is, wherever its clones are: two clones of one origin are one project.

    the address of origin, without user, password and scheme; without an origin, the first commit
    the project's folder in the repository


An origin that is a folder here is looked into: what it is a clone of decides, or its own first commit. So a
clone, the repository that it was cloned from, and a copy of either are one project too. The id in
``flyball.toml`` says nothing here: a second clone has to have another one where both are registered.
"""

from __future__ import annotations

import hashlib
import re
from pathlib import Path

from flyball.factory.git.git import Git

_SCP = re.compile(r"^(?:[^/@]+@)?([^/:]+):(?!//)(.*)$")
_DEPTH = 5


def project_key(root: Path) -> str:
    """Short, the same for every clone, and nothing that could be read back."""
    found = Git(root).run("rev-parse", "--show-prefix")
    inside = found.out.decode("utf-8", "replace").strip() if found.ok else ""
    return hashlib.sha256(f"{_origin(root)}\n{inside}".encode()).hexdigest()[:16]


def normalize_address(address: str) -> str:
    """A remote's address as far as it says which repository it is.

    >>> normalize_address("https://me:secret@GitHub.com/team/blog.git/")
    'github.com/team/blog'
    >>> normalize_address("git@github.com:team/blog.git"), normalize_address("ssh://git@github.com:22/team/blog")
    ('github.com/team/blog', 'github.com/team/blog')
    """
    scheme, separator, rest = address.strip().partition("://")
    if separator:
        host, _, path = rest.partition("/")
        host = host.rpartition("@")[2]
        host = host if scheme == "file" else host.partition(":")[0]
    elif found := _SCP.match(address.strip()):
        host, path = found[1], found[2]
    else:
        return address.strip()
    return f"{host.lower()}/{path.strip('/').removesuffix('.git')}"


def _origin(folder: Path, depth: int = _DEPTH) -> str:
    git = Git(folder)
    found = git.run("remote", "get-url", "origin")
    address = found.out.decode("utf-8", "replace").strip() if found.ok else ""
    if address:
        path = folder / Path(address.removeprefix("file://")).expanduser()
        return _origin(path, depth - 1) if depth and path.is_dir() else normalize_address(address)
    first = git.run("rev-list", "--max-parents=0", "HEAD")
    commits = sorted(first.out.decode().split()) if first.ok else []
    return commits[0] if commits else str(folder.resolve())
