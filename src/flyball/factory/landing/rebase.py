"""The landing's own worktree: where a branch is rebased, its task closed, and the gate run.

It is kept between landings, so that what the gate's tools cache in ignored files stays warm; but what a gate
leaves that was not green is the work of what was refused, and would decide about others. Nothing that happens
in it counts before the default branch has been moved.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from pathlib import Path

from flyball.core.tasks.task import Task
from flyball.core.tasks.task_run import RunPhase, Step
from flyball.errors import GitError
from flyball.factory.agents.process import Process
from flyball.factory.git import stale_locks
from flyball.factory.git.git import Git
from flyball.factory.git.repository import BRANCHES, GATE_CACHE, Repository
from flyball.factory.git.workspace import Workspaces, remove_tree
from flyball.factory.git.workspace_setup import BootstrapError
from flyball.factory.guards.sandbox import SandboxedCommands
from flyball.factory.landing.default_branch import Eligibility
from flyball.factory.landing.gate import GateFailure, GateRunner
from flyball.factory.state.blocking_calls import run_in_thread
from flyball.factory.state.ledger import Ledger
from flyball.factory.tasks.port import Closing, TaskSource

LANDING_WORKTREE = ".landing"
_UNPROVEN = "flyball-unproven"
"""In git's own folder of it: work was prepared or judged there, and was not seen green."""


@dataclass(frozen=True, slots=True)
class LandingWorktree:
    repository: Repository
    workspaces: Workspaces
    source: TaskSource
    wall: SandboxedCommands | None = None
    """What keeps the gate in; None: nothing."""

    @property
    def path(self) -> Path:
        return self.workspaces.folder / LANDING_WORKTREE

    def rebase(self, tip: str, base: str, since: str) -> list[str] | None:
        """A branch's own commits, those after ``since``, on top of ``base``; the paths that clash, or None if
        all went well."""
        if since == base:
            self._reset_to(tip)
            return None
        self._reset_to(base)
        return self._pick(tip, base, since)

    def rebase_on_top(self, tip: str, base: str, since: str) -> list[str] | None:
        """The same on top of what was put here just now, which is unchanged since."""
        clashing = self._pick(tip, base, since)
        if clashing is not None:
            self.repository.git_in(self.path)("checkout", "--quiet", "--force", "--detach", base)
        return clashing

    def _pick(self, tip: str, base: str, since: str) -> list[str] | None:
        """From a clean tree at ``base``."""
        git = self.repository.git_in(self.path)
        # Three times as quick as a rebase, and the same for a plain row of commits. Whatever is not plain (a
        # merge, a commit that changes nothing any more, a clash) is the rebase's to judge.
        if git.run("cherry-pick", f"{since}..{tip}").ok:
            return None
        git.run("cherry-pick", "--abort")
        git("checkout", "--quiet", "--force", "--detach", tip)
        if git.run("rebase", "--quiet", "--onto", base, since).ok:
            return None
        clashing = git.lines("diff", "-z", "--name-only", "--diff-filter=U")
        git.run("rebase", "--abort")
        return clashing

    def prepare(self) -> None:
        """Bring what is not in git, packages say, to where what was put here asks for it: before the gate."""
        self._unproven.touch()
        self.workspaces.fill(self.path, self.head())

    async def run_gate(
        self,
        gate: GateRunner,
        tasks: Sequence[Task],
        folder: Path,
        *,
        began: Callable[[Process], None] = lambda _: None,
    ) -> GateFailure | None:
        """Run the gate on what was put here. The note is there before it begins: it may be killed with us."""
        self._unproven.touch()
        enclosure = await run_in_thread(self._enclosure)
        red = await gate.run(tasks, self.path, folder, commit=self.head(), enclosure=enclosure, began=began)
        if red is None:
            self._unproven.unlink(missing_ok=True)
        return red

    def _enclosure(self) -> Sequence[str]:
        if self.wall is None:
            return ()
        self._cache.mkdir(mode=0o700, exist_ok=True)
        return self.wall.of_gate(self.path, self._cache)

    @property
    def _cache(self) -> Path:
        """What tools of the gate keep for its next time, unless it was red."""
        return self.repository.worktree_git_dir(self.path) / GATE_CACHE

    @property
    def _unproven(self) -> Path:
        return self.repository.worktree_git_dir(self.path) / _UNPROVEN

    def has_changed(self, paths: Collection[str], base: str) -> bool:
        """Has what lies here changed one of these very files since ``base``?"""
        touched = self.repository.git_in(self.path).lines(
            "diff", "-z", "--name-only", "--no-renames", base, "HEAD"
        )
        return not set(paths).isdisjoint(touched)

    def squash(self, task: Task, base: str) -> None:
        """One commit of all that was put on top of ``base``, by the author of the first of them."""
        git = self.repository.git_in(self.path)
        form = "--format=%an%x00%ae%x00%aI%x00%B%x00"
        parts = git.run("log", "--reverse", form, f"{base}..HEAD").out.decode("utf-8", "replace").split("\0")
        made = [tuple(part.strip("\n") for part in parts[at : at + 4]) for at in range(0, len(parts) - 1, 4)]
        if not made:
            return
        name, email, date, _ = made[0]
        author = {"GIT_AUTHOR_NAME": name, "GIT_AUTHOR_EMAIL": email, "GIT_AUTHOR_DATE": date}
        others = sorted({(who, where) for who, where, _, _ in made} - {(name, email)})
        message = squashed_message(task, [text for _, _, _, text in made], others)
        git("reset", "--quiet", "--soft", base)
        git(
            "commit",
            "--quiet",
            "--no-verify",
            "--allow-empty",
            "--file=-",
            env=author,
            stdin=message.encode(),
        )

    def close_task(self, task_id: str, base: str) -> tuple[Closing, str]:
        """Close the task in the very commit that brings its work; what is to land.

        Reverting that commit reopens the task. Where ``base`` has all of the work already, there is no such
        commit, and what is there is not changed.
        """
        git = self.repository.git_in(self.path)
        closing = self.source.close_in(task_id, self.path)
        if closing.paths:
            git("add", "--force", "--", *closing.paths)
            if self.head() == base:
                git("commit", "--quiet", "--no-verify", "--message", f"Close {task_id}: its work was here")
            else:
                git("commit", "--quiet", "--no-verify", "--amend", "--no-edit", "--allow-empty-message")
        return closing, self.head()

    def head(self) -> str:
        return (self.repository.worktree_git_dir(self.path) / "HEAD").read_text(encoding="utf-8").strip()

    def _reset_to(self, tip: str) -> Git:
        """Standing at ``tip``, with nothing left over but ignored files of green work."""
        if not self._is_ours():
            self._make(tip)
            return self.repository.git_in(self.path)
        stale_locks.clear(self.repository.common)
        git = self.repository.git_in(self.path)
        state = self.repository.worktree_git_dir(self.path)
        if any((state / name).exists() for name in ("rebase-merge", "rebase-apply")):
            git.run("rebase", "--abort")
        if (state / "CHERRY_PICK_HEAD").exists() or (state / "sequencer").exists():
            git.run("cherry-pick", "--abort")
        git("checkout", "--quiet", "--force", "--detach", tip)
        unproven = self._unproven
        kept = [] if unproven.exists() else [f"--exclude={name}" for name in self.workspaces.copy]
        # Twice forced: repositories that a gate made inside go too.
        git("clean", "--quiet", "-ffdx" if unproven.exists() else "-ffd", *kept)
        if unproven.exists():
            self.workspaces.preparation.forget(self.path)
            remove_tree(self._cache)
            unproven.unlink()
        return git

    def _is_ours(self) -> bool:
        """Another clone of the same project may have been here before, or a gate that spares nothing."""
        try:
            return (self.path / ".git").is_file() and self.repository.worktree_git_dir(self.path).is_dir()
        except GitError:
            return False

    def _make(self, tip: str) -> None:
        git = self.repository.git
        # Only gates work here.
        shutil.rmtree(self.path, ignore_errors=True)
        self.workspaces.preparation.forget(self.path)
        with self.repository.worktree_lock():
            git("worktree", "prune")
            git("worktree", "add", "--quiet", "--no-checkout", "--detach", str(self.path), tip)
        self.repository.git_in(self.path)("reset", "--quiet", "--hard")


@dataclass(frozen=True, slots=True, kw_only=True)
class Rebaser:
    """Puts the work of tasks into the landing's worktree, step by step in the ledger."""

    worktree: LandingWorktree
    ledger: Ledger
    eligibility: Eligibility
    squash: bool = False

    async def rebase(
        self, task: Task, tip: str, base: str, *, first: bool = True, known: str = "", seen: str = ""
    ) -> tuple[list[str] | None, str]:
        """What clashes, None if nothing does; and the commit that is to land. Refused if it must not.

        ``known``: what the branch has from there is not its own; empty: from ``base``. ``seen``: what was
        found fit before.
        """
        self.ledger.note(task.id, Step.REBASE, RunPhase.BEGUN, onto=base)
        repository, recorded = self.worktree.repository, self.ledger.records[task.id].worktree.base
        since = await run_in_thread(repository.own_since, tip, known=known or base, recorded=recorded)
        clashing = await run_in_thread(
            self.worktree.rebase if first else self.worktree.rebase_on_top, tip, base, since
        )
        if clashing is not None:
            return clashing, ""
        laid, branch = await run_in_thread(self.worktree.head), f"{BRANCHES}{task.id}"
        await run_in_thread(self.eligibility.check_rebased, branch, base, laid, seen=seen)
        if self.squash:
            await run_in_thread(self.worktree.squash, task, base)
        self.ledger.note(task.id, Step.REBASE)
        self.ledger.note(task.id, Step.CLOSE, RunPhase.BEGUN)
        _, new = await run_in_thread(self.worktree.close_task, task.id, base)
        self.ledger.note(task.id, Step.CLOSE)
        return None, new

    async def prepare(self, base: str) -> GateFailure | None:
        """Before the gate. Where it fails and the work changed nothing about it, the work is not at fault."""
        try:
            await run_in_thread(self.worktree.prepare)
        except BootstrapError as error:
            preparation, head = self.worktree.workspaces.preparation, await run_in_thread(self.worktree.head)
            as_before = await run_in_thread(preparation.same_inputs, base, head)
            return GateFailure(str(error), str(error), unrunnable=as_before)
        return None


def squashed_message(task: Task, messages: Sequence[str], others: Sequence[tuple[str, str]] = ()) -> str:
    """The task's title, what its commits said beside it, and whose they were.

    >>> squashed_message(Task(id="t-1", title="Add it"), ["Add it\\n\\nTask: t-1", "Mend it\\n\\nIt broke."])
    'Add it\\n\\nMend it\\n\\nIt broke.\\n\\nTask: t-1\\n'
    """
    own = f"Task: {task.id}"
    said = [
        "\n".join(line for line in text.splitlines() if line not in (task.title, own)) for text in messages
    ]
    trailer = [own, *(f"Co-authored-by: {name} <{email}>" for name, email in others)]
    parts = [task.title, *dict.fromkeys(filter(None, (text.strip() for text in said))), "\n".join(trailer)]
    return "\n\n".join(parts) + "\n"
