"""``flyball persona list|show|install``: who the agents of a project are told to be."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path

from flyball.cli.parser import add_action
from flyball.cli.ui.render import BLANK, Block, Column, Line, Piece, Style, Table, Words, print_json, show
from flyball.cli.ui.units import command
from flyball.factory.agents.personas import (
    BUNDLED,
    IMPLEMENTER,
    InstallState,
    Persona,
    Planned,
    find_persona,
    known_names,
    plan_install,
    write_install,
)
from flyball.factory.project.config import ProjectConfig
from flyball.factory.project.config_reader import load_config
from flyball.factory.project.paths import find_root

SUMMARY = """List and show the personas of a project, its own and the bundled ones, or write the bundled ones
into it, where you can change them."""
EXAMPLE = """flyball persona list
flyball persona show reviewer
flyball persona install reviewer --dry-run"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(title="actions", metavar="ACTION", dest="action", required=True)
    listing = add_action(actions, "list", "which there are, and who uses them", "flyball persona list")
    showing = add_action(actions, "show", "what one is told", "flyball persona show reviewer")
    showing.add_argument("name", metavar="NAME", help="the persona")
    installing = add_action(
        actions,
        "install",
        "write bundled ones into the project; a file that you changed stays",
        "flyball persona install --dry-run\nflyball persona install reviewer",
    )
    installing.add_argument("names", metavar="NAME", nargs="*", help="which (default: all of them)")
    installing.add_argument(
        "--dry-run", action="store_true", help="show what would be written, write nothing"
    )
    installing.add_argument("--force", action="store_true", help="overwrite files that were changed")
    for action in (listing, showing, installing):
        action.add_argument("--json", action="store_true", help="the result as JSON")


def run(args: argparse.Namespace) -> int:
    root = find_root(Path.cwd())
    act = {"list": _list, "show": _show, "install": _install}[args.action]
    act(root, load_config(root), args)
    return 0


# -- looking ----------------------------------------------------------------------------------------------


def _list(root: Path, config: ProjectConfig, args: argparse.Namespace) -> None:
    found = [find_persona(root, name) for name in known_names(root)]
    users = used_by(config)
    if args.json:
        told = [{**asdict(each), "used_by": users.get(each.name, [])} for each in found]
        print_json({"personas": told})
    else:
        show(_screen(found, users))


def used_by(config: ProjectConfig) -> dict[str, list[str]]:
    """What each persona that is used is used for."""
    users = {IMPLEMENTER: ["implement"]}
    for name, part in config.stages.items():
        users.setdefault(part.persona or name, []).append(name)
    if config.review.on:
        users.setdefault(config.review.persona, []).append("review")
    return users


def _screen(found: Sequence[Persona], users: dict[str, list[str]]) -> Iterator[Block]:
    rows: list[list[Words]] = [
        [each.name, each.where, ", ".join(users.get(each.name, [])), each.description] for each in found
    ]
    columns = [Column("PERSONA"), Column("FROM"), Column("USED FOR"), Column("", wraps=True)]
    yield Table(columns, rows, indent=0)
    yield BLANK
    if any(each.where == BUNDLED for each in found):
        yield Line(f"{command('persona', 'install', '--dry-run')} shows them as files of yours", label="next")


def _show(root: Path, config: ProjectConfig, args: argparse.Namespace) -> None:
    found = find_persona(root, args.name)
    if args.json:
        print_json({**asdict(found), "used_by": used_by(config).get(found.name, [])})
        return
    effort = f", effort {found.effort}" if found.effort else ""
    show([Line([Piece(found.name, Style.STRONG), f"  {found.where}{effort}"]), BLANK])
    show([Line(line) for line in found.text.splitlines()])


# -- installing -------------------------------------------------------------------------------------------


def _install(root: Path, config: ProjectConfig, args: argparse.Namespace) -> None:
    plan = plan_install(root, args.names, runtime=config.agent.runtime, force=args.force)
    written = [] if args.dry_run else write_install(root, plan)
    if args.json:
        files = [{**asdict(each), "state": each.state.value} for each in plan]
        print_json({"dry_run": args.dry_run, "files": files, "written": written})
    elif args.dry_run:
        show(_proposal(plan, args))
    else:
        show(Line(f"wrote {path}") for path in written)
        show(_kept_files(plan))
        if written:
            show([Line("look at them and commit them; agents cannot change them", label="next")])


def _proposal(plan: Sequence[Planned], args: argparse.Namespace) -> Iterator[Block]:
    for each in plan:
        if each.writes:
            yield Line(Piece(each.path, Style.STRONG))
            for line in each.content.splitlines():
                yield Line(line, indent=4)
            yield BLANK
    yield from _kept_files(plan)
    again = command("persona", "install", *args.names, *(["--force"] if args.force else []))
    wanted = any(each.writes for each in plan)
    yield Line(f"Nothing was written. To write: {again}" if wanted else "Nothing is missing.")


def _kept_files(plan: Sequence[Planned]) -> Iterator[Block]:
    for each in plan:
        if each.state is InstallState.CURRENT:
            yield Line(f"{each.path} is there already")
        elif each.state is InstallState.CHANGED and not each.writes:
            yield Line(f"{each.path} was changed and stays as it is; --force overwrites it")
