"""The user's own checkout of the default branch, brought along when the branch has moved.

flyball moves the branch, not the checkout. A clean checkout then follows; one with uncommitted work is left
exactly as it is, and that is said. Until it has followed, its files stand at an older commit than its branch.
git knows nothing of that, so a small note beside the ledger remembers at which, and the next landing, or the
next run, tries again.

Uncommitted edits of tasks do not keep a checkout back: people write tasks while others run. Nor does the
landed task's own file, where closing it as it lies there gives just what has landed: nothing of it is lost.
"""

from __future__ import annotations

import contextlib
import json
from dataclasses import dataclass
from pathlib import Path

from flyball.factory.git import Git
from flyball.factory.repository import Repository
from flyball.factory.tasks.front_matter import MalformedError
from flyball.factory.tasks.task_text import closed

NOTE = "checkout.json"


@dataclass(frozen=True, slots=True)
class Behind:
    """A checkout whose files stand at an older commit than its branch."""

    path: Path
    at: str


class UserCheckout:
    """Where the default branch is checked out, if anywhere outside the factory."""

    def __init__(self, repository: Repository, state: Path, *, tasks_folder: str | None) -> None:
        self._repository, self._note = repository, state / NOTE
        self._tasks = f"{tasks_folder.rstrip('/')}/" if tasks_folder else None

    def behind(self) -> Behind | None:
        try:
            found = json.loads(self._note.read_text(encoding="utf-8"))
            return Behind(Path(found["path"]), found["at"])
        except (OSError, ValueError, KeyError, TypeError):
            return None

    def before_moving(self, tip: str) -> None:
        """Remember where the checkout stands; called before the branch moves away from ``tip``."""
        path, known = self._repository.checked_out(self._repository.default), self.behind()
        if path is None:
            return
        # Behind already, unless its owner has brought it here meanwhile.
        if known is not None and known.path == path and not self._stands_at(Git(path), tip):
            return
        fresh = self._note.with_suffix(".new")
        fresh.write_text(json.dumps({"path": str(path), "at": tip}), encoding="utf-8")
        fresh.rename(self._note)

    def follow(self) -> str:
        """Bring the files to where the branch is. Words about a checkout that was left alone, else empty."""
        behind = self.behind()
        if behind is None:
            return ""
        to = self._repository.tip(self._repository.default)
        if self._repository.checked_out(self._repository.default) != behind.path or to in (None, behind.at):
            self._forget()
            return ""
        return self._brought(Git(behind.path), behind, str(to))

    def _brought(self, git: Git, behind: Behind, to: str) -> str:
        changed = self._changed(git, behind.at)
        if not all(self._harmless(git, path, behind.at, to) for path in changed):
            if not self._stands_at(git, to):
                return self._left_alone(behind, "has uncommitted work")
            self._forget()
            return ""
        if not changed and git.run("read-tree", "-m", "-u", behind.at, to).ok:
            self._forget()
            return ""
        # What is changed or in the way may be tasks that landed in just the form which closing them here
        # gives.
        moved = git.lines("diff", "-z", "--no-renames", "--name-only", behind.at, to, "--")
        aside = {path: text for path in moved if (text := self._lands_as_it_is(git, path, to)) is not None}
        for path in aside:
            self._take_away(git, path, behind.at)
        if git.run("read-tree", "-m", "-u", behind.at, to).ok:
            self._forget()
            return ""
        for path, text in aside.items():
            (behind.path / path).write_bytes(text)
        return self._left_alone(behind, "could not be updated")

    def _stands_at(self, git: Git, commit: str) -> bool:
        """Are its files and its index just what a commit has?"""
        git.run("update-index", "-q", "--refresh")
        return git.ok("diff", "--quiet", commit, "--") and git.ok("diff", "--quiet", "--cached", commit, "--")

    def _changed(self, git: Git, at: str) -> list[str]:
        """Tracked paths that differ from where the files should stand."""
        return git.lines("diff", "-z", "--no-renames", "--name-only", at, "--")

    def _harmless(self, git: Git, path: str, at: str, to: str) -> bool:
        if self._tasks is None or not path.startswith(self._tasks):
            return False
        same = git.ok("diff", "--quiet", at, to, "--", path)
        return same or self._lands_as_it_is(git, path, to) is not None

    def _lands_as_it_is(self, git: Git, path: str, to: str) -> bytes | None:
        """The text of a task here, if closing it gives just what ``to`` has."""
        if self._tasks is None or not path.startswith(self._tasks):
            return None
        text = _text(git.folder / path)
        landed = git.run("cat-file", "blob", f"{to}:{path}")
        try:
            lands = text is not None and landed.ok and closed(text) == landed.out
        except (MalformedError, ValueError):
            return None
        return text if lands else None

    def _take_away(self, git: Git, path: str, at: str) -> None:
        if git.ok("cat-file", "-e", f"{at}:{path}"):
            git.run("checkout", "--quiet", at, "--", path)
        else:
            git.run("rm", "--quiet", "--cached", "--ignore-unmatch", "--", path)
            (git.folder / path).unlink(missing_ok=True)

    def _left_alone(self, behind: Behind, why: str) -> str:
        branch = self._repository.default
        way = f"git read-tree -m -u {behind.at[:12]} HEAD"
        return f"{behind.path} {why}, so its files were left as they are; {branch} has moved on: {way}"

    def _forget(self) -> None:
        with contextlib.suppress(FileNotFoundError):
            self._note.unlink()


def _text(path: Path) -> bytes | None:
    try:
        return path.read_bytes() if not path.is_symlink() else None
    except OSError:
        return None
