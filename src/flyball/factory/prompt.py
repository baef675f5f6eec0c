"""What an agent is told, in three blocks from the most lasting to the most fleeting.

    preamble   depends on flyball's version alone
    project    depends on flyball.toml alone
    task       everything else

A provider caches a prompt by its beginning, so every task of a project shares the first two blocks byte
for byte. An agent that goes on with its own session knows all of that already and is told only the news.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from flyball import __version__
from flyball.core.task import Task

_PREAMBLE = """\
You work alone, with nobody to ask, in a git worktree of your own. flyball {version} started you and takes
over when you stop.

- Do exactly the task below, completely, and nothing beside it.
- You stand on a branch of your own. Commit your work there if you can, in whole steps with plain messages;
  what you leave uncommitted is committed for you. Stay on the branch: do not switch, merge, rebase, push, or
  touch other worktrees, unless you are told to below.
- When you stop, your branch is rebased onto the default branch and the project's gate runs. Only a green gate
  lands your work, so run the gate's commands yourself before you stop, if you can.
- Some paths are protected: a branch that changes one of them is refused as a whole.
- If the task cannot be done as it is written, change nothing and say why in your last message.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProjectTerms:
    """What every task of a project is told."""

    id: str
    default_branch: str
    gate: Sequence[str]
    protected: Sequence[str]
    text: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class News:
    """What happened since the agent last looked."""

    attempt: int = 1
    why_back: str = ""
    """Why it was sent back, with what there is to see."""
    nudges: Sequence[str] = ()


def preamble(version: str = __version__) -> str:
    return _PREAMBLE.format(version=version)


def project_block(terms: ProjectTerms) -> str:
    lines = [f"# Project {terms.id}", "", f"Default branch: {terms.default_branch}"]
    gate = [f"    {command}" for command in terms.gate] or ["    (none)"]
    lines += ["Gate, run in this order:", *gate]
    lines += [f"Protected: {', '.join(terms.protected)}"]
    if terms.text.strip():
        lines += ["", terms.text.strip()]
    return "\n".join(lines) + "\n"


def task_block(task: Task, news: News) -> str:
    lines = [f"# Task {task.id}: {task.title}", ""]
    if task.body.strip():
        lines += [task.body.strip(), ""]
    if task.acceptance.strip():
        lines += ["It is done when:", task.acceptance.strip(), ""]
    return "\n".join(lines) + _news(news)


def compile_prompt(terms: ProjectTerms, task: Task, news: News) -> str:
    """The whole prompt, for an agent that starts."""
    return f"{preamble()}\n{project_block(terms)}\n{task_block(task, news)}"


def compile_news(task: Task, news: News) -> str:
    """For an agent that goes on with its session."""
    return _news(news) or f"Go on with task {task.id} where you stopped.\n"


def _news(news: News) -> str:
    lines: list[str] = []
    if news.why_back:
        lines += [f"## Attempt {news.attempt}: what happened before", "", news.why_back.strip(), ""]
        lines += ["Your earlier commits are on this branch. Go on from there.", ""]
    for nudge in news.nudges:
        lines += ["## A message from the person in charge", "", nudge.strip(), ""]
    return "\n".join(lines)
