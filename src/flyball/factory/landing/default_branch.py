"""The default branch, as a landing sees it: where it stands, where work goes, and how it is moved.

It moves by one compare-and-swap, from the commit that everything before was built on to one that contains it.
Where landings are pushed, origin is asked first: it is the one that may say no. The user's checkout follows.

Where origin has commits that the branch here has not, work goes on top of both: of origin's where that has
all of the branch here, else of a merge of the two (factory/git/origin_merge.py). A pull request is made of
origin's branch and the work, and nothing else.

People move it too, here and at origin, and that is fine. Only an agent's own commit must not come to stand
there without a landing: nothing is built on top of that, landed or pushed before a person has looked.

Whether a branch may land at all is asked before anything is rebased or run, and again of what is to land; it
is the same for every way to land. It is there and has changes. Nothing in it is protected: no path, no
symlink, no submodule, whose commit is a whole tree that the diff does not show. Where the project asks for
it, every commit is signed as it was made; landing rebases, and what it commits again is signed only where
git's own configuration says so. And where a person lands it, nothing is left uncommitted: those edits are
theirs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from flyball.core.tasks.protected_paths import protected_among
from flyball.core.tasks.task_run import LandingResult
from flyball.errors import GitError, UsageError, invariant
from flyball.factory.git.git import TIMEOUT_S, format_paths
from flyball.factory.git.repository import BRANCHES, Base, Repository, Tips, TreeChanges
from flyball.factory.git.workspace import Workspaces, untrusted_repositories
from flyball.factory.landing.result import Refused
from flyball.factory.landing.user_checkout import UserCheckout
from flyball.factory.state.ledger import Ledger

_NAMED = 5


class RuledOut(Refused):
    """Origin has a rule against these very commits; fewer of them may pass."""


class MovedError(UsageError):
    """It stands at a commit of an agent that no landing brought there."""


@dataclass(frozen=True, slots=True)
class DefaultBranch:
    repository: Repository
    checkout: UserCheckout
    ledger: Ledger
    push: bool = False

    @property
    def name(self) -> str:
        return self.repository.default

    def fetch_base(self, notes: list[str], *, must: bool | None = None) -> tuple[str, str]:
        """Where it stands, and where work goes that lands in it: the same, or with what origin has beyond it.

        ``must``: origin has to be reached; None: where landings are pushed.
        """
        self.fetch(notes, must=self.push if must is None else must)
        tips = self.repository.tips()
        self.check(tips)
        base = self.repository.base_among(tips)
        if base.clashing and self.push:
            raise Refused(LandingResult.DIVERGED, self._clash_words(base))
        if self.push and (own := self.own_commits(tips.remote, tips.local)):
            _note(notes, f"origin had not {own} of {self.name}; pushed with the landing")
        return self._choose_base(notes, tips, base)

    def _choose_base(self, notes: list[str], tips: Tips, base: Base) -> tuple[str, str]:
        if base.clashing:
            _note(notes, f"{self._clash_words(base)}; went on with {self.name} as it is here")
        return tips.local or base.commit, base.commit

    def _clash_words(self, base: Base) -> str:
        words = f"{self.name} and origin/{self.name} clash in {format_paths(base.clashing[:_NAMED])}"
        return f"{words}; bring them together (git pull --rebase in {self.repository.root})"

    def fetch(self, notes: list[str], *, must: bool, timeout_s: float = TIMEOUT_S) -> None:
        """Ask origin, where there is one, what it has."""
        if not self.repository.has_origin:
            return
        try:
            self.repository.fetch(timeout_s=timeout_s)
        except GitError as error:
            if must:
                raise Refused(LandingResult.NO_REMOTE, str(error)) from error
            _note(notes, f"could not fetch from origin ({error}); went on with what is here")

    def fetch_pull_base(self) -> tuple[str, str]:
        """What a pull request starts from, which is origin's alone, and what has all that is not the work's
        own."""
        self.fetch([], must=True)
        return self.repository.pull_base(), self.repository.base()

    def own_commits(self, remote: str | None, local: str | None) -> str:
        """The commits that only this clone has, in words; empty if there are none."""
        if remote is None or local is None:
            return ""
        log = self.repository.git("log", "--no-merges", "--format=%h %s", f"{remote}..{local}").splitlines()
        more = f" and {len(log) - _NAMED} more" if len(log) > _NAMED else ""
        return f"{len(log)} commit{'s' * (len(log) > 1)} ({', '.join(log[:_NAMED])}{more})" if log else ""

    def base_name(self, base: str) -> str:
        """A name for where work goes, which git knows in every worktree."""
        tips = self.repository.tips()
        names = {tips.local: self.name, tips.remote: f"origin/{self.name}"}
        return names.get(base, base[:12])

    def follow_origin(self, why: str, notes: list[str], *, must: bool) -> None:
        """Bring the branch here to where origin is, keeping what only this clone has; a note where they
        clash. ``must``: origin has to be reached."""
        self.fetch(notes, must=must)
        tips = self.repository.tips()
        self.check(tips)
        old, base = self._choose_base(notes, tips, self.repository.base_among(tips))
        if old != base:
            self.prepare(old=old, new=base)
            self.move(why, old=old, new=base, push=False)

    def check(self, tips: Tips | None = None) -> None:
        """MovedError if it stands at an agent's own commit, and neither a landing, origin nor the log of a
        person's checkout says how it came there."""
        tips = tips or self.repository.tips()
        local, remote = tips.local, tips.remote
        if local is None or self.ledger.has_landed(local):
            return
        holders = self.repository.agent_branches(containing=local)
        records = [self.ledger.records.get(branch.removeprefix(BRANCHES)) for branch in holders]
        made = [
            record
            for record in records
            if record and record.worktree.base and not self.repository.contains(record.worktree.base, local)
        ]
        if not made or (remote and self.repository.contains(remote, local)) or self.checkout.was_at(local):
            return
        record, short = made[0], local[:12]
        words = f"{self.name} stands at {short}, a commit of {record.worktree.branch} that has not landed"
        commits = f"{record.worktree.base[:12]}..{short}"
        look = f"its agent moved {self.name}, so nothing lands. See git log -p {commits}"
        back = f"git reflog {self.name} says where it stood: git update-ref refs/heads/{self.name} <commit>"
        keep = "or keep it by a commit of your own on top"
        raise MovedError(f"{words}: {look}, take it back ({back}) {keep}, then flyball run")

    def prepare(self, *, old: str, new: str) -> None:
        """Before it moves."""
        forward = self.repository.contains(new, old)
        invariant(forward, f"{new} does not contain {old}: {self.name} would be rewritten")
        self.checkout.before_moving(old)

    def move(self, why: str, *, old: str, new: str, push: bool | None = None) -> bool:
        """False if it is no longer where it stood before the gate, here or at origin."""
        if (self.push if push is None else push) and not self.push_to_origin(new):
            return False
        ref = f"refs/heads/{self.name}"
        return self.repository.git.run("update-ref", "-m", f"flyball: {why}", ref, new, old).ok

    def push_to_origin(self, new: str) -> bool:
        """False where origin has moved on; any other failure is Refused."""
        to = f"{new}:refs/heads/{self.name}"
        done = self.repository.git.run("push", "--quiet", "origin", to)
        if done.ok:
            return True
        # "[remote rejected]" is a rule of theirs: trying again cannot help.
        if "[rejected]" in done.err or "cannot lock ref" in done.err:
            return False
        kind = RuledOut if "[remote rejected]" in done.err else Refused
        raise kind(LandingResult.NO_REMOTE, f"could not push to origin: {push_words(done.err)}", done.err)

    def follow(self) -> str:
        """Bring the checkout along. The branch has moved: what goes wrong from here on is reported, and the
        landing stays a success."""
        try:
            return self.checkout.follow()
        except (GitError, OSError) as error:
            return f"the checkout of {self.name} could not be brought along: {error}"


def _note(notes: list[str], words: str) -> None:
    if words not in notes:
        notes.append(words)


def push_words(said: str) -> str:
    lines = said.strip().splitlines() or ["it does not say why"]
    return next((line.strip(" !") for line in lines if "rejected]" in line), lines[-1])


_SUBMODULE = "a submodule"


@dataclass(frozen=True, slots=True, kw_only=True)
class Eligibility:
    repository: Repository
    workspaces: Workspaces
    protected: Sequence[str]
    signed: bool = False
    submodules: bool = False

    def landable_tip(self, task_id: str, *, recorded: str = "", by_hand: bool = False) -> str:
        """The commit to land; Refused says why there is none. ``recorded``: what its branch was made from."""
        branch = f"{BRANCHES}{task_id}"
        self.repository.check_plain(branch)
        if by_hand:
            self.workspaces.take_in(task_id)
        tips = self.repository.tips(branch)
        if tips.branch is None:
            raise Refused(LandingResult.ERROR, f"the branch {branch} is gone; flyball run starts anew")
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
        changes = self.repository.changes(base, tip)
        if not changes.paths:
            words = "its branch changes nothing; make the task clearer, or close it"
            raise Refused(LandingResult.NO_CHANGES, words)
        self._check_paths(branch, changes, tip, seen)
        if self.signed:
            self._check_signed(tip, base, seen)

    def check_rebased(self, branch: str, base: str, laid: str, *, seen: str = "") -> None:
        """Of the very step that is to land: putting commits elsewhere may change what they come to."""
        self._check_paths(branch, self.repository.changes(base, laid), laid, seen)

    def _check_paths(self, branch: str, changes: TreeChanges, tip: str, seen: str) -> None:
        paths = list(changes.paths)
        if seen:
            plain = ("-z", "--name-only", "--no-renames", "--ignore-submodules=none")
            moved = set(self.repository.git.lines("diff", *plain, seen, tip, "--"))
            paths = [path for path in paths if path in moved]
        found = protected_among(paths, self.protected, changes.paths, submodules=changes.submodules)
        if not found and not self.submodules:
            found = [(path, _SUBMODULE) for path in paths if path in changes.submodules]
        if found:
            raise Refused(LandingResult.PROTECTED, self._touches(found, branch))

    def _touches(self, found: list[tuple[str, str]], branch: str) -> str:
        paths = format_paths(path for path, _ in found[:_NAMED]) + (
            " and more" if len(found) > _NAMED else ""
        )
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
            raise Refused(
                LandingResult.UNSIGNED, f"{words}; sign it in its workspace: {way}, then flyball merge"
            )

    def _check_clean(self, task_id: str) -> None:
        """An agent's end has just been gathered; what lies in a workspace that waited for a person is
        theirs."""
        path = self.workspaces.path(task_id)
        if not self.workspaces.is_ours(path) or not path.exists():
            return
        git = self.workspaces.git_in(path)
        inside = "dirty" if untrusted_repositories(git) else "none"
        if git("status", "--porcelain", "--untracked-files=no", f"--ignore-submodules={inside}"):
            words = f"{path} has uncommitted changes; commit or drop them, then flyball merge {task_id}"
            raise Refused(LandingResult.DIRTY, words)
