"""``flyball project add|list|show|remove|undo``: which projects this machine knows."""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterator
from pathlib import Path

from flyball.cli.parser import add_action
from flyball.cli.ui.render import Block, Column, Line, Piece, Style, Table, Words, print_json, say, show
from flyball.cli.ui.units import shown_path, shown_words
from flyball.errors import UsageError
from flyball.factory.project.config import ProjectConfig
from flyball.factory.project.config_reader import load_config
from flyball.factory.project.paths import find_root
from flyball.factory.project.registry import Entry, Listing, ProjectRegistry
from flyball.governor.state_url import home

SUMMARY = "Add, list, show or remove the projects of this machine. Every change can be undone."
EXAMPLE = """flyball project add
flyball project list"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(title="actions", metavar="ACTION", dest="action", required=True)
    added = add_action(
        actions, "add", "register a project; flyball run does it by itself", "flyball project add ~/blog"
    )
    added.add_argument(
        "path", nargs="?", type=Path, metavar="PATH", help="a folder of it (default: this one)"
    )
    listed = add_action(actions, "list", "list the registered projects", "flyball project list --json")
    shown = add_action(actions, "show", "show a project and its settings", "flyball project show blog")
    shown.add_argument("id", nargs="?", metavar="ID", help="the project (default: the one of this folder)")
    removed = add_action(
        actions, "remove", "forget a project; nothing in its folder changes", "flyball project remove blog"
    )
    removed.add_argument("id", metavar="ID", help="the project")
    undone = add_action(actions, "undo", "take the registry's last change back", "flyball project undo")
    for action in (added, listed, shown, removed, undone):
        action.add_argument("--json", action="store_true", help="the result as JSON")


def run(args: argparse.Namespace) -> int:
    act = {"add": _add, "list": _list, "show": _show, "remove": _remove, "undo": _undo}[args.action]
    return act(args, ProjectRegistry(home()))


# -- changing -------------------------------------------------------------------------------------


def _add(args: argparse.Namespace, registry: ProjectRegistry) -> int:
    if args.path is not None and not os.path.isdir(args.path):
        raise UsageError(f"there is no folder {args.path}; name a folder of the project")
    root = find_root(args.path or Path.cwd())
    project_id = load_config(root).project.id
    changed = registry.add(project_id, root)
    if args.json:
        print_json({**_record(registry.get(project_id)), "changed": changed})
    else:
        say(f"{project_id} is {'now' if changed else 'already'} registered at {root}")
    return 0


def _remove(args: argparse.Namespace, registry: ProjectRegistry) -> int:
    registry.remove(args.id)
    if args.json:
        print_json({"id": args.id, "removed": True})
    else:
        say(f"forgot {args.id}; nothing in its folder has changed (flyball project undo brings it back)")
    return 0


def _undo(args: argparse.Namespace, registry: ProjectRegistry) -> int:
    taken_back = registry.undo()
    if args.json:
        print_json({"undone": taken_back})
    else:
        say(f"took back: {taken_back}")
    return 0


# -- looking --------------------------------------------------------------------------------------


def _list(args: argparse.Namespace, registry: ProjectRegistry) -> int:
    listing = registry.list()
    if args.json:
        broken = [
            {"id": one.id, "file": shown_path(one.file), "words": shown_words(one.words)}
            for one in listing.broken
        ]
        print_json({"projects": list(map(_record, listing.entries)), "broken": broken})
    else:
        show(_table(listing))
    return 1 if listing.broken else 0


def _record(entry: Entry) -> dict[str, object]:
    return {
        "id": entry.id,
        "path": shown_path(entry.path),
        "added": entry.added,
        "exists": os.path.isdir(entry.path),
    }


def _table(listing: Listing) -> Iterator[Block]:
    if listing.entries:
        gone = Piece("the folder is gone", Style.WARN)
        rows: list[list[Words]] = [
            [entry.id, shown_path(entry.path), "" if os.path.isdir(entry.path) else gone]
            for entry in listing.entries
        ]
        yield Table([Column("PROJECT"), Column("PATH"), Column("")], rows, indent=0)
    elif not listing.broken:
        yield Line("no project is registered; flyball project add, or flyball run, registers one")
    for one in listing.broken:
        yield Line([Piece("problem: ", Style.BAD), one.words])


def _show(args: argparse.Namespace, registry: ProjectRegistry) -> int:
    entry: Entry | None
    if args.id:
        entry = registry.get(args.id)
        root = entry.path
    else:
        root = find_root(Path.cwd())
        entry = next((entry for entry in registry.list().entries if entry.path == root), None)
    try:
        config, wrong = load_config(root), ""
    except UsageError as error:
        config, wrong = None, str(error)
    if args.json:
        seen = {"path": shown_path(root), "exists": os.path.isdir(root), "registered": entry is not None}
        named = {"id": config.project.id if config else entry.id if entry else None}
        print_json(
            {**named, **seen, "config": config and _summary(config), "problem": shown_words(wrong) or None}
        )
    else:
        show(_screen(root, entry, config, wrong))
    return 1 if wrong else 0


def _screen(root: Path, entry: Entry | None, config: ProjectConfig | None, wrong: str) -> Iterator[Block]:
    named = config.project.id if config is not None else entry.id if entry is not None else root.name
    yield Line([Piece(named, Style.STRONG), f"  {shown_path(root)}"])
    if not os.path.isdir(root):
        gone = f"the folder is gone; if it moved: flyball project remove {named}, then add it where it is"
        yield Line(Piece(gone, Style.WARN), indent=2)
        return
    since = (
        f"since {entry.added}" if entry is not None else "no; flyball project add, or flyball run, does it"
    )
    yield Line(since, label="known", indent=2)
    if config is None:
        yield Line([Piece("problem: ", Style.BAD), wrong], indent=2)
        return
    yield from _settings(config)


def _settings(config: ProjectConfig) -> Iterator[Block]:
    agent, run, merge = config.agent, config.run, config.merge
    with_model = f", model {agent.model}" if agent.model else ""
    called = f", called as {' '.join(agent.command)}" if agent.command else ""
    yield Line(f"{agent.runtime}{with_model}{called}", label="agent", indent=2)
    yield Line(f"{run.width} at once, {run.mode}, {run.attempts} attempts", label="run", indent=2)
    where = {"files": f" in {config.tasks.folder}/", "github": f" labelled {config.tasks.label}"}
    source = f"{config.tasks.source}{where.get(config.tasks.source, '')}"
    yield Line(f"from {source}", label="tasks", indent=2)
    gate = "not declared"
    if config.gate.commands is not None:
        gate = "; ".join(config.gate.commands) or "none: work lands unchecked"
    yield Line(gate, label="gate", indent=2)
    pushed = ", then pushed" if merge.push else ""
    yield Line(f"{merge.policy}{pushed}", label="merge", indent=2)
    yield Line(", ".join(["the defaults", *merge.protected]), label="protected", indent=2)


def _summary(config: ProjectConfig) -> dict[str, object]:
    """Without what may hold secrets, such as an agent's environment."""
    return {
        "source": config.tasks.source,
        "runtime": config.agent.runtime,
        "model": config.agent.model,
        "width": config.run.width,
        "mode": config.run.mode,
        "gate": config.gate.commands,
        "policy": config.merge.policy,
        "push": config.merge.push,
        "protected": config.merge.protected,
    }
