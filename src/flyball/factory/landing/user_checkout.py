"""The user's own checkout of the default branch, brought along when the branch has moved.

flyball moves the branch, not the checkout. The checkout then follows, and uncommitted work in it stays as it
is to the byte, as with ``git switch``. Where a person has changed the very files that landed, the index is
brought along and those files are left as they are: they show as changed, and a commit of anything else takes
nothing back. That is said.

Between the two steps a checkout stands at an older commit than its branch. git knows nothing of that, so a
small note beside the ledger remembers where it stands, and the next landing, or the next run, tries again.

An uncommitted edit of the landed task's own file keeps nothing back, where closing it as it lies there gives
just what has landed: nothing of it is lost.
"""

from __future__ import annotations

import contextlib
import json
import os
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from flyball.factory.git.git import Git, format_paths
from flyball.factory.git.repository import Repository
from flyball.factory.tasks.front_matter import MalformedError
from flyball.factory.tasks.task_text import close_text
from flyball.host.atomic_file import replace_file

NOTE = "checkout.json"


@dataclass(frozen=True, slots=True)
class StaleCheckout:
    """A checkout whose files stand at an older commit than its branch."""

    path: Path
    at: str


class UserCheckout:
    """Where the default branch is checked out, if anywhere outside the factory."""

    def __init__(
        self, repository: Repository, state: Path, *, tasks_folder: str | None, worktrees: Path
    ) -> None:
        """``worktrees``: the factory's own, which no person works in."""
        self._repository, self._note, self._worktrees = repository, state / NOTE, worktrees
        self._tasks = f"{tasks_folder.rstrip('/')}/" if tasks_folder else None

    def behind(self) -> StaleCheckout | None:
        try:
            found = json.loads(self._note.read_text(encoding="utf-8"))
            return StaleCheckout(Path(found["path"]), found["at"])
        except (OSError, ValueError, KeyError, TypeError):
            return None

    def was_at(self, commit: str) -> bool:
        """Does git's log of a person's checkout say that it was at this commit? Where there is no such log,
        that cannot be told, and counts as yes."""
        logs = self._repository.head_logs(outside=self._worktrees)
        return not logs or any(f" {commit} " in log for log in logs)

    def before_moving(self, tip: str) -> None:
        """Remember where the checkout stands; called before the branch moves away from ``tip``."""
        path, known = self._path(), self.behind()
        if path is None:
            return
        # Behind already, unless its owner has brought it here meanwhile.
        if known is not None and known.path == path and not _has_followed(Git(path), known.at, tip):
            return
        replace_file(self._note, json.dumps({"path": str(path), "at": tip}).encode())

    def _path(self) -> Path | None:
        return self._repository.checked_out(self._repository.default, outside=self._worktrees)

    def follow(self) -> str:
        """Bring the files to where the branch is. Words about a checkout that was left alone, else empty."""
        behind = self.behind()
        if behind is None:
            return ""
        to = self._repository.tip(self._repository.default)
        if self._path() != behind.path or to in (None, behind.at):
            self._forget()
            return ""
        return self._brought(Git(behind.path), behind, str(to))

    def _brought(self, git: Git, behind: StaleCheckout, to: str) -> str:
        git.run("update-index", "-q", "--refresh")
        if _has_followed(git, behind.at, to):
            self._forget()
            return ""
        moved = set(_differ(git, behind.at, to))
        # What the owner deleted counts too: git would bring it back without a word.
        changed = {path for path in _differ(git, behind.at) if path in moved}
        for path in moved:
            here = git.folder / path
            if not git.ok("cat-file", "-e", f"{behind.at}:{path}") and (here.is_symlink() or here.exists()):
                changed.add(path)
        # Tasks that landed in just the form which closing them here gives.
        aside = {path: text for path in changed if (text := self._lands_as_it_is(git, path, to)) is not None}
        mine = sorted(changed - aside.keys())
        for path in aside:
            self._take_away(git, path, behind.at)
        for path in mine:
            if not _is_partly_staged(git, path, behind.at):
                _set_entry(git, path, to)
        # Of two trees git takes what differs, and refuses all of it where that would cost a local change. For
        # the owner's own files there is nothing to take: the index has what landed, the files are theirs.
        done = git.run("read-tree", "-m", "-u", _with_entries(git, behind.at, mine, to), to)
        if done.ok:
            self._forget()
            return self._own_work_words(behind, mine) if mine else ""
        for path, text in aside.items():
            (behind.path / path).write_bytes(text)
        why = (done.err.strip().splitlines() or ["git does not say why"])[-1].removeprefix("error: ")
        way = "do not commit there before that is mended; the next landing or run tries again"
        return f"the files in {behind.path} could not be brought to what has landed: {why}; {way}"

    def _lands_as_it_is(self, git: Git, path: str, to: str) -> bytes | None:
        """The text of a task here, if closing it gives just what ``to`` has."""
        if self._tasks is None or not path.startswith(self._tasks):
            return None
        text = _text(git.folder / path)
        landed = git.run("cat-file", "blob", f"{to}:{path}")
        try:
            lands = text is not None and landed.ok and close_text(text) == landed.out
        except (MalformedError, ValueError):
            return None
        return text if lands else None

    def _take_away(self, git: Git, path: str, at: str) -> None:
        if git.ok("cat-file", "-e", f"{at}:{path}"):
            git.run("checkout", "--quiet", at, "--", path)
        else:
            git.run("rm", "--quiet", "--cached", "--ignore-unmatch", "--", path)
            (git.folder / path).unlink(missing_ok=True)

    def _own_work_words(self, behind: StaleCheckout, mine: list[str]) -> str:
        """The way shown adds what landed to the owner's text, removes nothing, and refuses binary files."""
        texts = f"git show {behind.at[:12]}:FILE > FILE.before; git show HEAD:FILE > FILE.landed"
        add = f"{texts}; git merge-file FILE FILE.before FILE.landed"
        what = f"{behind.path} has uncommitted work in what has landed too ({format_paths(mine[:5])})"
        stay = "those files stay as you left them and lack what has landed in them"
        return f"{what}; {stay}: git diff HEAD shows it before you commit them, {add} adds it"

    def _forget(self) -> None:
        with contextlib.suppress(FileNotFoundError):
            self._note.unlink()


def _differ(git: Git, *commits: str) -> list[str]:
    """Tracked paths that differ between two commits, or between one and the files here."""
    return git.lines("diff", "-z", "--no-renames", "--name-only", *commits, "--")


def _is_partly_staged(git: Git, path: str, at: str) -> bool:
    """Is something staged that is neither in the file nor in a commit? It would be lost."""
    staged = not git.ok("diff", "--cached", "--quiet", at, "--", f":(literal){path}")
    return staged and not git.ok("diff", "--quiet", "--", f":(literal){path}")


def _set_entry(git: Git, path: str, commit: str, env: Mapping[str, str] | None = None) -> None:
    """Have the index say of one file what a commit says. The file itself is not touched."""
    entry = git.run("ls-tree", "-z", "--full-tree", commit, "--", f":(literal){path}").out
    text = entry if entry.strip(b"\0") else b"0 " + b"0" * 40 + b"\t" + os.fsencode(path) + b"\0"
    git("update-index", "-z", "--index-info", env=env, stdin=text)


def _with_entries(git: Git, tree: str, paths: Sequence[str], commit: str) -> str:
    """A tree that is ``tree`` but for these paths, which are as in ``commit``."""
    if not paths:
        return tree
    with tempfile.TemporaryDirectory() as folder:
        index = {"GIT_INDEX_FILE": str(Path(folder) / "index")}
        git("read-tree", tree, env=index)
        for path in paths:
            _set_entry(git, path, commit, index)
        return git("write-tree", env=index)


def _has_followed(git: Git, at: str, to: str) -> bool:
    """Does what git takes for the state of the files have everything that came after ``at``?"""
    staged = git.run("diff", "-z", "--no-renames", "--cached", "--name-only", to, "--")
    moved = git.run("diff", "-z", "--no-renames", "--name-only", at, to, "--")
    lacks = set(moved.out.split(b"\0")) & set(staged.out.split(b"\0")) - {b""}
    return not moved.ok or (staged.ok and not lacks)


def _text(path: Path) -> bytes | None:
    try:
        return path.read_bytes() if not path.is_symlink() else None
    except OSError:
        return None
