"""Asking a host's own command line."""

from __future__ import annotations

from collections.abc import Sequence

from flyball.errors import SourceError
from flyball.factory.pulls.port import PullError
from flyball.factory.tasks.program import Program


def said(program: Program, args: Sequence[str], *, stdin: str = "", way_out: str) -> bytes:
    """What a program answered; PullError if it failed."""
    try:
        answer = program.ask(*args, stdin=stdin)
    except SourceError as error:
        raise PullError(str(error)) from error
    if answer.code != 0:
        lines = (answer.err or answer.out).decode("utf-8", "replace").strip().splitlines()
        why = lines[-1] if lines else f"exit status {answer.code}"
        raise PullError(f"{program.name} {args[0]} {args[1]} failed: {why}; {way_out}")
    return answer.out
