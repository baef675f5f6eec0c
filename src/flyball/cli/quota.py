"""``flyball quota show|calibrate|declare|forget``: what an account may spend, and what it has spent."""

from __future__ import annotations

import argparse
import math
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from flyball.cli.quota_screen import quota_record, quota_screen
from flyball.cli.render import print_json, say, show
from flyball.cli.subverbs import add_action
from flyball.cli.units import duration
from flyball.core.budget import Thresholds
from flyball.core.standing import Figure, Standing, stand
from flyball.core.verdict import span_words
from flyball.errors import UsageError
from flyball.governor.location import home

if TYPE_CHECKING:
    from flyball.factory.usage.ledgers import Lessons
    from flyball.factory.usage.lookout import Lookout
    from flyball.factory.usage.payer import Payer

SUMMARY = """Show what the account of this project may spend in its windows and has spent, and set their
ceilings: from what the provider's own usage page shows, or in dollars."""
EXAMPLE = """flyball quota show
flyball quota calibrate --window 5h --used 62%
flyball quota declare day --length 1d --usd 20"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(title="actions", metavar="ACTION", dest="action", required=True)
    shown = add_action(actions, "show", "show every window of the account", "flyball quota show --json")
    calibrated = add_action(
        actions,
        "calibrate",
        "work out a window's ceiling from the part that the provider's own page shows as used",
        "flyball quota calibrate --window 5h --used 62%",
    )
    calibrated.add_argument(
        "--window", required=True, metavar="NAME", help="5h, 7d, or one that was declared"
    )
    calibrated.add_argument("--used", required=True, type=part, metavar="62%", help="what the page shows")
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
    act = {"show": _show, "calibrate": _calibrate, "declare": _declare, "forget": _forget}[args.action]
    return act(args, _here(args.account))


def part(text: str) -> float:
    """``62%`` or ``0.62``.

    >>> part("62%"), part("0.62")
    (0.62, 0.62)
    """
    number = _number(text.strip().removesuffix("%").strip())
    fraction = number / 100 if text.strip().endswith("%") else number
    if not 0 < fraction <= 1:
        raise argparse.ArgumentTypeError(f"{text!r} is no part of a window; write 62% or 0.62")
    return fraction


def usd(text: str) -> float:
    """``20`` or ``$20``.

    >>> usd("$20")
    20.0
    """
    amount = _number(text.strip().removeprefix("$"))
    if not 0 < amount < 1e9:
        raise argparse.ArgumentTypeError(f"{text!r} is no amount of dollars; write 20 or 19.50")
    return amount


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return math.nan


# -- whose -----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Here:
    payer: Payer
    lookout: Lookout
    thresholds: Thresholds
    lessons: Lessons | None = None


def _here(named: str | None) -> _Here:
    from flyball.factory.accounts.account import open_account
    from flyball.factory.looking import opened_ledger, project_at
    from flyball.factory.purse import thresholds_of
    from flyball.factory.usage.ledgers import Lessons
    from flyball.factory.usage.lookout import Lookout
    from flyball.factory.usage.payer import payer_of

    if named is not None:
        payer = _payer_named(named)
        return _Here(payer, Lookout(payer, home()), Thresholds())
    project = project_at(Path.cwd())
    payer, lessons = payer_of(open_account(project.config, home())), Lessons()
    with opened_ledger(project.state) as ledger:
        if ledger is not None:
            lessons.learn(ledger)
    lookout = Lookout(payer, home(), own=project.state)
    return _Here(payer, lookout, thresholds_of(project.config.budget), lessons)


def _payer_named(name: str) -> Payer:
    """A profile of this machine, or whoever is logged in; of any other only the ledgers know."""
    from flyball.factory.accounts.profiles import Profiles
    from flyball.factory.usage.payer import CLAUDE, DEFAULT, Payer, default_folder

    if not name or "/" in name or name.startswith("."):
        raise UsageError(f"{name!r} cannot be an account; flyball quota show names this project's")
    profile = next((each for each in Profiles(home()).list()[0] if each.name == name), None)
    kind, _, runtime = name.partition(":")
    if profile is not None:
        kept = (profile.folder or default_folder({})) if profile.runtime == CLAUDE else None
        return Payer(name=name, runtime=profile.runtime, folder=kept, key_env=profile.api_key_env)
    own = (kind, runtime) == (DEFAULT, CLAUDE)
    return Payer(name=name, runtime=runtime or CLAUDE, folder=default_folder() if own else None)


# -- the actions ---------------------------------------------------------------------------------------------


def _show(args: argparse.Namespace, here: _Here) -> int:
    seen, now = here.lookout.look_now(), time.time()
    standings = here.lookout.standings
    if args.json:
        print_json(quota_record(here.payer, standings, seen, here.thresholds, here.lessons, now))
    else:
        show(quota_screen(here.payer, standings, seen, here.thresholds, here.lessons, now))
    return 0


def _calibrate(args: argparse.Namespace, here: _Here) -> int:
    from flyball.factory.usage.quotas import A_PERSON

    _check_priced(here.payer, args.window)
    book = here.lookout.book
    terms, now = book.named(args.window), time.time()
    spent, source = args.spent, A_PERSON
    if spent is None:
        seen = here.lookout.look_now()
        standing = stand(terms, here.lookout.told.reports.get(terms.name), seen.spend, now)
        spent, source = _measured(standing, terms.name), seen.source
    quota = book.calibrate(args.window, used=args.used, spent_usd=spent, source=source)
    words = f"{args.used:.0%} is ${spent:.2f} ({source}), so the {quota.name} window holds"
    return _set(args, here, f"{words} ${quota.ceiling_usd:.2f}")


def _check_priced(payer: Payer, window: str) -> None:
    if payer.unpriced:
        raise UsageError(
            f"the {window} window of {payer.name} could not be measured: {payer.unpriced}; "
            "agent.max_turns and agent.max_s in flyball.toml bound an agent without dollars"
        )


def _measured(standing: Standing, name: str) -> float:
    spent: Figure | None = standing.spent
    if spent is None or spent.value <= 0:
        raise UsageError(
            f"nothing was spent in the {name} window yet, as far as can be seen from here; calibrate it "
            "after some work, or say what was spent with --spent"
        )
    return spent.value


def _declare(args: argparse.Namespace, here: _Here) -> int:
    _check_priced(here.payer, args.window)
    quota = here.lookout.book.declare(args.window, usd=args.usd, length_s=args.length)
    words = f"the {quota.name} window ({span_words(quota.length_s)}) holds ${quota.ceiling_usd:.2f}"
    return _set(args, here, words)


def _forget(args: argparse.Namespace, here: _Here) -> int:
    if bool(args.window) == args.all:
        raise UsageError("name a window, or --all; for example: flyball quota forget 5h")
    gone: Sequence[str] = here.lookout.book.forget(None if args.all else args.window)
    if args.json:
        print_json({"account": here.payer.name, "forgotten": list(gone)})
    else:
        said = f"forgot what was set for {', '.join(gone)}" if gone else "nothing was set"
        say(f"{here.payer.name}: {said}")
    return 0


def _set(args: argparse.Namespace, here: _Here, words: str) -> int:
    if args.json:
        quotas = [each for each in here.lookout.book.quotas() if each.name == args.window]
        print_json({"account": here.payer.name, "window": quotas[0]})
    else:
        say(f"{here.payer.name}: {words}")
    return 0
