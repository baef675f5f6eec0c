"""``flyball pool set|show|reset|remove|import``: what a person decides about a pool.

``import`` takes settings and learned state from a koryph ``governor.json``.
"""

from __future__ import annotations

import argparse
import time
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import msgspec

from flyball.cli.parser import add_action
from flyball.cli.ui.pool_settings import (
    PoolView,
    add_flag,
    named_changes,
    one_line,
    pool_screen,
    pool_view,
    window_note,
)
from flyball.cli.ui.render import BLANK, Block, print_json, say, show
from flyball.cli.ui.units import pool_name, size_words
from flyball.core.pool.control.port import cap_for
from flyball.core.pool.model import Phase
from flyball.core.pool.setting_table import SETTING_GROUPS
from flyball.core.pool.settings import DEFAULT_POOL, MachineChanges, MachineSettings, PoolChanges, check_name
from flyball.core.pool.verdict import span_words
from flyball.core.suggestions import did_you_mean
from flyball.errors import UsageError
from flyball.governor import koryph_import
from flyball.governor.governor import Governor
from flyball.governor.internals import internals
from flyball.governor.state_url import open_reader

_LARGEST = 16 << 20


@dataclass(frozen=True, slots=True)
class PoolReport:
    pool: str
    settings: PoolChanges
    cap_now: int
    words: str


@dataclass(frozen=True, slots=True)
class ImportReport:
    file: str
    dry_run: bool
    pools: tuple[PoolReport, ...]
    machine: str
    ignored: tuple[str, ...]


def add_import_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", metavar="FILE", type=Path, help="usually ~/.koryph/governor.json")
    parser.add_argument("--dry-run", action="store_true", help="say what would change, change nothing")


def run_import(args: argparse.Namespace, governor: Governor) -> int:
    document = _read_json(args.file)
    with closing(open_reader(governor.address)) as reader:
        now = reader.now()  # without making a store that is not there yet
    try:
        imported = koryph_import.read(document, wall=time.time(), now=now)
    except UsageError as error:
        raise UsageError(f"{args.file}: {error}; nothing was imported") from error
    if not args.dry_run:
        _write(governor, imported)
    report = ImportReport(
        str(args.file),
        args.dry_run,
        tuple(_pool_report(pool) for pool in imported.pools),
        _machine_words(imported),
        imported.ignored,
    )
    if args.json:
        print_json(report)
    else:
        _say(report)
    return 0


def _read_json(path: Path) -> object:
    try:
        if path.stat().st_size > _LARGEST:
            raise UsageError(f"{path} is too large to be a governor.json")
        content = path.read_bytes()
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror}") from error
    try:
        return msgspec.json.decode(content)
    except msgspec.DecodeError as error:
        raise UsageError(f"{path} is not readable as JSON ({error}); nothing was imported") from error


def _write(governor: Governor, imported: koryph_import.Imported) -> None:
    for pool in imported.pools:
        internals(governor).import_pool(pool.name, pool.changes, pool.memory)
    machine = MachineChanges()
    if imported.ceiling is not None:
        machine["ceiling"] = imported.ceiling
    if imported.memory_floor_bytes:
        machine["memory_floor_bytes"] = imported.memory_floor_bytes
    if imported.resources:
        machine["resources"] = dict(imported.resources)
    governor.change_machine(**machine)


def _pool_report(pool: koryph_import.ImportedPool) -> PoolReport:
    cap_now = cap_for(pool.memory.cap, pool.settings)
    words = [one_line(pool_view(pool.name, pool.changes, cap_now=cap_now))]
    if pool.memory.cap.throttle_count:
        words.append(f"{pool.memory.cap.throttle_count} throttles counted")
    breaker = pool.memory.breaker
    if breaker.phase is Phase.OPEN:
        words.append(f"breaker open, for {span_words(breaker.open_until - breaker.since)} since it opened")
    elif breaker.phase is Phase.TRIAL:
        words.append("breaker half open: the next ask becomes the trial")
    return PoolReport(pool.name, pool.changes, cap_now, "; ".join(words))


def _machine_words(imported: koryph_import.Imported) -> str:
    settings = MachineSettings(imported.ceiling, imported.memory_floor_bytes, imported.resources)
    words = []
    if settings.ceiling is not None:
        words.append(f"ceiling {settings.ceiling}")
    if settings.memory_floor_bytes is not None:
        words.append(f"memory floor {size_words(settings.memory_floor_bytes)}")
    words += [f"{kind}={count}" for kind, count in sorted(settings.resources.items())]
    return ", ".join(words)


def _say(report: ImportReport) -> None:
    say(f"{'would import' if report.dry_run else 'imported'} {report.file}")
    for pool in report.pools:
        say(f"  {pool.words}")
    if report.machine:
        say(f"  machine: {report.machine}")
    if report.ignored:
        say(f"  left out, because flyball has nothing like it: {', '.join(report.ignored)}")


SUMMARY = "Set, show, reset, remove or import a pool. A set changes only what it names."
EXAMPLE = """flyball pool set anthropic --cap 12
flyball pool show anthropic"""

_SET_EXAMPLE = """flyball pool set anthropic --cap 12 --spacing 3s
flyball pool set openai --static --cap 4
flyball pool set anthropic --share strict --weight blog=2 --max shop=3
flyball pool set openai --window requests=500/min --window tokens=200k/min
flyball pool set anthropic --allotment even --grace 30s"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(title="actions", metavar="ACTION", dest="action", required=True)
    _add_set(add_action(actions, "set", "change settings of a pool", _SET_EXAMPLE))
    shown = add_action(
        actions, "show", "show the settings and where each comes from", "flyball pool show anthropic"
    )
    shown.add_argument(
        "name", nargs="?", type=pool_name, metavar="NAME", help="the pool (default: all in use)"
    )
    reset = add_action(
        actions,
        "reset",
        "forget what a pool learned, keep its leases",
        "flyball pool reset anthropic\nflyball pool reset anthropic --settings",
    )
    reset.add_argument("name", type=pool_name, metavar="NAME", help="the pool")
    reset.add_argument("--settings", action="store_true", help="its settings go back to the defaults, too")
    removed = add_action(
        actions,
        "remove",
        "forget a pool that is not in use, with its settings and its history",
        "flyball pool remove demo",
    )
    removed.add_argument("name", metavar="NAME", help="the pool")
    imported = add_action(
        actions, "import", "take over a koryph governor.json", "flyball pool import ~/.koryph/governor.json"
    )
    add_import_arguments(imported)
    for action in (shown, reset, removed, imported):
        action.add_argument("--json", action="store_true", help="the result as JSON")


def _add_set(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "name", type=pool_name, metavar="NAME", help="the pool; any name, made when first used"
    )
    for title, settings in SETTING_GROUPS.items():
        group = parser.add_argument_group(title)
        for setting in settings:
            add_flag(group, setting)
    parser.add_argument("--json", action="store_true", help="the result as JSON")


def run(args: argparse.Namespace) -> int:
    actions = {"set": _set, "show": _show, "reset": _reset, "remove": _remove, "import": run_import}
    act = actions[args.action]
    with closing(Governor()) as governor:
        return act(args, governor)


def _set(args: argparse.Namespace, governor: Governor) -> int:
    changes = named_changes(args)
    if not changes:
        raise UsageError(f"nothing to set; for example: flyball pool set {args.name} --cap 12")
    known = [pool.name for pool in governor.status().pools]
    governor.set_pool(check_name("pool", args.name), **changes)
    view = _views(governor, args.name)[0]
    if args.json:
        print_json(view)
        return 0
    say(one_line(view))
    for window in changes.get("windows", {}):
        if window in view.named.get("windows", {}) and (note := window_note(window)):
            say(note)
    if args.name not in known and (meant := did_you_mean(args.name, known)):
        say(f"this is a new pool; {meant}")
    return 0


def _show(args: argparse.Namespace, governor: Governor) -> int:
    views = _views(governor, args.name)
    if args.json:
        print_json(views[0] if args.name is not None else views)
        return 0
    blocks: list[Block] = []
    for view in views:
        blocks += [*pool_screen(view), BLANK]
    show(blocks[:-1])
    return 0


def _views(governor: Governor, name: str | None) -> list[PoolView]:
    """The pools in use, or one; a pool that was never used is shown as it would start."""
    with closing(open_reader(governor.address)) as reader:
        snapshot = reader.snapshot()
    views = [
        pool_view(pool.name, pool.named, cap_now=pool.cap)
        for pool in snapshot.pools
        if name in (None, pool.name)
    ]
    return views or [pool_view(name or DEFAULT_POOL, {}, cap_now=None)]


def _reset(args: argparse.Namespace, governor: Governor) -> int:
    _check_known(args.name, governor)
    governor.reset_pool(args.name, settings=args.settings)
    view = _views(governor, args.name)[0]
    if args.json:
        print_json(view)
    else:
        say(one_line(view))
        kept = (
            "its settings are the defaults again, leases stay"
            if args.settings
            else "settings and leases stay"
        )
        say(f"forgot its throttles, settle and breaker; {kept}")
    return 0


def _remove(args: argparse.Namespace, governor: Governor) -> int:
    _check_known(args.name, governor)
    governor.remove_pool(args.name)
    if args.json:
        print_json({"removed": args.name})
    else:
        say(f"removed {args.name}, with its settings, what it learned and its history")
    return 0


def _check_known(name: str, governor: Governor) -> None:
    known = [pool.name for pool in governor.status().pools]
    if name not in known:
        hint = did_you_mean(name, known) or f"in use: {', '.join(known) or 'none yet'}"
        raise UsageError(f"there is no pool {name!r}; {hint}")
