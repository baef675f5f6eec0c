"""A pool's settings as people write and read them: the flags, and each value with where it comes from."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import cast

import msgspec

from flyball.cli.ui.render import Block, Column, Line, Piece, Style, Table, Words
from flyball.cli.ui.units import counted, duration, key_limit, key_pattern, key_rate, key_weight, part, whole
from flyball.core.pool.control.port import TUNING, cap_for
from flyball.core.pool.control.registry import controller_for, load_controller
from flyball.core.pool.plan import first_memory
from flyball.core.pool.setting_table import SETTINGS, USAGE_PARTS, Setting, resolve_pool
from flyball.core.pool.settings import CONTROLLERS, PROFILES, PoolChanges, PoolSettings
from flyball.core.pool.verdict import span_words
from flyball.core.provider.rate_limit_headers import COUNTED
from flyball.core.suggestions import did_you_mean


def add_flag(group: argparse._ArgumentGroup, setting: Setting) -> None:
    """The option of a setting, if it has one."""
    name, flag, help_ = setting.name, setting.flag, setting.help
    if flag is None:
        return
    if setting.negation is not None:
        no, no_help = setting.negation
        either = group.add_mutually_exclusive_group()
        either.add_argument(flag, dest=name, action="store_true", default=None, help=help_)
        either.add_argument(no, dest=name, action="store_false", default=None, help=no_help)
    elif setting.choices:
        group.add_argument(flag, dest=name, choices=setting.choices, help=help_)
    elif setting.named_by is not None:
        pairs = {float: key_weight, int: key_limit, str: key_rate if name == "windows" else key_pattern}
        help_ += "; 0 removes it; repeatable"
        group.add_argument(
            flag,
            dest=name,
            type=pairs[setting.value_type],
            action="append",
            metavar=setting.metavar,
            help=help_,
        )
    else:
        parse: Callable[[str], float] = duration if name.endswith("_s") else whole
        if name in USAGE_PARTS:
            parse = part
        group.add_argument(flag, dest=name, type=parse, metavar=setting.metavar, help=help_)


def named_changes(args: argparse.Namespace) -> PoolChanges:
    """The settings that the command line names, and no others."""
    named = {key: value for key in SETTINGS if (value := getattr(args, key, None)) is not None}
    pairs = {key: dict(value) for key, value in named.items() if SETTINGS[key].named_by}
    return cast(PoolChanges, named | pairs)


@dataclass(frozen=True, slots=True)
class PoolView:
    """What ``pool show --json`` prints: the cap now, what was named, and every setting in force."""

    name: str
    used: bool
    cap_now: int
    named: PoolChanges
    settings: Mapping[str, object]
    unused: tuple[str, ...]
    """What was named, and changes nothing with the others as they are."""


def pool_view(name: str, named: PoolChanges, *, cap_now: int | None) -> PoolView:
    """``cap_now``: None for a pool that was never used."""
    settings = resolve_pool(named)
    unused = tuple(key for key in named if _why_unused(key, settings))
    used, cap = cap_now is not None, cap_now
    if cap is None:
        cap = cap_for(first_memory(settings, 0.0).cap, settings)
    return PoolView(name, used, cap, named, msgspec.to_builtins(settings), unused)


def _why_unused(key: str, settings: PoolSettings) -> str:
    if SETTINGS[key].adaptive_only and not settings.adaptive:
        return "unused while static"
    if SETTINGS[key].adaptive_only and not settings.adapts and key != "controller":
        return f"unused by the controller {settings.controller}"
    if key in TUNING and key not in controller_for(settings).tuned_by:
        return f"unused by the controller {settings.controller}"
    return ""


def _users(key: str, settings: PoolSettings) -> str:
    """The controllers that a setting is for; empty where none would use it while the pool is static."""
    if key not in TUNING or not settings.adaptive:
        return ""
    return ", ".join(name for name in CONTROLLERS if key in load_controller(name).tuned_by)


def one_line(view: PoolView) -> str:
    """What the pool now is, for after a change."""
    s, slots = view.settings, counted(view.cap_now, "slot")
    if not s["adaptive"]:
        words = f"{view.name}: {slots}, fixed; --adaptive lets it find the real limit"
    elif not resolve_pool(view.named).adapts:
        way_out = f"--controller {CONTROLLERS[0]} lets it find the real limit"
        words = f"{view.name}: {slots}, fixed by its controller; {way_out}"
    else:
        words = (
            f"{view.name}: {slots} now, moves between {s['cap_floor']} and {s['cap_ceiling']} "
            f"by itself; --static fixes it at {s['cap']}"
        )
    others = [key for key in view.named if key not in _SAID and s[key] != {}]
    flags = {key: (SETTINGS[key].flag or key).lstrip("-") for key in others}
    return "; ".join([words, *(f"{flags[key]} {_in_force(view, key)}" for key in others)])


_SAID = ("adaptive", "cap", "cap_floor", "cap_ceiling")


def _in_force(view: PoolView, key: str, *, briefly: bool = False) -> str:
    value = value_words(key, view.settings[key])
    if key not in view.unused:
        return value
    settings = resolve_pool(view.named)
    users = "" if briefly else _users(key, settings)
    return f"{value} ({_why_unused(key, settings)}{f'; it is for {users}' if users else ''})"


def window_note(name: str) -> str:
    """What to mind about a window of this name; empty where there is nothing."""
    if name in COUNTED:
        return ""
    meant = did_you_mean(name, COUNTED)
    return f"window {name!r} counts only calls whose cost names it{f'; {meant}' if meant else ''}"


def pool_screen(view: PoolView) -> Iterator[Block]:
    kind = "adaptive" if view.settings["adaptive"] else "static"
    slots = f"{counted(view.cap_now, 'slot')} now"
    state = slots if view.used else "not used yet; it starts like this"
    yield Line([Piece(view.name, Style.STRONG), f"  {kind}, {state}"])
    rows: list[list[Words]] = [[f"--{kind}", "yes", _source(view, "adaptive")]]
    for key, setting in SETTINGS.items():
        used = view.settings["adaptive"] or key in view.named or not setting.adaptive_only
        if setting.flag is not None and setting.negation is None and used:
            rows.append([setting.flag, _in_force(view, key, briefly=True), _source(view, key)])
    yield Table([Column("SETTING"), Column("VALUE"), Column("FROM", wraps=True)], rows)


def value_words(key: str, value: object) -> str:
    if isinstance(value, Mapping):
        words = (f"{name}={v:g}" if not isinstance(v, str) else f"{name}={v}" for name, v in value.items())
        return ", ".join(sorted(words)) or "none"
    if key.endswith("_s") and isinstance(value, (int, float)):
        return SETTINGS[key].at_zero if value == 0 else span_exactly(value)
    if key in USAGE_PARTS and isinstance(value, float | int):
        return f"{value:.0%}" if value else "off"
    return str(value)


def span_exactly(seconds: float) -> str:
    """A duration a person set, without rounding it away.

    >>> [span_exactly(s) for s in (0, 2.5, 120, 90, 3600)]
    ['off', '2.5 s', '2 min', '90 s', '60 min']
    """
    if seconds == 0:
        return "off"
    return span_words(seconds) if seconds >= 120 and seconds % 60 == 0 else f"{seconds:g} s"


def _source(view: PoolView, key: str) -> Words:
    if key in view.named and view.settings[key] != {}:
        return Piece("you", Style.STRONG)
    profile = str(view.settings["profile"])
    if key in PROFILES[profile] and (key != "cap_ceiling" or "cap" not in view.named):
        return f"profile {profile}"
    if key == "cap_ceiling" and view.settings[key] == PROFILES[profile].get(key):
        return f"profile {profile}"
    return Piece(SETTINGS[key].derived or "default", Style.QUIET)
