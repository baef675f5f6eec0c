"""What the verbs that ask something of a run have in common: ask, and say what came of it."""

from __future__ import annotations

from flyball.cli.render import print_json, say
from flyball.errors import UsageError
from flyball.factory.conduct import ask, running
from flyball.factory.looking import Project

NO_ANSWER = 1


def ask_run(project: Project, verb: str, task: str = "", **fields: int) -> str:
    """The answer of the run that is going on; empty if it took longer than we wait."""
    if running(project.root) is None:
        raise UsageError(
            f"no run of {project.config.project.id} is going on; flyball run starts one, "
            "flyball board shows how things stand"
        )
    return ask(project.root, verb, task, **fields)


def tell(words: str, *, as_json: bool, **fields: object) -> int:
    """Show an answer; the exit code."""
    if as_json:
        print_json({**fields, "answered": bool(words), "words": words})
    else:
        say(words or "the run was asked and has not answered yet; flyball board shows what it does")
    return 0 if words else NO_ANSWER
