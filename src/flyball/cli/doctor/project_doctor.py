"""Examining and mending the project around the current folder: its settings, its tools, what its work left.

What ``flyball validate`` says about settings and tasks is said here too; beside it stands what only shows
once agents have worked: workspaces and branches that no task needs, tasks that were cut short, locks that a
killed git left. Mending removes what ``flyball gc`` would remove and those locks, and nothing else.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from math import inf
from pathlib import Path

from flyball.cli.doctor.pool_checks import FIX, DoctorFinding, Severity, first_names
from flyball.cli.doctor.state_doctor import Checkup
from flyball.cli.ui.units import counted
from flyball.core.pool.verdict import span_words
from flyball.core.tasks.protected_paths import protected_among
from flyball.errors import FlyballError, StoreError, UsageError
from flyball.factory.cleanup import Leftover, LeftoverKind, Survey
from flyball.factory.git.git import Git
from flyball.factory.git.stale_locks import clear, lock_files
from flyball.factory.landing.gate import implied_files, named_files
from flyball.factory.project.paths import find_root
from flyball.factory.project_view import Project, open_ledger, open_project
from flyball.factory.run.context import protected_paths
from flyball.factory.run.session import LOCK, running
from flyball.factory.state.locks import RunLock
from flyball.factory.state.run_folders import state_folder
from flyball.factory.validation import ACCOUNT, validate

OLDEST_GIT = (2, 38)
"""The first that can try a merge without a worktree."""
_LONG_HELD_S = 60.0
_ASK_S = 20.0
_VERSION = re.compile(r"\d+(?:\.\d+)+")
_SOURCE_TOOLS = {"beads": "bd", "github": "gh"}


@dataclass(frozen=True, slots=True)
class Tool:
    name: str
    path: str
    version: str
    """Empty: it does not say."""


class ProjectDoctor:
    """One project. ``check`` looks; ``mend`` removes what is safe to remove."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def check(self) -> Checkup:
        found = list(_check_settings(self.root))
        try:
            project = open_project(self.root)
        except UsageError:
            return Checkup(str(self.root), True, tuple(found))
        found += [
            *check_tools(find_tools(project)),
            *_check_git_locks(self.root),
            *_check_gate(project),
            *_check_unfinished(project),
        ]
        with suppress(FlyballError):  # validate says what is wrong with the repository or the tasks
            found += _check_leftovers(project, self._survey(project).leftovers())
        name = project.config.project.id
        return Checkup(str(self.root), True, tuple(replace(each, pool=name) for each in found))

    def mend(self, before: Checkup) -> Checkup:
        project, lock = open_project(self.root), RunLock(state_folder(self.root) / LOCK)
        if running(self.root) is None and lock.take(project=project.config.project.id):
            try:
                clear(_git_folder(self.root))
                self._clear(project)
            finally:
                lock.release()
        after = self.check()
        remaining = {each.key for each in after.found}
        fixed = [
            replace(each, fixed=True) for each in before.found if each.fixable and each.key not in remaining
        ]
        return Checkup(after.location, True, (*fixed, *after.found))

    def _survey(self, project: Project) -> Survey:
        going_on = running(self.root) is not None
        return Survey(project, older_than_s=inf, now=time.time(), going_on=going_on)

    def _clear(self, project: Project) -> None:
        survey = self._survey(project)
        for thing in survey.leftovers():
            if thing.goes:
                try:
                    survey.remove(thing)
                except FlyballError:
                    continue  # it is found again, with the reason, when all is looked at once more


def project_doctor() -> ProjectDoctor | None:
    """The project of this folder; None where there is none."""
    try:
        return ProjectDoctor(find_root(Path.cwd()))
    except UsageError:
        return None


# -- what can be found --------------------------------------------------------------------------------


def _check_settings(root: Path) -> Iterator[DoctorFinding]:
    # What is wrong with the account is a finding of its own.
    found = [each for each in validate(root) if each.where != ACCOUNT]
    for number, each in enumerate(found):
        yield DoctorFinding(
            kind=f"validate-{number}",
            words=f"{each.where}: {each.words}",
            meaning="a run would stop or block at it" if each.severity == "problem" else "it stops no run",
            remedy="flyball validate shows all of them",
            severity=Severity(each.severity),
        )


def find_tools(project: Project) -> list[Tool]:
    """The programs that a run needs, with what they say of their version."""
    agent, source = project.config.agent, project.config.tasks.source
    names = ["git", _SOURCE_TOOLS.get(source, ""), "" if agent.runtime == "command" else agent.runtime]
    if project.config.merge.policy == "pr" and project.config.merge.host != "gitlab":
        names.append("gh")
    if agent.runtime != "command" and agent.command:
        names[2] = agent.command[0]
    found = [(name, shutil.which(name)) for name in dict.fromkeys(filter(None, names))]
    return [Tool(name, path, _version(path)) for name, path in found if path is not None]


def _version(path: str) -> str:
    try:
        done = subprocess.run(
            [path, "--version"], stdin=subprocess.DEVNULL, capture_output=True, timeout=_ASK_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    found = _VERSION.search(done.stdout.decode(errors="replace"))
    return found[0] if found is not None else ""


def check_tools(tools: Sequence[Tool]) -> Iterator[DoctorFinding]:
    for tool in tools:
        if not tool.version:
            yield DoctorFinding(
                kind=f"tool-{tool.name}",
                words=f"{tool.name} does not say which version it is",
                meaning=f"{tool.path} may be broken; a run needs it",
                remedy=f"{tool.name} --version shows what is wrong",
                severity=Severity.NOTE,
            )
    git = next((tool for tool in tools if tool.name == "git" and tool.version), None)
    if git is not None and tuple(map(int, git.version.split(".")[:2])) < OLDEST_GIT:
        yield DoctorFinding(
            kind="tool-git-old",
            words=f"git is {git.version}",
            meaning="branches that have landed cannot be told from those that have not",
            remedy=f"install git {'.'.join(map(str, OLDEST_GIT))} or newer",
        )


def _git_folder(root: Path) -> Path:
    return Path(Git(root)("rev-parse", "--path-format=absolute", "--git-common-dir"))


def _check_git_locks(root: Path) -> Iterator[DoctorFinding]:
    try:
        locks = lock_files(_git_folder(root))
    except FlyballError:
        return  # validate says what is wrong with the repository
    if left := [str(lock.path) for lock in locks if not lock.holders]:
        yield DoctorFinding(
            kind="git-lock",
            words=f"git was killed and left {counted(len(left), 'lock file')}: {first_names(left)}",
            meaning="git refuses to change what they guard; no living process holds them",
            remedy=f"flyball run removes them, {FIX} too",
            fixable=running(root) is None,
        )
    for lock in locks:
        if lock.holders and lock.age_s > _LONG_HELD_S:
            yield DoctorFinding(
                kind=f"git-lock-held {lock.path}",
                words=f"{lock.path} has been there for {span_words(lock.age_s)}",
                meaning=f"git with pid {', '.join(map(str, lock.holders))} may be at work on what it guards",
                remedy="let it finish, or end it; then look again",
                severity=Severity.NOTE,
            )


def _check_unfinished(project: Project) -> Iterator[DoctorFinding]:
    """Task runs that were cut short and that no run goes on with."""
    if running(project.root) is not None:
        return
    try:
        with open_ledger(project.state) as ledger:
            if ledger is None:
                return
            ledger.load()
            records = list(ledger.records.values())
    except StoreError as error:
        meaning = "what was under way cannot be told; commits are not touched"
        yield DoctorFinding(
            kind="ledger", words=str(error), meaning=meaning, remedy="move it away to start anew"
        )
        return
    cut = [f"{record.task} ({record.state.value})" for record in records if not record.final]
    if cut:
        yield DoctorFinding(
            kind="unfinished",
            words=f"{counted(len(cut), 'task')} cut short: {first_names(cut)}",
            meaning="everything done for them is kept; no run goes on with them now",
            remedy="flyball run goes on with them",
            severity=Severity.NOTE,
        )


def _check_gate(project: Project) -> Iterator[DoctorFinding]:
    commands, protected = project.config.gate.commands or (), protected_paths(project.config, project.root)
    deciding = {*named_files(commands, project.root), *implied_files(commands, project.root)}
    guarded = {path for path, _ in protected_among(deciding, protected)}
    if open_ := sorted(deciding - guarded):
        yield DoctorFinding(
            kind="gate-unprotected",
            words=f"what the gate does is decided by files that agents may change: {first_names(open_)}",
            meaning="work that changes one of them is judged by the gate that it made itself",
            remedy="add them to merge.protected, or look at such work before it lands (merge.policy, review)",
            severity=Severity.NOTE,
        )


def _check_leftovers(project: Project, things: Sequence[Leftover]) -> Iterator[DoctorFinding]:
    ends = {
        LeftoverKind.WORKSPACE: "workspaces without an owner",
        LeftoverKind.BRANCH: "branches without a task",
    }
    for kind, words in ends.items():
        going = [
            thing.name
            for thing in things
            # The landing's own worktree is there between runs on purpose.
            if thing.kind is kind and thing.goes and not thing.name.startswith(".")
        ]
        if going:
            yield DoctorFinding(
                kind=f"leftover-{kind.value}",
                words=f"{words}: {first_names(going)}",
                meaning="their work is over, and nothing in them would be lost",
                remedy=f"flyball gc removes them, {FIX} too",
                severity=Severity.NOTE,
                fixable=running(project.root) is None,
            )
    if strange := [thing.name for thing in things if thing.foreign]:
        yield DoctorFinding(
            kind="strange-workspace",
            words=f"folders that are not workspaces of this repository: {first_names(strange)}",
            meaning="a task of that name could not be given its own",
            remedy="look at them, and move them away",
        )
