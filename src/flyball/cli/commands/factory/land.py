"""``flyball land TASK|PR``: move the default branch to a pull request that people approved."""

from __future__ import annotations

import argparse
from pathlib import Path

from flyball.cli.shared.manual_landing import land_by_hand
from flyball.cli.shared.pull_requests import named_pull, waiting_pulls
from flyball.cli.ui.render import Line, Piece, Style, Words, print_json, show
from flyball.core.tasks.task_run import State
from flyball.errors import InvariantError, UsageError
from flyball.factory.landing.hosts.port import PullState
from flyball.factory.landing.hosts.registry import find_host
from flyball.factory.landing.pull_requests import may_land
from flyball.factory.landing.result import Refused
from flyball.factory.project_view import last_run, open_project_at
from flyball.factory.run.options import ManualMove

SUMMARY = """Land a pull request that people approved: move the default branch to it, here and at origin,
close its task and clean up. Where the default branch has moved since, it is rebased and the gate runs
again."""
EXAMPLE = """flyball land t-14
flyball land 12 --unapproved
exit status: 0 landed; 1 not landed, with the reason and the next step"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("pull", metavar="TASK|PR", help="the task, or its pull request's number or address")
    parser.add_argument("--unapproved", action="store_true", help="without approval")
    parser.add_argument("--json", action="store_true", help="the result as JSON, and nothing else")


def run(args: argparse.Namespace) -> int:
    project = open_project_at(Path.cwd())
    record = named_pull(waiting_pulls(project), args.pull)
    pull = find_host(project.root, project.config.merge.host).get(record.pull.number)
    if pull.state is not PullState.MERGED:
        try:
            may_land(pull, record.task, unapproved=args.unapproved)
        except Refused as refused:
            raise UsageError(refused.landed.why) from refused
    move = ManualMove.LAND_UNAPPROVED if args.unapproved else ManualMove.LAND_APPROVED
    notes = land_by_hand(project, record.task, move, quiet=args.json)
    return _tell(project.state, record.task, notes, as_json=args.json)


def _tell(state: Path, task_id: str, notes: list[str], *, as_json: bool) -> int:
    record = last_run(state, task_id)
    if record is None:
        raise InvariantError("a landing left no trace in the ledger")
    merged = record.state is State.MERGED
    code = 0 if merged else 1
    if as_json:
        fields = {"task": task_id, "number": record.pull.number, "url": record.pull.url, "landed": merged}
        why = "" if merged else record.landing.said or record.reason
        print_json(
            {**fields, "commit": record.reason if merged else "", "why": why, "notes": notes, "exit": code}
        )
        return code
    name = Piece(f"{task_id} #{record.pull.number}", Style.STRONG)
    words: Words = [name, " ", Piece("landed", Style.GOOD), f" in {record.reason}"]
    if not merged:
        words = [
            name,
            " ",
            Piece("not landed", Style.BAD),
            f": {record.landing.said or record.reason or record.state.value}",
        ]
    show([Line(words), *(Line(note, label="note", indent=2) for note in notes)])
    return code
