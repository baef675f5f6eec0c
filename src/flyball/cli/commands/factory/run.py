"""``flyball run``: ready tasks become merged code."""

from __future__ import annotations

import argparse
import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from flyball.cli.ui.render import print_json, show
from flyball.cli.ui.units import whole
from flyball.host import exit_status

if TYPE_CHECKING:
    from flyball.factory.project.config import ProjectConfig
    from flyball.factory.run.options import RunOptions, RunReport, RunRequest

SUMMARY = """Take ready tasks, give each its own workspace and agent, as many at once as the limits allow,
and land each finished branch behind the project's gate. Ends when nothing is ready and nothing runs; a run
that was cut short is gone on with."""
EXAMPLE = """flyball run
flyball run --dry-run
flyball run --only t-1 --only t-2 --width 2
flyball run --budget-guard advisory
exit status: 0 all landed, or waiting for a person; 1 something is blocked, or the gate is red on the
default branch itself; 75 paused by a limit, drained or stopped before all was done"""
BLOCKED = 1


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--once", action="store_true", help="one batch only, then end")
    parser.add_argument("--only", action="append", default=[], metavar="TASK", help="only these tasks")
    parser.add_argument("--parent", metavar="TASK", help="only what is beneath this task")
    parser.add_argument("--mode", choices=("rolling", "wave"), help="refill at once, or batch by batch")
    parser.add_argument("--width", type=whole, metavar="N", help="agents at once (default: run.width)")
    parser.add_argument("--model", default="", help="the model for every task, whatever it says itself")
    parser.add_argument("--default-model", default="", help="the model for tasks that name none")
    parser.add_argument(
        "--resume",
        action="store_true",
        help="go on with what was cut short, as a plain run does, and say if there is nothing",
    )
    parser.add_argument(
        "--budget-guard",
        choices=("enforce", "advisory", "off"),
        help="keep to the budgets, only tell of them, or do not look (default: budget.guard)",
    )
    parser.add_argument(
        "--allow-api-spend",
        action="store_true",
        help="when the account's windows are used up, go on with its API key, which costs money per call; "
        "the project and the profile must allow it too",
    )
    parser.add_argument(
        "--skip-base-gate",
        action="store_true",
        help="start agents though the gate may be red on the default branch itself: for a task that mends it",
    )
    parser.add_argument("--dry-run", action="store_true", help="show what would start and why the rest waits")
    parser.add_argument("--json", action="store_true", help="the result as JSON, and nothing else")


def run(args: argparse.Namespace) -> int:
    from flyball.factory.project.config_reader import load_config
    from flyball.factory.project.paths import find_root
    from flyball.factory.run.session import check_start, run_project

    root = find_root(Path.cwd())
    config = load_config(root)
    _check(args, config)
    if args.dry_run:
        return _dry_run(args, root, config)
    terms = _terms(args)
    check_start(config, terms)
    _register(config, root)
    from flyball.cli.ui.run_progress import watcher_for

    wish = _wish(args, config)
    with watcher_for(quiet=args.json) as watcher:
        report, signalled = run_project(root, config, wish, terms, watcher=watcher)
    code = _exit_code(report, signalled)
    if args.json:
        print_json({**_record(report), "exit": code})
    else:
        from flyball.cli.ui.run_progress import report_screen

        show(report_screen(report), sys.stdout)
    return code


def _check(args: argparse.Namespace, config: ProjectConfig) -> None:
    from flyball.errors import UsageError
    from flyball.factory.project.config_reader import check_runnable

    check_runnable(config)
    if args.width is not None and args.width < 1:
        raise UsageError(f"--width must be at least 1, not {args.width}")


def _wish(args: argparse.Namespace, config: ProjectConfig) -> RunRequest:
    from flyball.factory.run.options import RunRequest

    mode = args.mode or config.run.mode
    return RunRequest(
        mode=mode, once=args.once, only=tuple(args.only), parent=args.parent, resume=args.resume
    )


def _terms(args: argparse.Namespace) -> RunOptions:
    from flyball.factory.run.options import RunOptions

    return RunOptions(
        width=args.width,
        model=args.model,
        default_model=args.default_model,
        guard=args.budget_guard,
        allow_api_spend=args.allow_api_spend,
        check_base=not args.skip_base_gate,
    )


def _register(config: ProjectConfig, root: Path) -> None:
    from flyball.errors import GitError
    from flyball.factory.project.registry import ProjectRegistry
    from flyball.governor.state_url import home

    try:
        ProjectRegistry(home()).add(config.project.id, root)
    except GitError as error:
        # The entry is written; only its history could not be.
        print(f"flyball: {error}", file=sys.stderr)


def _dry_run(args: argparse.Namespace, root: Path, config: ProjectConfig) -> int:
    from flyball.cli.ui.run_progress import dry_run_screen
    from flyball.factory.accounts.account import open_account
    from flyball.factory.run.dry_run import plan_run
    from flyball.governor.state_url import home

    open_account(config, home())  # a run would be refused without it
    plan = plan_run(root, config, _wish(args, config), _terms(args))
    if args.json:
        print_json(plan)
    else:
        show(dry_run_screen(plan))
    return 0


def _exit_code(report: RunReport, signalled: int | None) -> int:
    if signalled is not None:
        return 128 + signalled
    if report.paused or report.stopped or (report.left and not report.red_base):
        return exit_status.LIMITED
    stuck = report.red_base or report.blocked or report.waiting or report.problems
    return BLOCKED if stuck else 0


def _record(report: RunReport) -> dict[str, object]:
    return {
        "merged": report.merged,
        "blocked": report.blocked,
        "waiting_for_you": report.parked,
        "left": report.left,
        "not_started": report.unstarted,
        "cannot_start": {each.task_id: each.words for each in report.waiting},
        "problems": [{"where": each.where, "words": each.words} for each in report.problems],
        "paused": report.paused,
        "stopped": report.stopped,
        "red_base": asdict(report.red_base) if report.red_base is not None else None,
        "cost_usd": round(report.spend.usd, 6) if report.spend.usd is not None else None,
        "unpriced_launches": report.spend.unpriced,
        "denials": report.denials,
        "notes": report.notes,
    }
