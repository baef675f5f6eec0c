"""The default branch here and origin's, brought together where both have commits of their own.

Neither is rewritten: a merge commit has both as its parents. It is made from nothing but these two, its date
included, so every process that asks gets the same commit, and nothing has to be kept or agreed on. It becomes
part of the default branch only below work that the gate saw green on top of it.

A task's file that is open on one side and the same, closed, on the other is not a clash: it is closed.
"""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from pathlib import Path

from flyball.errors import GitError
from flyball.factory.git.git import Git
from flyball.factory.tasks.front_matter import MalformedError
from flyball.factory.tasks.task_text import close_text

_CLASHES = 1
"""Exit status of ``git merge-tree``: it wrote a tree, and files in it clash."""


@dataclass(frozen=True, slots=True)
class OriginMerge:
    commit: str | None
    """Contains both; None where they clash."""
    clashing: tuple[str, ...] = ()


def merge_origin(
    git: Git, name: str, *, local: str, remote: str, tasks_folder: str | None = None
) -> OriginMerge:
    """One commit on top of the branch ``name`` here and at origin."""
    merged = git.run("merge-tree", "--write-tree", "-z", "--name-only", "--no-messages", local, remote)
    if merged.code not in (0, _CLASHES):
        raise GitError(
            f"cannot bring {name} and origin/{name} together: {merged.err.strip()}", output=merged.err
        )
    tree, *clashing = [part.decode("utf-8", "surrogateescape") for part in merged.out.split(b"\0") if part]
    settled = {path: _closed_blob(git, path, (local, remote), tasks_folder) for path in clashing}
    if left := tuple(path for path, blob in settled.items() if blob is None):
        return OriginMerge(None, left)
    if settled:
        tree = _with_blobs(git, tree, {path: blob for path, blob in settled.items() if blob})
    # The date of the newer parent: the same two always give the same commit.
    date = max(int(git("show", "--no-patch", "--format=%ct", each)) for each in (local, remote))
    dated = {"GIT_AUTHOR_DATE": f"{date} +0000", "GIT_COMMITTER_DATE": f"{date} +0000"}
    words = f"Merge origin/{name} into {name}"
    return OriginMerge(git("commit-tree", tree, "-p", local, "-p", remote, "-m", words, env=dated))


def _closed_blob(git: Git, path: str, sides: tuple[str, str], tasks_folder: str | None) -> str | None:
    """The blob of a task that is closed on one side and otherwise the same on the other."""
    if tasks_folder is None or not path.startswith(f"{tasks_folder.rstrip('/')}/"):
        return None
    blobs = [git.run("rev-parse", "--verify", "-q", f"{side}:{path}") for side in sides]
    texts = [git.run("cat-file", "blob", blob.text).out for blob in blobs if blob.ok]
    for blob, mine, other in zip(blobs, texts, reversed(texts), strict=False):
        try:
            if close_text(other) == mine:
                return blob.text
        except (MalformedError, ValueError):
            return None
    return None


def _with_blobs(git: Git, tree: str, blobs: dict[str, str]) -> str:
    with tempfile.TemporaryDirectory() as folder:
        index = {"GIT_INDEX_FILE": str(Path(folder) / "index")}
        git("read-tree", tree, env=index)
        for path, blob in blobs.items():
            git("update-index", "--add", "--cacheinfo", f"100644,{blob},{path}", env=index)
        return git("write-tree", env=index)
