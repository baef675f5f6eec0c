"""What the verbs that ask something of a run have in common: ask, and say what came of it."""

from __future__ import annotations

from flyball.cli.ui.render import print_json, say
from flyball.errors import UsageError
from flyball.factory.project_view import Project
from flyball.factory.run.options import RunVerb
from flyball.factory.run.session import ask, running
from flyball.factory.state.ledger import RequestAnswer

NOT_DONE = 1
NOT_YET = "the run was asked and has not answered yet; flyball board shows what it does"


def ask_run(project: Project, verb: RunVerb, task: str = "", **fields: int) -> RequestAnswer | None:
    """The answer of the run that is going on; None if it took longer than we wait."""
    if running(project.root) is None:
        raise UsageError(
            f"no run of {project.config.project.id} is going on; flyball run starts one, "
            "flyball board shows how things stand"
        )
    return ask(project.root, verb, task, **fields)


def tell(answer: RequestAnswer | None, *, as_json: bool, **fields: object) -> int:
    """Show an answer; the exit code."""
    if as_json:
        outcome, words = (answer.outcome.value, answer.words) if answer is not None else (None, "")
        print_json({**fields, "answered": answer is not None, "outcome": outcome, "words": words})
    else:
        say(answer.words if answer is not None else NOT_YET)
    return 0 if answer is not None and answer.accepted else NOT_DONE
