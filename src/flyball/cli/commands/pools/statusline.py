"""``flyball statusline``: one short line for the status line of Claude Code.

Claude Code runs it after each answer, waits for it, and gives it a record of the session on stdin; with a
subscription the record says how full the account's windows are. So the line must come at once, and what
takes longer is done beside it:

    this process    the windows from stdin, the pool as it was kept -> the line
    a child         tells the pool what is new, looks at the pool, keeps both for the next line

The child is started where something is new or what was kept is older than ``FRESH_S``. What is kept is a
file per login in ``FLYBALL_HOME``; a file that cannot be read is made again. Nothing that fails here may
trouble the session: then the line has less in it.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from contextlib import suppress
from typing import Any

SUMMARY = """Print one short line for Claude Code's status line: how full the account's windows are, when they
reset, and the pool. Reads the record that Claude Code gives on stdin; what it says about the windows reaches
the pool, so interactive sessions are measured too. Set it up in ~/.claude/settings.json:
"statusLine": {"type": "command", "command": "flyball statusline", "refreshInterval": 10}"""
EXAMPLE = """flyball statusline
flyball statusline --pool anthropic:work
echo '{"rate_limits": {"five_hour": {"used_percentage": 72}}}' | flyball statusline --json"""
FRESH_S = 5.0
TOLD_AGAIN_S = 60.0
_LARGEST = 1 << 20
_NAMES = {"five_hour": "5h", "seven_day": "7d", "seven_day_opus": "7d opus", "seven_day_sonnet": "7d sonnet"}

Windows = dict[str, tuple[float, float | None]]
"""By name: the part that is used, and when it resets by the wall clock."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--pool", default="anthropic", help="the pool that sessions belong to (default: anthropic)"
    )
    parser.add_argument("--json", action="store_true", help="the same as a record")


def run(args: argparse.Namespace) -> int:
    args.pool = args.pool or "anthropic"
    now, path = time.time(), _kept_path(args.pool)
    kept = _read_kept(path)
    reported = windows_in(_session_record(), now)
    windows: Windows = {**_kept_windows(kept, now), **reported}
    pool = kept.get("pool") if isinstance(kept.get("pool"), str) else ""
    if args.json:
        known = [
            {"name": name, "used": used, "resets_in_s": None if resets is None else round(resets - now, 1)}
            for name, (used, resets) in windows.items()
        ]
        print(json.dumps({"windows": known, "pool": pool}))
    else:
        print(line(windows, str(pool), now, warn=_number(kept.get("warn"))))
    sys.stdout.flush()
    news = reported if _is_news(reported, kept, now) else {}
    if news or not now - FRESH_S <= _number(kept.get("at")) <= now:
        _beside(args.pool, news, path)
    return 0


def windows_in(record: dict[str, Any], now: float) -> Windows:
    """What a session's record says about the windows; nothing that cannot be believed.

    >>> windows_in({"rate_limits": {"five_hour": {"used_percentage": 72, "resets_at": 4200}}}, 0.0)
    {'5h': (0.72, 4200.0)}
    """
    found: Windows = {}
    told = record.get("rate_limits")
    for name, window in told.items() if isinstance(told, dict) else ():
        used = _number(window.get("used_percentage")) / 100 if isinstance(window, dict) else -1.0
        if name in _NAMES and 0 <= used <= 10:
            resets_at = _number(window.get("resets_at"))
            found[_NAMES[name]] = (used, resets_at if 0 < resets_at - now < 31 * 86400 else None)
    return found


def line(windows: Windows, pool: str, now: float, *, warn: float = 0.0) -> str:
    """``warn``: the part of a window from which on the pool warns; 0 or less: never.

    >>> line({"5h": (0.72, 4200.0), "7d": (0.18, None)}, "anthropic 3/8, 2 waiting", 0.0, warn=0.7)
    '5h 72%! 70 min | 7d 18% | anthropic 3/8, 2 waiting'
    """
    from flyball.core.pool.verdict import span_words

    parts = [
        f"{name} {used * 100:.0f}%"
        + ("!" if 0 < warn <= used else "")
        + (f" {span_words(resets - now)}" if resets is not None else "")
        for name, (used, resets) in sorted(windows.items())
    ]
    return " | ".join([*parts, *([pool] if pool else [])]) or "flyball: nothing measured yet"


def _session_record() -> dict[str, Any]:
    if sys.stdin is None or sys.stdin.isatty():
        return {}
    with suppress(OSError, ValueError, RecursionError):
        found = json.loads(sys.stdin.buffer.read(_LARGEST))
        return found if isinstance(found, dict) else {}
    return {}


def _number(value: object) -> float:
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else -1.0


# -- what is kept from one line to the next ------------------------------------------------------------------


def _kept_path(pool: str) -> str:
    """Without what governor/state_url.py would load: it would cost more than everything else here."""
    import zlib

    home = os.path.expanduser(os.environ.get("FLYBALL_HOME") or "~/.flyball")
    login = f"{os.environ.get('CLAUDE_CONFIG_DIR', '')}\n{pool}"
    return os.path.join(home, "statusline", f"{zlib.crc32(login.encode()):08x}.json")


def _read_kept(path: str) -> dict[str, Any]:
    with suppress(OSError, ValueError, RecursionError), open(path, "rb") as file:
        found = json.loads(file.read(_LARGEST))
        return found if isinstance(found, dict) else {}
    return {}


def _kept_windows(kept: dict[str, Any], now: float) -> Windows:
    found: Windows = {}
    windows = kept.get("windows")
    for name, window in windows.items() if isinstance(windows, dict) else ():
        if isinstance(window, list) and len(window) == 3 and _number(window[2]) > now:
            found[str(name)] = (_number(window[0]), None if window[1] is None else _number(window[1]))
    return found


def _is_news(reported: Windows, kept: dict[str, Any], now: float) -> bool:
    known = _kept_windows(kept, now)
    same = all(name in known and known[name][0] == used for name, (used, _) in reported.items())
    return bool(reported) and not (same and now - _number(kept.get("told_at")) < TOLD_AGAIN_S)


def _beside(pool: str, news: Windows, path: str) -> None:
    """In a child of its own session: Claude Code waits for this process and its output only."""
    with suppress(OSError):
        if os.fork():
            return
        try:
            os.setsid()
            nothing = os.open(os.devnull, os.O_RDWR)
            for number in (0, 1, 2):
                os.dup2(nothing, number)
            _tell_and_look(pool, news, path)
        finally:
            os._exit(0)


def _tell_and_look(pool: str, news: Windows, path: str) -> None:
    from pathlib import Path

    from flyball.cli.shared.usage_windows import account_name
    from flyball.core.budget.usage_windows import UsageReport
    from flyball.governor.account_windows import account_windows
    from flyball.governor.governor import Governor
    from flyball.governor.internals import internals
    from flyball.governor.state_url import home
    from flyball.host.atomic_file import replace_file

    now, governor = time.time(), Governor()
    account = account_name("claude", os.environ, home())
    if news:
        reports = [
            UsageReport(name=name, fraction=used, at=now, resets_at=resets)
            for name, (used, resets) in news.items()
        ]
        internals(governor).windows.tell_reports(pool, account, reports, wall_s=now)
    snapshot = internals(governor).store.snapshot()
    windows = {
        each.name: [
            each.used,
            now + each.resets_in_s if each.resets_in_s is not None else None,
            now + each.over_in_s,
        ]
        for each in account_windows(snapshot, account)
    }
    seen = next((each for each in snapshot.pools if each.name == pool), None)
    words, warn = "", 0.0
    if seen is not None:
        warn = seen.settings.usage_warn
        waiting = f", {seen.waiting} waiting" if seen.waiting else ""
        words = f"{pool} {seen.in_use}/{seen.cap}{waiting}{', closed' if seen.closed_until else ''}"
    kept = {"at": now, "told_at": now if news else _read_kept(path).get("told_at"), "windows": windows}
    Path(path).parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    replace_file(Path(path), json.dumps({**kept, "pool": words, "warn": warn}).encode(), durable=False)
