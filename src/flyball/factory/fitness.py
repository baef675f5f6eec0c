"""May a branch land at all? Asked before anything is rebased or run, and again of what is to land; the same
for every way to land.

It is there and has changes. Nothing in it is protected: no path, no symlink, no submodule, whose commit is a
whole tree that nobody sees in the diff. Where the project asks for it, every commit is signed as it was made;
landing rebases, and what it commits again is signed only where git's own configuration says so. And where a
person lands it, nothing is left uncommitted: those edits are theirs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from flyball.core.protect import protected_among
from flyball.factory.git import named
from flyball.factory.inner_repositories import strangers
from flyball.factory.landed import Refused, Result
from flyball.factory.repository import BRANCHES, Changes, Repository
from flyball.factory.worktree import Worktrees

_NAMED = 5
_SUBMODULE = "a submodule"


@dataclass(frozen=True, slots=True, kw_only=True)
class Fitness:
    repository: Repository
    worktrees: Worktrees
    protected: Sequence[str]
    signed: bool = False
    submodules: bool = False

    def tip_of(self, task_id: str, *, recorded: str = "", by_hand: bool = False) -> str:
        """The commit to land; Refused says why there is none. ``recorded``: what its branch was made from."""
        branch = f"{BRANCHES}{task_id}"
        self.repository.check_plain(branch)
        tips = self.repository.tips(branch)
        if tips.branch is None:
            raise Refused(Result.ERROR, f"the branch {branch} is gone; flyball run starts anew")
        known = self.repository.base_among(tips).commit
        since = self.repository.own_since(tips.branch, known=known, recorded=recorded)
        self.check(branch, since, tips.branch)
        if by_hand:
            self._check_clean(task_id)
        return tips.branch

    def check(self, branch: str, base: str, tip: str, *, seen: str = "") -> None:
        """Of the commits between the two, wherever they come from: Refused if they must not land.

        ``seen``: a commit of ours that was found fit, with its task closed; only what differs from it is
        looked at.
        """
        changes = self.repository.changed(base, tip)
        if not changes.paths:
            words = "its branch changes nothing; make the task clearer, or close it"
            raise Refused(Result.NO_CHANGES, words)
        self._check_paths(branch, changes, tip, seen)
        if self.signed:
            self._check_signed(tip, base, seen)

    def check_laid(self, branch: str, base: str, laid: str, *, seen: str = "") -> None:
        """Of the very step that is to land: putting commits elsewhere may change what they come to."""
        self._check_paths(branch, self.repository.changed(base, laid), laid, seen)

    def _check_paths(self, branch: str, changes: Changes, tip: str, seen: str) -> None:
        paths = self._differing(changes, seen, tip) if seen else list(changes.paths)
        found = protected_among(paths, self.protected, changes.paths, submodules=changes.submodules)
        if not found and not self.submodules:
            found = [(path, _SUBMODULE) for path in paths if path in changes.submodules]
        if found:
            raise Refused(Result.PROTECTED, self._touches(found, branch))

    def _differing(self, changes: Changes, seen: str, tip: str) -> list[str]:
        plain = ("-z", "--name-only", "--no-renames", "--ignore-submodules=none")
        moved = set(self.repository.git.lines("diff", *plain, seen, tip, "--"))
        return [path for path in changes.paths if path in moved]

    def _touches(self, found: list[tuple[str, str]], branch: str) -> str:
        paths = named(path for path, _ in found[:_NAMED]) + (" and more" if len(found) > _NAMED else "")
        look = f"git diff {self.repository.default}...{branch} shows it; land it by hand or drop it"
        allow = ", or set merge.submodules = true" if found[0][1] == _SUBMODULE else ""
        return f"it changes {paths} (protected: {found[0][1]}); {look}{allow}"

    def _check_signed(self, tip: str, base: str, seen: str) -> None:
        git = self.repository.git
        commits = git("rev-list", tip, f"^{base}", *([f"^{seen}"] if seen else [])).split()
        bad = [commit for commit in commits if not git.ok("verify-commit", commit)]
        if bad:
            which = f"{len(bad)} of its {len(commits)} commits" if len(commits) > 1 else "its commit"
            words = f"{which} ({bad[-1][:12]}) has no good signature, and merge.signed asks for one"
            way = f"git rebase --exec 'git commit --amend --no-edit -S' {self.repository.default}"
            raise Refused(Result.UNSIGNED, f"{words}; sign it in its worktree: {way}, then flyball merge")

    def _check_clean(self, task_id: str) -> None:
        """An agent's end has just been gathered; what lies in a worktree that waited for a person is
        theirs."""
        path = self.worktrees.path(task_id)
        if not path.exists():
            return
        git = self.repository.git_in(path)
        inside = "dirty" if strangers(git) else "none"
        if git("status", "--porcelain", "--untracked-files=no", f"--ignore-submodules={inside}"):
            words = f"{path} has uncommitted changes; commit or drop them, then flyball merge {task_id}"
            raise Refused(Result.DIRTY, words)
