"""Everything that can be said about a project without running it.

A *problem* would stop a run or block a task; a *note* is worth knowing and stops nothing.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from flyball.core.budget.limits import budget_action
from flyball.core.tasks.dependencies import DependencyGraph
from flyball.core.tasks.footprint import check_footprint, effective_footprint
from flyball.core.tasks.labels import Spelling
from flyball.core.tasks.task import Task, TaskStatus
from flyball.errors import FlyballError, GitError, SourceError, StoreError, UsageError
from flyball.factory.agents.personas import IMPLEMENTER, find_persona
from flyball.factory.project.config import FILE_NAME, ProjectConfig
from flyball.factory.project.config_checks import gate_problem
from flyball.factory.project.config_reader import read_config
from flyball.governor.state_url import home

ACCOUNT = "account.profile"
_AREA = "area:"
_PLAIN_NAME = re.compile(r"\w[\w.+-]*")


@dataclass(frozen=True, slots=True)
class ConfigFinding:
    where: str
    """A file, a key, a task."""
    words: str
    """What is wrong and the way out."""
    severity: Literal["problem", "note"] = "problem"


def validate(root: Path) -> list[ConfigFinding]:
    """What is wrong with the project in a folder, or worth knowing about it."""
    try:
        reading = read_config(root)
    except UsageError as error:
        return [ConfigFinding(FILE_NAME, str(error))]
    if reading.config is None:
        return [ConfigFinding(problem.key, problem.words) for problem in reading.problems]
    config = reading.config
    return [
        *_check_settings(config, root),
        *_check_repository(config, root),
        *_check_tasks(config, root),
    ]


# -- settings -------------------------------------------------------------------------------------


def _check_settings(config: ProjectConfig, root: Path) -> Iterator[ConfigFinding]:
    if problem := gate_problem(config):
        yield ConfigFinding(problem.key, problem.words)
    yield from _check_prompt(config, root)
    yield from _check_personas(config, root)
    yield from _check_account(config)
    yield from _check_ceilings(config)
    yield from _check_gate(config, root)
    yield from _check_pulls(config, root)
    program = config.agent.command[0] if config.agent.command else config.agent.runtime
    if not shutil.which(program) and not (root / program).is_file():
        words = f"{program} was not found on PATH; install it, or name another program in agent.command"
        yield ConfigFinding("agent.runtime", words, "note")
    for path in config.worktree.copy:
        if not (root / path).exists():
            yield ConfigFinding("worktree.copy", f"{path} is not there, so no worktree gets it", "note")
    for name, tokens in config.areas.items():
        if not tokens:
            words = (
                "is an empty list, so its tasks may touch anything and run alone; name the paths it writes"
            )
            yield ConfigFinding(f"areas.{name}", words, "note")


def _check_account(config: ProjectConfig) -> Iterator[ConfigFinding]:
    """Whether there is such an account; whose login it is, only asking it tells."""
    from flyball.factory.accounts.account import open_account

    try:
        open_account(config, home())
    except (UsageError, StoreError) as error:
        yield ConfigFinding(ACCOUNT, str(error))


def _check_ceilings(config: ProjectConfig) -> Iterator[ConfigFinding]:
    from flyball.factory.budget.unmeasurable import unmeasurable

    if any(_check_account(config)):
        return  # that is said already
    guard = budget_action(None, config.budget.guard)
    try:
        for each in unmeasurable(config, home()):
            yield ConfigFinding(each.key, each.words, "problem" if each.refuses(guard) else "note")
    except StoreError as error:
        yield ConfigFinding("budget", str(error))


def _check_gate(config: ProjectConfig, root: Path) -> Iterator[ConfigFinding]:
    if (root / ".envrc").exists():
        return  # direnv may put anything on PATH
    for index, command in enumerate(config.gate.commands or []):
        program = command.split()[0]
        if _PLAIN_NAME.fullmatch(program) and not shutil.which(program) and not _is_shell_word(program):
            words = f"{program} was not found on PATH, so nothing could land"
            way_out = "install it, or name another command"
            yield ConfigFinding(f"gate.commands[{index}]", f"{words}; {way_out}", "note")


def _is_shell_word(word: str) -> bool:
    """Whether the shell that runs gates does it itself, or reads it as a part of its language."""
    asked = ["sh", "-c", 'command -v "$0"', word]
    return subprocess.run(asked, stdin=subprocess.DEVNULL, capture_output=True, check=False).returncode == 0


def _check_pulls(config: ProjectConfig, root: Path) -> Iterator[ConfigFinding]:
    from flyball.factory.landing.hosts.port import PullError
    from flyball.factory.landing.hosts.registry import find_host

    if config.merge.policy != "pr":
        return
    try:
        find_host(root, config.merge.host)
    except (PullError, GitError) as error:
        yield ConfigFinding("merge.policy", f"is pr, and no pull request could be opened: {error}", "note")


def _check_prompt(config: ProjectConfig, root: Path) -> Iterator[ConfigFinding]:
    if not config.prompt.file:
        return
    try:
        (root / config.prompt.file).read_bytes().decode()
    except OSError as error:
        words = f"cannot read {config.prompt.file} ({error.strerror}); name a file in the project"
        yield ConfigFinding("prompt.file", words)
    except UnicodeDecodeError:
        yield ConfigFinding("prompt.file", f"{config.prompt.file} is not UTF-8; save it as UTF-8")


def _check_personas(config: ProjectConfig, root: Path) -> Iterator[ConfigFinding]:
    named = {f"stages.{name}": part.persona or name for name, part in config.stages.items()}
    if config.review.on:
        named["review.persona"] = config.review.persona
    for key, name in {"agent": IMPLEMENTER, **named}.items():
        try:
            find_persona(root, name)
        except UsageError as error:
            yield ConfigFinding(key, str(error))


def _check_repository(config: ProjectConfig, root: Path) -> Iterator[ConfigFinding]:
    from flyball.factory.git.repository import Repository

    try:
        Repository(root, default_branch=config.project.default_branch)
    except (UsageError, GitError) as error:
        yield ConfigFinding("repository", str(error))


# -- tasks ----------------------------------------------------------------------------------------


def _check_tasks(config: ProjectConfig, root: Path) -> Iterator[ConfigFinding]:
    from flyball.factory.tasks.registry import open_source

    try:
        loaded = open_source(config, root).load()
    except (SourceError, UsageError) as error:
        yield ConfigFinding("tasks", str(error))
        return
    for problem in loaded.problems:
        yield ConfigFinding(problem.where, problem.words)
    for path in loaded.passed_over:
        yield ConfigFinding(
            path, "has no front matter, so it is not a task; flyball task add writes one", "note"
        )
    yield from _check_dependencies(DependencyGraph(loaded.tasks))
    for task in loaded.tasks:
        if task.status is not TaskStatus.CLOSED:
            yield from check_labels(task, config)
            yield from _check_footprint(task, config)


def _check_dependencies(waits: DependencyGraph) -> Iterator[ConfigFinding]:
    for circle in waits.circles():
        words = f"wait for each other, so none of them can start: {circle.words()}; take one need away"
        yield ConfigFinding(", ".join(circle.ids), words)
    for task in waits.open:
        unmet = waits.unmet(task.id)
        if unmet is not None and unmet.missing and unmet.heir_of is None:
            yield ConfigFinding(
                task.where or task.id, f"{unmet.words()}; write that task or take the need away"
            )


def check_labels(task: Task, config: ProjectConfig) -> Iterator[ConfigFinding]:
    """Those that mean something to flyball and say nothing that it knows."""
    where = task.where or task.id
    for words in Spelling(stages=config.stages, allowed=config.models.allowed).problems(task.labels):
        yield ConfigFinding(where, words)
    for label in task.labels:
        area = label.removeprefix(_AREA)
        if area != label and area not in config.areas:
            words = f"its label {label} names no area of {FILE_NAME}, so it may touch anything and runs alone"
            yield ConfigFinding(where, f"{words}; add it under [areas]", "note")


def _check_footprint(task: Task, config: ProjectConfig) -> Iterator[ConfigFinding]:
    footprint = effective_footprint(task.footprint, task.labels, config.areas)
    if footprint is None:
        return
    try:
        check_footprint(footprint)
    except FlyballError as error:
        yield ConfigFinding(task.where or task.id, f"its footprint cannot be used: {error}")
