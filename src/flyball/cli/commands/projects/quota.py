"""``flyball quota show|calibrate|declare|forget``: what an account may spend, and what it has spent.

How an account's windows are shown. Every figure says how it is known.
"""

from __future__ import annotations

import argparse
import math
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from flyball.cli.parser import add_action
from flyball.cli.ui.render import Block, Column, Line, Piece, Style, Table, Words, print_json, say, show
from flyball.cli.ui.units import duration
from flyball.core.budget.estimate import EstimateScore, score
from flyball.core.budget.limits import Level, Thresholds, worst_level
from flyball.core.budget.usage_windows import Figure, UsageReport, WindowUsage, measure_window
from flyball.core.pool.verdict import span_words
from flyball.errors import UsageError
from flyball.governor.state_url import home

if TYPE_CHECKING:
    from flyball.factory.budget.ledger_usage import Lessons
    from flyball.factory.budget.monitor import UsageMonitor
    from flyball.factory.budget.port import BillingAccount
    from flyball.factory.budget.sources import UsageReading
    from flyball.governor.account_windows import AccountWindowStatus


_STYLES = {Level.OK: Style.GOOD, Level.WARN: Style.WARN, Level.DRAIN: Style.BAD, Level.STOP: Style.BAD}
_MEANING = {
    Level.OK: "",
    Level.WARN: ", fewer agents at once",
    Level.DRAIN: ", nothing is started",
    Level.STOP: ", runs pause",
}


def quota_screen(
    payer: BillingAccount,
    standings: Sequence[WindowUsage],
    reports: Mapping[str, UsageReport],
    seen: UsageReading,
    thresholds: Thresholds,
    lessons: Lessons | None,
    now: float,
) -> Iterator[Block]:
    level = worst_level(standings, thresholds)
    yield Line([Piece(payer.name, Style.STRONG), "  ", Piece(level.word + _MEANING[level], _STYLES[level])])
    columns = [Column("WINDOW"), Column("USED"), Column("SPENT"), Column("CEILING"), Column("ENDS IN")]
    yield Table(
        [*columns, Column("", wraps=True)],
        [_row(each, reports.get(each.name), thresholds, now) for each in standings],
    )
    yield Line(seen.source, label="source", indent=2)
    for silent in seen.silent:
        yield Line(silent, label="not used", indent=2)
    if lessons is not None and lessons.costs:
        yield Line(_score_words(score(lessons.costs)), label="estimates", indent=2)
    open_ones = [each.name for each in standings if not each.enforced]
    if open_ones and not payer.unpriced:
        example = f"flyball quota calibrate --window {open_ones[0]} --used 62% --resets-in 2h10m"
        yield Line(f"{example} (what the provider's own usage page shows)", label="next", indent=2)


def _row(each: WindowUsage, report: UsageReport | None, thresholds: Thresholds, now: float) -> list[Words]:
    level = thresholds.level(each.full)
    used: Words = _figure(each.fraction, "{:.0%}") if each.fraction is not None else "?"
    words = "not measured yet: shown for information, not enforced"
    if each.unmeasured:
        words = "cannot be measured: counts as full"
    elif each.enforced:
        words = level.word
    if report is not None and each.fraction is not None and report.at <= now:
        words += f", measured {span_words(now - report.at)} ago"
    return [
        each.name,
        Piece(str(used), _STYLES[level] if each.enforced else Style.QUIET),
        _figure(each.spent, "${:.2f}") or "unknown",
        _figure(each.ceiling, "${:.2f}"),
        span_words(max(0.0, each.end - now)) if each.end is not None else "not known",
        words,
    ]


def _figure(figure: Figure | None, form: str) -> str:
    return f"{form.format(figure.value)} {figure.tag.value}" if figure is not None else ""


def _score_words(found: EstimateScore) -> str:
    within = f"{found.within_p90:.0%}" if found.within_p90 is not None else "?"
    error = f"{found.median_error:.0%}" if found.median_error is not None else "?"
    return f"{within} of {found.count} launches cost no more than their P90; P50 was off by {error} (median)"


def quota_record(
    payer: BillingAccount,
    standings: Sequence[WindowUsage],
    reports: Mapping[str, UsageReport],
    seen: UsageReading,
    thresholds: Thresholds,
    lessons: Lessons | None,
    now: float,
) -> dict[str, object]:
    return {
        "account": payer.name,
        "level": worst_level(standings, thresholds).word,
        "source": seen.source,
        "silent": list(seen.silent),
        "windows": [_window_record(each, reports.get(each.name), thresholds, now) for each in standings],
        "estimates": score(lessons.costs) if lessons is not None else None,
    }


def _window_record(
    each: WindowUsage, report: UsageReport | None, thresholds: Thresholds, now: float
) -> dict[str, object]:
    return {
        "name": each.name,
        "enforced": each.enforced,
        "level": thresholds.level(each.full).word if each.enforced else None,
        "used": _record(each.fraction),
        "spent_usd": _record(each.spent),
        "ceiling_usd": _record(each.ceiling),
        "unmeasured": each.unmeasured,
        "ends_in_s": round(max(0.0, each.end - now), 1) if each.end is not None else None,
        "measured_s_ago": round(max(0.0, now - report.at), 1) if report is not None else None,
    }


def _record(figure: Figure | None) -> dict[str, object] | None:
    return {"value": round(figure.value, 6), "tag": figure.tag.value} if figure is not None else None


SUMMARY = """Show how full the windows of this project's account are, outside a project those of every account
that is known here, and set their ceilings: from what the provider's own usage page shows, or in dollars."""
EXAMPLE = """flyball quota show
flyball quota calibrate --window 5h --used 62% --resets-in 2h10m
flyball quota declare day --length 1d --usd 20"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(title="actions", metavar="ACTION", dest="action", required=True)
    shown = add_action(actions, "show", "show every window of the account", "flyball quota show --json")
    calibrated = add_action(
        actions,
        "calibrate",
        "work out a window's ceiling from the part that the provider's own page shows as used",
        "flyball quota calibrate --window 5h --used 62% --resets-in 2h10m",
    )
    calibrated.add_argument(
        "--window", required=True, metavar="NAME", help="5h, 7d, or one that was declared"
    )
    calibrated.add_argument("--used", required=True, type=part, metavar="62%", help="what the page shows")
    calibrated.add_argument(
        "--resets-in",
        type=duration,
        metavar="2h10m",
        help="when the page says that it resets (default: what the provider reported)",
    )
    calibrated.add_argument(
        "--spent", type=usd, metavar="USD", help="what was spent in it (default: what is measured here)"
    )
    declared = add_action(
        actions,
        "declare",
        "set a window's ceiling in dollars; a name that is new adds a window",
        "flyball quota declare day --length 1d --usd 20",
    )
    declared.add_argument("window", metavar="NAME", help="5h, 7d, or a name of your own")
    declared.add_argument("--usd", required=True, type=usd, metavar="USD", help="what may be spent in it")
    declared.add_argument("--length", type=duration, metavar="1d", help="how long a new window is")
    forgotten = add_action(
        actions, "forget", "take back what was set for a window", "flyball quota forget 5h"
    )
    forgotten.add_argument("window", nargs="?", metavar="NAME", help="the window")
    forgotten.add_argument("--all", action="store_true", help="every window of the account")
    for action in (shown, calibrated, declared, forgotten):
        action.add_argument(
            "--account", metavar="NAME", help="another account than this project's, such as default:claude"
        )
        action.add_argument("--json", action="store_true", help="the result as JSON")


def run(args: argparse.Namespace) -> int:
    if args.action == "show" and args.account is None and not _in_a_project():
        return _show_all(args)
    act = {"show": _show, "calibrate": _calibrate, "declare": _declare, "forget": _forget}[args.action]
    return act(args, _find_account(args.account))


def part(text: str) -> float:
    """``62%`` or ``0.62``.

    >>> part("62%"), part("0.62")
    (0.62, 0.62)
    """
    number = _number(text.strip().removesuffix("%").strip())
    fraction = number / 100 if text.strip().endswith("%") else number
    if not 0 < fraction <= 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a part of a window; write 62% or 0.62")
    return fraction


def usd(text: str) -> float:
    """``20`` or ``$20``.

    >>> usd("$20")
    20.0
    """
    amount = _number(text.strip().removeprefix("$"))
    if not 0 < amount < 1e9:
        raise argparse.ArgumentTypeError(f"{text!r} is not an amount of dollars; write 20 or 19.50")
    return amount


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return math.nan


# -- whose -----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _MeteredAccount:
    payer: BillingAccount
    monitor: UsageMonitor
    thresholds: Thresholds
    lessons: Lessons | None = None


def _find_account(named: str | None) -> _MeteredAccount:
    from flyball.factory.accounts.account import open_account
    from flyball.factory.budget.guard import budget_thresholds
    from flyball.factory.budget.ledger_usage import Lessons
    from flyball.factory.budget.monitor import UsageMonitor
    from flyball.factory.budget.port import billing_account
    from flyball.factory.budget.shared_windows import windows_to_read
    from flyball.factory.project_view import open_ledger, open_project_at
    from flyball.factory.run.policy import pool_for
    from flyball.runtimes.registry import pool_of

    if named is None and not _in_a_project():
        raise UsageError(
            "there is no project here whose account could be meant; name one with --account, such as "
            "--account default:claude (flyball quota show lists those that are known)"
        )
    if named is not None:
        payer = _payer_named(named)
        shared = windows_to_read(pool_of([payer.runtime], payer.runtime), payer.name)
        return _MeteredAccount(payer, UsageMonitor(payer, home(), shared=shared), Thresholds())
    project = open_project_at(Path.cwd())
    payer, lessons = billing_account(open_account(project.config, home())), Lessons()
    with open_ledger(project.state) as ledger:
        if ledger is not None:
            lessons.learn(ledger)
    shared = windows_to_read(pool_for(project.config), payer.name)
    monitor = UsageMonitor(payer, home(), own=project.state, shared=shared)
    return _MeteredAccount(payer, monitor, budget_thresholds(project.config.budget), lessons)


def _in_a_project() -> bool:
    from flyball.factory.project.paths import find_root

    try:
        find_root(Path.cwd())
    except UsageError:
        return False
    return True


def _payer_named(name: str) -> BillingAccount:
    """A profile of this machine, or the account that is logged in; any other is known from ledgers alone."""
    from flyball.factory.accounts.profile import Profiles
    from flyball.factory.budget.port import CLAUDE, DEFAULT, BillingAccount, default_folder

    if not name or "/" in name or name.startswith("."):
        raise UsageError(f"{name!r} cannot be an account; flyball quota show names this project's")
    profile = next((each for each in Profiles(home()).list()[0] if each.name == name), None)
    kind, _, runtime = name.partition(":")
    if profile is not None:
        kept = (profile.folder or default_folder({})) if profile.runtime == CLAUDE else None
        return BillingAccount(name=name, runtime=profile.runtime, folder=kept, key_env=profile.api_key_env)
    own = (kind, runtime) == (DEFAULT, CLAUDE)
    return BillingAccount(name=name, runtime=runtime or CLAUDE, folder=default_folder() if own else None)


# -- the actions ---------------------------------------------------------------------------------------------


def _show(args: argparse.Namespace, account: _MeteredAccount) -> int:
    seen, now = account.monitor.refresh_now(), time.time()
    standings = account.monitor.standings
    reports = account.monitor.told.reports
    shown = (account.payer, standings, reports, seen, account.thresholds, account.lessons, now)
    if args.json:
        print_json(quota_record(*shown))
    else:
        show(quota_screen(*shown))
    return 0


def _show_all(args: argparse.Namespace) -> int:
    """Outside a project: how full each window of each account is, as the state knows it."""
    from flyball.governor.account_windows import account_windows
    from flyball.governor.state_url import open_reader, resolve

    with closing(open_reader(resolve())) as reader:
        found = account_windows(reader.snapshot())
    if args.json:
        print_json({"accounts": found})
        return 0
    show(_accounts_screen(found))
    return 0


def _accounts_screen(found: Sequence[AccountWindowStatus]) -> Iterator[Block]:
    if not found:
        yield Line("No window of an account was measured yet.")
        example = 'flyball exec -- claude -p "..." --output-format stream-json --verbose > run.jsonl'
        yield Line(f"{example} measures those of claude's account", label="next")
        return
    columns = [Column("ACCOUNT"), Column("POOL"), Column("WINDOW"), Column("USED", right=True)]
    columns += [Column("RESETS IN"), Column("", wraps=True)]
    rows: list[list[Words]] = []
    for each in found:
        resets = span_words(each.resets_in_s) if each.resets_in_s is not None else "not known"
        known = f"{each.certainty} {span_words(each.measured_s_ago)} ago"
        account = each.account or Piece("the pool's own", Style.QUIET)
        rows.append([account, each.pool, each.name, f"{each.used:.0%}", resets, known])
    yield Table(columns, rows)
    named = next((each.account for each in found if each.account), "")
    if named:
        yield Line(f"flyball quota show --account {named} shows what was spent in them", label="next")


def _calibrate(args: argparse.Namespace, account: _MeteredAccount) -> int:
    from flyball.factory.budget.quotas import A_PERSON

    _check_priced(account.payer, args.window)
    book = account.monitor.book
    terms, now = book.window(args.window), time.time()
    spent, source = args.spent, A_PERSON
    report = account.monitor.told.reports.get(terms.name)
    resets_at = now + args.resets_in if args.resets_in is not None else None
    if resets_at is None and report is not None and report.holds(now):
        resets_at = report.resets_at
    if spent is None:
        if resets_at is None:
            raise UsageError(
                f"when the {terms.name} window began is not known, so neither is what was spent in it; say "
                "when the page says that it resets, such as --resets-in 2h10m, or what was spent with --spent"
            )
        seen = account.monitor.refresh_now()
        standing = measure_window(replace(terms, anchor=resets_at), None, seen.spend, now)
        spent, source = _spent_usd(standing, terms.name), seen.source
    quota = book.calibrate(args.window, used=args.used, spent_usd=spent, source=source, resets_at=resets_at)
    words = f"{args.used:.0%} is ${spent:.2f} ({source}), so the {quota.name} window holds"
    return _set(args, account, f"{words} ${quota.ceiling_usd:.2f}")


def _check_priced(payer: BillingAccount, window: str) -> None:
    if payer.unpriced:
        raise UsageError(
            f"the {window} window of {payer.name} could not be measured: {payer.unpriced}; "
            "agent.max_turns and agent.max_s in flyball.toml bound an agent without dollars"
        )


def _spent_usd(standing: WindowUsage, name: str) -> float:
    spent: Figure | None = standing.spent
    if spent is None or spent.value <= 0:
        raise UsageError(
            f"nothing was spent in the {name} window yet, as far as can be seen from here; calibrate it "
            "after some work, or say what was spent with --spent"
        )
    return spent.value


def _declare(args: argparse.Namespace, account: _MeteredAccount) -> int:
    _check_priced(account.payer, args.window)
    quota = account.monitor.book.declare(args.window, usd=args.usd, length_s=args.length)
    words = f"the {quota.name} window ({span_words(quota.length_s)}) holds ${quota.ceiling_usd:.2f}"
    return _set(args, account, words)


def _forget(args: argparse.Namespace, account: _MeteredAccount) -> int:
    if bool(args.window) == args.all:
        raise UsageError("name a window, or --all; for example: flyball quota forget 5h")
    gone: Sequence[str] = account.monitor.book.forget(None if args.all else args.window)
    if args.json:
        print_json({"account": account.payer.name, "forgotten": list(gone)})
    else:
        said = f"forgot what was set for {', '.join(gone)}" if gone else "nothing was set"
        say(f"{account.payer.name}: {said}")
    return 0


def _set(args: argparse.Namespace, account: _MeteredAccount, words: str) -> int:
    if args.json:
        quotas = [each for each in account.monitor.book.quotas() if each.name == args.window]
        print_json({"account": account.payer.name, "window": quotas[0]})
    else:
        say(f"{account.payer.name}: {words}")
    return 0
