"""``flyball hooks``: count sessions that flyball did not start, by hooks in the agents' own settings."""

from __future__ import annotations

import argparse
import os
from typing import TYPE_CHECKING

from flyball.cli.ui.render import print_json, say
from flyball.cli.ui.units import duration
from flyball.core.pool.verdict import span_words
from flyball.errors import UsageError
from flyball.hooks.port import WAIT_S
from flyball.hooks.registry import NAMES

if TYPE_CHECKING:
    from flyball.hooks.installation import Installed
    from flyball.hooks.port import HookRuntime

SUMMARY = """Count the sessions that you start yourself, and their subagents. Entries in the agent's own
settings tell flyball what begins and ends: a session takes a slot, also beyond the cap, and a subagent waits
for one before it begins. Without a name: every agent whose settings folder is there. What else the settings
hold stays as it is; `remove` puts back what was there."""
EXAMPLE = """flyball hooks install claude
flyball hooks install claude codex --wait 10m
flyball hooks show --json
flyball hooks remove"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("action", choices=("install", "remove", "show"), help="what to do")
    parser.add_argument("agents", nargs="*", metavar="AGENT", help=f"of {', '.join(NAMES)}")
    parser.add_argument(
        "--wait",
        type=duration,
        metavar="5m",
        help="with install: how long a subagent waits for a slot before it is denied (default 5m)",
    )
    parser.add_argument("--json", action="store_true", help="print JSON")


def run(args: argparse.Namespace) -> int:
    if args.wait is not None and args.action != "install":
        raise UsageError(f"--wait goes with install, not with {args.action}")
    from flyball.hooks.registry import load_hooks

    runtimes = [load_hooks(name) for name in dict.fromkeys(args.agents) or NAMES]
    if not args.agents and args.action == "install":
        runtimes = [each for each in runtimes if _is_here(each)]
        if not runtimes:
            raise UsageError("no agent's settings were found; name one: flyball hooks install claude")
    records, errors = [], []
    for runtime in runtimes:
        try:
            records.append(_act(args, runtime))
        except UsageError as error:
            errors.append(f"{runtime.name}: {error}" if len(runtimes) > 1 else str(error))
    if args.json:
        print_json({"hooks": records})
    if errors:
        raise UsageError("\n".join(errors))
    return 0


def _is_here(runtime: HookRuntime) -> bool:
    """Its folder is there: it is used here."""
    folder = runtime.settings_path(os.environ).parent
    return folder.is_dir() or (folder.name == "plugin" and folder.parent.is_dir())


def _act(args: argparse.Namespace, runtime: HookRuntime) -> dict[str, object]:
    from flyball.hooks.installation import install, read_installed, remove

    changed = False
    if args.action == "install":
        changed = install(runtime, os.environ, wait_s=WAIT_S if args.wait is None else args.wait)
    elif args.action == "remove":
        changed = remove(runtime, os.environ)
    installed = read_installed(runtime, os.environ)
    hint = runtime.hint(os.environ) if installed is not None and args.action != "remove" else ""
    if not args.json:
        _tell(args.action, runtime, installed, changed=changed, hint=hint)
    return {
        "agent": runtime.name,
        "settings": str(runtime.settings_path(os.environ)),
        "installed": installed is not None,
        "changed": changed,
        "events": list(installed.events) if installed is not None else [],
        "python": list(installed.python) if installed is not None else [],
        "lost": list(installed.lost) if installed is not None else [],
        "wait_s": installed.wait_s if installed is not None else None,
        "hint": hint,
    }


def _tell(
    action: str, runtime: HookRuntime, installed: Installed | None, *, changed: bool, hint: str
) -> None:
    path = runtime.settings_path(os.environ)
    if action == "remove":
        say(f"{runtime.name}: {'taken out of' if changed else 'there were none in'} {path}")
        return
    if installed is None:
        say(f"{runtime.name}: none in {path}; flyball hooks install {runtime.name} puts them in")
        return
    verb = "put into" if changed else "installed in" if action == "show" else "already in"
    wait = f"; a subagent waits {span_words(installed.wait_s)} at most" if installed.wait_s else ""
    say(f"{runtime.name}: {verb} {path} ({', '.join(installed.events)}){wait}")
    if changed:
        say(f"{runtime.name}: sessions that run already are counted from their next start on")
    for lost in installed.lost:
        say(f"{runtime.name}: they call {lost}, which is gone; install them again to mend that")
    if hint:
        say(f"{runtime.name}: {hint}")
