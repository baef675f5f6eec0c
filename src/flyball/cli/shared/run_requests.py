"""What the verbs that ask something of a run have in common: read a message, ask, say what came of it."""

from __future__ import annotations

import sys

from flyball.cli.ui.render import print_json, say
from flyball.errors import UsageError
from flyball.factory.project_view import Project
from flyball.factory.run.options import RunVerb
from flyball.factory.run.session import ask, running
from flyball.factory.state.ledger import RequestAnswer

NOT_DONE = 1
NOT_YET = "the run was asked and has not answered yet; flyball board shows what it does"
LONGEST_CHARS = 100_000
"""Of a message: every agent that reads it pays for it."""


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


def read_message(text: str) -> str:
    """What a person has to say to an agent, from the command line or from stdin."""
    message = text
    if text == "-":
        try:
            message = sys.stdin.buffer.read().decode("utf-8-sig")
        except UnicodeDecodeError as error:
            words = f"what came on stdin is not UTF-8 (byte {error.start}); nothing was sent"
            raise UsageError(words) from error
    if not message.strip():
        raise UsageError("the message is empty; say something, or - to read it from stdin")
    if len(message) > LONGEST_CHARS:
        raise UsageError(
            f"the message has {len(message)} characters, at most {LONGEST_CHARS}; put it into a file of the "
            "repository and name that"
        )
    return message
