"""``flyball account add|list|show|verify|remove``: whose account agents may use."""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterator, Sequence
from typing import get_args

import msgspec

from flyball.cli.parser import add_action
from flyball.cli.ui.render import Block, Column, Line, Piece, Style, Table, Words, print_json, say, show
from flyball.cli.ui.units import shown_path
from flyball.errors import AccountError
from flyball.factory.accounts.account import verify_login
from flyball.factory.accounts.profile import Billing, BrokenProfile, Profile, Profiles, RuntimeName
from flyball.governor.state_url import home

SUMMARY = """Add, list, show, verify or remove the profiles that say whose account agents use. A project names
one as account.profile in flyball.toml; then flyball run starts nothing under any other account."""
EXAMPLE = """flyball account add work --runtime claude --identity ann@example.org --config-dir ~/.claude-work
flyball account verify work"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(title="actions", metavar="ACTION", dest="action", required=True)
    added = add_action(
        actions,
        "add",
        "add a profile (does not log anyone in or out)",
        "flyball account add home --runtime claude --identity ann@example.org\n"
        "flyball account add ci --runtime claude --billing api-key --api-key-env FACTORY_KEY",
    )
    _add_terms(added)
    listed = add_action(actions, "list", "list the profiles", "flyball account list --json")
    shown = add_action(actions, "show", "show a profile", "flyball account show work")
    tried = add_action(
        actions, "verify", "check who is logged in, as flyball run does", "flyball account verify work"
    )
    removed = add_action(actions, "remove", "forget a profile", "flyball account remove work")
    for action in (added, shown, removed):
        action.add_argument("name", metavar="NAME", help="the profile")
    tried.add_argument("name", nargs="?", metavar="NAME", help="the profile (default: all of them)")
    for action in (added, listed, shown, tried, removed):
        action.add_argument("--json", action="store_true", help="the result as JSON")


def _add_terms(added: argparse.ArgumentParser) -> None:
    added.add_argument("--runtime", choices=get_args(RuntimeName), required=True, help="which kind of agent")
    added.add_argument(
        "--identity", default="", metavar="WHO", help="who must be logged in: an e-mail, or an account's id"
    )
    added.add_argument(
        "--config-dir",
        default="",
        metavar="FOLDER",
        help="where that login is; leave it out for the personal one, where the agent looks by itself",
    )
    added.add_argument(
        "--billing", choices=get_args(Billing), default="subscription", help="what pays for it"
    )
    added.add_argument(
        "--api-key-env", default="", metavar="NAME", help="the variable that holds its API key; never the key"
    )
    added.add_argument(
        "--env", action="append", default=[], metavar="NAME", help="a variable of yours that its agents get"
    )
    added.add_argument("--replace", action="store_true", help="change a profile that is there already")


def run(args: argparse.Namespace) -> int:
    acts = {"add": _add, "list": _list, "show": _show, "verify": _verify, "remove": _remove}
    return acts[args.action](args, Profiles(home()))


def _add(args: argparse.Namespace, profiles: Profiles) -> int:
    profile = Profile(
        name=args.name,
        runtime=args.runtime,
        identity=args.identity,
        config_dir=args.config_dir,
        billing=args.billing,
        api_key_env=args.api_key_env,
        env=tuple(dict.fromkeys(args.env)),
    )
    profiles.add(profile, replace=args.replace)
    if args.json:
        print_json(_record(profile))
    else:
        say(f'{profile.name} is written down; name it in flyball.toml: [account] profile = "{profile.name}"')
    return 0


def _remove(args: argparse.Namespace, profiles: Profiles) -> int:
    profiles.remove(args.name)
    if args.json:
        print_json({"name": args.name, "removed": True})
    else:
        say(f"forgot {args.name}; its login is untouched")
    return 0


def _list(args: argparse.Namespace, profiles: Profiles) -> int:
    good, broken = profiles.list()
    if args.json:
        print_json({"profiles": list(map(_record, good)), "broken": _broken_records(broken)})
    else:
        show(_table(good, broken))
    return 1 if broken else 0


def _show(args: argparse.Namespace, profiles: Profiles) -> int:
    profile = profiles.get(args.name)
    if args.json:
        print_json(_record(profile))
    else:
        show(_profile_screen(profile))
    return 0


def _verify(args: argparse.Namespace, profiles: Profiles) -> int:
    good, broken = ([profiles.get(args.name)], []) if args.name else profiles.list()
    found = {}
    for profile in good:
        try:
            found[profile.name] = verify_login(profile, os.environ), ""
        except AccountError as error:
            found[profile.name] = "", str(error)
    wrong = any(words for _, words in found.values())
    if args.json:
        told = [
            {"name": name, "verified": not words, "identity": who, "problem": words or None}
            for name, (who, words) in found.items()
        ]
        print_json({"profiles": told, "broken": _broken_records(broken)})
    else:
        show(_verdicts(found, broken))
    return 1 if wrong or broken else 0


def _record(profile: Profile) -> dict[str, object]:
    return dict(msgspec.to_builtins(profile))


def _broken_records(broken: Sequence[BrokenProfile]) -> list[dict[str, str]]:
    return [{"name": one.name, "file": shown_path(one.file), "words": one.words} for one in broken]


def _table(good: Sequence[Profile], broken: Sequence[BrokenProfile]) -> Iterator[Block]:
    if good:
        rows: list[list[Words]] = [
            [one.name, one.runtime, one.identity or "-", one.billing, one.config_dir or "its own place"]
            for one in good
        ]
        columns = [Column(name) for name in ("PROFILE", "RUNTIME", "IDENTITY", "BILLING", "LOGIN IN")]
        yield Table(columns, rows, indent=0)
    elif not broken:
        yield Line("no profiles: agents use whatever account is logged in; flyball account add makes one")
    for one in broken:
        yield Line([Piece("problem: ", Style.BAD), one.words])


def _profile_screen(profile: Profile) -> Iterator[Block]:
    yield Line([Piece(profile.name, Style.STRONG), f"  {profile.runtime}"])
    yield Line(profile.identity or "not named", label="identity", indent=2)
    yield Line(profile.config_dir or "where the agent looks by itself", label="login in", indent=2)
    key = f", key in {profile.api_key_env}" if profile.api_key_env else ""
    yield Line(f"{profile.billing}{key}", label="billing", indent=2)
    yield Line(", ".join(profile.env) or "none beside the harmless ones", label="variables", indent=2)


def _verdicts(found: dict[str, tuple[str, str]], broken: Sequence[BrokenProfile]) -> Iterator[Block]:
    if not found and not broken:
        yield Line("no profiles; flyball account add makes one")
    for name, (who, words) in found.items():
        yield Line([Piece(name, Style.STRONG), ": ", Piece(words, Style.BAD) if words else who])
    for one in broken:
        yield Line([Piece("problem: ", Style.BAD), one.words])
