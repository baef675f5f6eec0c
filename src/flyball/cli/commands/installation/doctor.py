"""``flyball doctor``: what is wrong with the state, what it means, what to do. ``--fix`` mends."""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from flyball.cli.doctor.factory_checks import check_factory
from flyball.cli.doctor.hook_checks import check_hooks
from flyball.cli.doctor.pool_checks import DoctorFinding, Severity
from flyball.cli.doctor.project_doctor import ProjectDoctor, project_doctor
from flyball.cli.doctor.state_doctor import Checkup, StateDoctor, state_doctor
from flyball.cli.ui.render import BLANK, Block, Line, Piece, Style, print_json, show
from flyball.cli.ui.units import counted
from flyball.governor.state_url import home

SUMMARY = """Find what is wrong with the state: dead leases, stale demand, a cap stuck at its floor, an open
breaker, unreadable files, wrong permissions, clocks, guards that were changed, hooks that call nothing; and
in a project its settings, tools, account, workspaces, branches and unfinished tasks. Works when the state
cannot be opened."""
EXAMPLE = """flyball doctor
flyball doctor --fix
exit status: 0 healthy, or all mended; 1 problems remain (notes do not count)"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--fix",
        action="store_true",
        help="mend what is safe: take back dead leases, drop stale demand, count again, make files private "
        "and your own usable, set a damaged file aside (never deletes), put changed guards right, "
        "remove workspaces and branches as flyball gc does",
    )
    parser.add_argument("--json", action="store_true", help="the findings as JSON")


def run(args: argparse.Namespace) -> int:
    checkup = _examine(fix=args.fix)
    around = [*check_factory(home(), Path.cwd(), fix=args.fix), *check_hooks(os.environ, home())]
    checkup = replace(checkup, found=(*checkup.found, *around))
    if args.json:
        print_json({"location": checkup.location, "healthy": checkup.healthy, "findings": checkup.found})
    else:
        show(screen(checkup))
    return 0 if checkup.healthy else 1


def _examine(*, fix: bool) -> Checkup:
    """The state, and the project of this folder if there is one."""
    state, project = state_doctor(), project_doctor()
    checkup = _check(state, fix=fix) if state is not None else Checkup("memory:", False, ())
    if project is None:
        return checkup
    around = _check(project, fix=fix)
    location = f"{checkup.location}, {around.location}"
    return Checkup(location, checkup.exists or around.exists, (*checkup.found, *around.found))


def _check(doctor: StateDoctor | ProjectDoctor, *, fix: bool) -> Checkup:
    checkup = doctor.check()
    return doctor.mend(checkup) if fix and any(f.fixable for f in checkup.found) else checkup


def screen(checkup: Checkup) -> Iterator[Block]:
    yield Line([*_headline(checkup), "  ", Piece(checkup.location, Style.QUIET)])
    for finding in checkup.found:
        yield BLANK
        yield from _finding(finding)
    if any(finding.fixable and not finding.fixed for finding in checkup.found):
        yield BLANK
        yield Line("flyball doctor --fix", label="next")


def _headline(checkup: Checkup) -> Iterator[str | Piece]:
    left = [finding for finding in checkup.found if not finding.fixed]
    problems = sum(finding.severity is Severity.PROBLEM for finding in left)
    fixed = len(checkup.found) - len(left)
    if problems:
        yield Piece(counted(problems, "problem"), Style.BAD)
    else:
        yield Piece("healthy", Style.GOOD)
    if len(left) > problems:
        yield f", {counted(len(left) - problems, 'note')}"
    if fixed:
        yield f", {fixed} fixed"
    if not checkup.exists and not problems:
        yield ": no state yet, nothing to examine"


def _finding(finding: DoctorFinding) -> Iterator[Block]:
    label, style = finding.severity.value, Style.BAD
    if finding.fixed:
        label, style = "fixed", Style.GOOD
    elif finding.severity is Severity.NOTE:
        style = Style.WARN
    pool: list[str | Piece] = [Piece(finding.pool, Style.STRONG), ": "] if finding.pool else []
    yield Line([*pool, finding.words], label=Piece(label, style))
    if not finding.fixed or finding.kind == "damaged":
        yield Line(finding.meaning, label="means")
    if not finding.fixed:
        yield Line(finding.remedy, label="do")
