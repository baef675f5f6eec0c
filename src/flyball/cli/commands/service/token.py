"""``flyball token add|list|remove``: who may talk to ``flyball serve``, and what each may do."""

from __future__ import annotations

import argparse

from flyball.cli.parser import add_action
from flyball.cli.ui.render import Block, Column, Line, Table, Words, print_json, say, show
from flyball.cli.ui.units import command
from flyball.governor.state_url import home
from flyball.service.tokens import Scope, Token, TokenFile

SUMMARY = "Add, list or remove the tokens of flyball serve. A token is shown once, when it is added."
EXAMPLE = """flyball token add ci --scope lease
flyball token list"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(title="actions", metavar="ACTION", dest="action", required=True)
    adding = add_action(actions, "add", "make a token and show it", "flyball token add ci --scope lease")
    adding.add_argument("name", metavar="NAME", help="whose it is; any name that is not taken")
    adding.add_argument(
        "--scope",
        choices=[scope.value for scope in Scope],
        default=Scope.READ.value,
        help="what it may do: look (read), ask for slots too (lease), change pools too (admin)",
    )
    listing = add_action(actions, "list", "show which tokens there are", "flyball token list")
    removing = add_action(actions, "remove", "end a token, at once", "flyball token remove ci")
    removing.add_argument("name", metavar="NAME", help="whose it was")
    for action in (adding, listing, removing):
        action.add_argument("--json", action="store_true", help="the result as JSON")


def run(args: argparse.Namespace) -> int:
    file = TokenFile(home())
    act = {"add": _add, "list": _list, "remove": _remove}[args.action]
    act(file, args)
    return 0


def _add(file: TokenFile, args: argparse.Namespace) -> None:
    token = file.add(args.name, Scope(args.scope))
    if args.json:
        print_json({"name": args.name, "scope": args.scope, "token": token})
        return
    # The token alone on its line, so that it can be taken from there.
    say(token)
    say(f"this is shown once; {args.name} may {args.scope}, until {command('token', 'remove', args.name)}")


def _list(file: TokenFile, args: argparse.Namespace) -> None:
    tokens = file.read()
    if args.json:
        told = [{"name": token.name, "scope": token.scope.value, "added": token.added} for token in tokens]
        print_json({"tokens": told})
    else:
        show(token_screen(tokens))


def token_screen(tokens: tuple[Token, ...]) -> list[Block]:
    if not tokens:
        return [Line("No tokens. On this machine none is needed; flyball token add NAME makes one.")]
    rows: list[list[Words]] = [[token.name, token.scope.value, token.added] for token in tokens]
    return [Table([Column("TOKEN"), Column("MAY"), Column("ADDED")], rows, indent=0)]


def _remove(file: TokenFile, args: argparse.Namespace) -> None:
    removed = file.remove(args.name)
    if args.json:
        print_json({"removed": removed.name, "scope": removed.scope.value})
    else:
        say(f"removed the token {removed.name}; requests that bring it are refused from now on")
