"""``flyball machine set|show``: limits over all pools of this machine. All off by default."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from contextlib import closing
from dataclasses import asdict

from flyball.cli.parser import add_action
from flyball.cli.ui.render import Block, Column, Line, Piece, Style, Table, Words, print_json, show
from flyball.cli.ui.units import key_limit, size_or_off, size_words, whole_or_off
from flyball.core.pool.settings import MachineChanges, check_name
from flyball.errors import UsageError
from flyball.governor.governor import Governor
from flyball.governor.status import MachineStatus
from flyball.host.resources import cpu_pressure, free_bytes, total_bytes

SUMMARY = "Set or show the limits over all pools. A set changes only what it names; all are off by default."
EXAMPLE = """flyball machine set --ceiling 20 --memory-floor 2GiB --resource docker=2
flyball machine set --cpu-pressure 60
flyball machine show"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(title="actions", metavar="ACTION", dest="action", required=True)
    setting = add_action(actions, "set", "change the machine's limits", EXAMPLE.splitlines()[0])
    # A default that is not None: None is what `off` means.
    setting.add_argument(
        "--ceiling",
        type=whole_or_off,
        default=argparse.SUPPRESS,
        metavar="N|off",
        help="at most N slots in use over all pools",
    )
    setting.add_argument(
        "--memory-floor",
        type=size_or_off,
        default=argparse.SUPPRESS,
        metavar="2GiB|off",
        help="start nothing while less memory is free",
    )
    setting.add_argument(
        "--cpu-pressure",
        type=whole_or_off,
        default=argparse.SUPPRESS,
        metavar="PERCENT|off",
        help="start nothing while work waits for a CPU for more than this part of the time",
    )
    setting.add_argument(
        "--resource",
        type=key_limit,
        action="append",
        default=[],
        metavar="KIND=N",
        help="how many of a kind exist (docker=2); 0 removes it; repeatable",
    )
    shown = add_action(actions, "show", "show the machine's limits and use", "flyball machine show --json")
    for action in (setting, shown):
        action.add_argument("--json", action="store_true", help="the result as JSON")


def run(args: argparse.Namespace) -> int:
    with closing(Governor()) as governor:
        if args.action == "set":
            _set(governor, args)
        machine = governor.status().machine
    if args.json:
        now = {"memory_free_bytes": free_bytes(), "cpu_pressure_now": cpu_pressure()}
        print_json({**asdict(machine), **now})
    else:
        show(machine_screen(machine, free_bytes(), total_bytes(), cpu_pressure()))
    return 0


def _set(governor: Governor, args: argparse.Namespace) -> None:
    named = [name for name in ("ceiling", "memory_floor", "cpu_pressure") if hasattr(args, name)]
    if not args.resource and not named:
        raise UsageError("nothing to set; for example: flyball machine set --ceiling 20")
    changes = MachineChanges()
    if hasattr(args, "ceiling"):
        changes["ceiling"] = args.ceiling
    if hasattr(args, "memory_floor"):
        changes["memory_floor_bytes"] = args.memory_floor
    if hasattr(args, "cpu_pressure"):
        changes["cpu_pressure"] = args.cpu_pressure
    if args.resource:
        changes["resources"] = {check_name("resource", kind): count for kind, count in args.resource}
    governor.change_machine(**changes)


def machine_screen(
    machine: MachineStatus, memory_free: int | None, memory_total: int | None, pressure: float | None = None
) -> Iterator[Block]:
    floor = machine.memory_floor_bytes
    free = f"{size_words(memory_free)} free" if memory_free is not None else "unknown here"
    rows: list[list[Words]] = [
        [
            "--ceiling",
            str(machine.ceiling) if machine.ceiling is not None else "off",
            f"{machine.in_use} in use",
        ],
        ["--memory-floor", size_words(floor) if floor is not None else "off", free],
        [
            "--cpu-pressure",
            f"{machine.cpu_pressure} %" if machine.cpu_pressure is not None else "off",
            f"{pressure:.0f} %" if pressure is not None else "unknown here",
        ],
    ]
    for kind in sorted({*machine.resources, *machine.resources_in_use}):
        used = machine.resources_in_use.get(kind, 0)
        rows.append([f"--resource {kind}", str(machine.resources.get(kind, 0)), f"{used} in use"])
    limits = (machine.ceiling, floor, machine.cpu_pressure)
    limited = any(limit is not None for limit in limits) or machine.resources
    words = (
        "Over all pools of this machine:" if limited else "No limit over all pools: each pool has its own."
    )
    yield Line(words)
    yield Table([Column("LIMIT"), Column("VALUE"), Column("NOW", wraps=True)], rows)
    if floor is not None and memory_total is not None and floor > memory_total:
        has = f"this machine has {size_words(memory_total)} of memory in all"
        yield Line(
            f"nothing will start: {has}; flyball machine set --memory-floor off", Piece("careful", Style.WARN)
        )
