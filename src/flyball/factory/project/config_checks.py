"""What must hold in ``flyball.toml`` beyond each key's own type: ids, paths, keys that need each other."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import PurePosixPath
from typing import get_args

from flyball.core.pool.settings import check_name
from flyball.core.suggestions import did_you_mean
from flyball.core.tasks.globs import check_token
from flyball.core.tasks.model_routing import EXPLICIT_ONLY, IMPLEMENT, REVIEW, TIERS, tier_in_name
from flyball.core.tasks.task import check_project_id
from flyball.errors import UsageError
from flyball.factory.project.config import AgentPart, BudgetPart, ProjectConfig, Runtime


@dataclass(frozen=True, slots=True)
class ConfigProblem:
    """``str()`` of it is a sentence: the key, what is wrong, the way out."""

    key: str
    words: str

    def __str__(self) -> str:
        return f"{self.key} {self.words}"


def find_problems(config: ProjectConfig) -> Iterator[ConfigProblem]:
    yield from _check("project.id", check_project_id, config.project.id)
    # Enough that git never takes it for an option or a range; whether it exists, the repository says.
    name = config.project.default_branch
    if name.startswith(("-", "/")) or ".." in name or any(c.isspace() or not c.isprintable() for c in name):
        yield ConfigProblem("project.default_branch", f"{name!r} cannot be a branch; leave it out to ask git")
    yield from _check_path("tasks.folder", config.tasks.folder)
    yield from _check_agent(config.agent)
    for index, command in enumerate(config.worktree.bootstrap):
        yield from _check_command(f"worktree.bootstrap[{index}]", command)
    for index, path in enumerate(config.worktree.copy):
        yield from _check_path(f"worktree.copy[{index}]", path)
    for index, command in enumerate(config.gate.commands or []):
        yield from _check_command(f"gate.commands[{index}]", command)
    for index, path in enumerate(config.merge.protected):
        # A slash in front anchors a pattern, as in .gitignore.
        yield from _check_path(f"merge.protected[{index}]", path.removeprefix("/"))
    yield from _check_stages(config)
    yield from _check_models(config)
    yield from _check_budget(config.budget)
    if config.prompt.text and config.prompt.file:
        yield ConfigProblem("prompt.text", "and prompt.file are both set; keep one of them")
    for name, tokens in config.areas.items():
        if not name.strip() or not name.isprintable():
            yield ConfigProblem("areas", f"has an area called {name!r}; give it a name that can be a label")
        for index, token in enumerate(tokens):
            yield from _check(f"areas.{name}[{index}]", check_token, token)


def gate_problem(config: ProjectConfig) -> ConfigProblem | None:
    """What keeps a project from being run that may well be looked at."""
    if config.merge.policy != "auto" or config.gate.commands is not None:
        return None
    return ConfigProblem(
        "merge.policy",
        "is auto, and nothing says what must be green before work lands; name the commands, "
        '[gate] commands = ["make test"], or write commands = [] to land it unchecked',
    )


def _check_agent(agent: AgentPart) -> Iterator[ConfigProblem]:
    if agent.runtime == "command" and not agent.command:
        yield ConfigProblem(
            "agent.command",
            'is missing; runtime "command" needs the program: command = ["python3", "agent.py"]',
        )
    if agent.command and not agent.command[0].strip():
        yield ConfigProblem("agent.command", "begins with an empty word; name the program first")
    for key, words in (("agent.command", agent.command), ("agent.args", agent.args)):
        if any("\0" in word for word in words):
            yield ConfigProblem(key, "contains a NUL character; no program can be given one")
    for name, value in agent.env.items():
        if not name or "=" in name or "\0" in name + value:
            yield ConfigProblem(
                "agent.env", f"has a variable {name!r} that no environment can hold; rename it"
            )
    if agent.pool:
        yield from _check("agent.pool", lambda name: check_name("pool", name), agent.pool)


def _check_stages(config: ProjectConfig) -> Iterator[ConfigProblem]:
    for name in config.stages:
        yield from _check("stages", lambda given: check_name("stage", given), name)
        if name in (IMPLEMENT, REVIEW):
            section = "[agent]" if name == IMPLEMENT else "[review]"
            yield ConfigProblem(f"stages.{name}", f"is not a stage of its own; set it in {section}")


def _check_models(config: ProjectConfig) -> Iterator[ConfigProblem]:
    models = config.models
    for runtime in models.names:
        if runtime not in get_args(Runtime):
            meant = did_you_mean(runtime, get_args(Runtime)) or f"there are {', '.join(get_args(Runtime))}"
            yield ConfigProblem(f"models.names.{runtime}", f"is not a known runtime; {meant}")
    for runtime, names in models.names.items():
        for tier in names:
            if tier not in TIERS:
                yield ConfigProblem(
                    f"models.names.{runtime}.{tier}", f"is not a tier; use one of {', '.join(TIERS)}"
                )
    wanted = [(f"models.stages.{stage}", name) for stage, name in models.stages.items()]
    for key, name in [*wanted, ("agent.model", config.agent.model)]:
        if (tier := tier_in_name(name)) in EXPLICIT_ONLY:
            way_out = f"give tasks the label model:{tier}, or flyball run --model {tier}"
            yield ConfigProblem(key, f"is {name!r}, and {tier} is never a default; {way_out}")
        elif tier and tier not in models.allowed:
            yield ConfigProblem(key, f"is {name!r}, and models.allowed does not have {tier}; add it there")


def _check_budget(budget: BudgetPart) -> Iterator[ConfigProblem]:
    """A window that fills up passes warn, then drain, then stop; equal ones are passed at once."""
    levels = (("warn", budget.warn), ("drain", budget.drain), ("stop", budget.stop))
    for (earlier, least), (later, level) in pairwise(levels):
        if level < least:
            words = f"is {level:g}, below budget.{earlier} ({least:g}). {_IN_ORDER}"
            way_out = f"Raise budget.{later} to at least {least:g}, or lower budget.{earlier}"
            yield ConfigProblem(f"budget.{later}", f"{words}. {way_out}")


_IN_ORDER = (
    "As a window fills up, fewer agents run from warn on, none is started from drain on, and the run pauses "
    "at stop: each must be at least the one before it"
)


def _check(key: str, check: Callable[[str], str], value: str) -> Iterator[ConfigProblem]:
    try:
        check(value)
    except UsageError as error:
        yield ConfigProblem(key, f"cannot be used: {error}")


def _check_path(key: str, path: str) -> Iterator[ConfigProblem]:
    """A path in the project: nothing in flyball.toml reaches out of it by accident."""
    pure = PurePosixPath(path)
    if not path.strip() or not path.isprintable():
        yield ConfigProblem(key, f"is {path!r}, which cannot be a path; name a path in the project")
    elif pure.is_absolute() or ".." in pure.parts or path.startswith("~"):
        yield ConfigProblem(key, f"is {path!r}; write the path as it is inside the project")


def _check_command(key: str, command: str) -> Iterator[ConfigProblem]:
    if not command.strip() or "\0" in command:
        yield ConfigProblem(key, "is empty; name a command or remove it")
