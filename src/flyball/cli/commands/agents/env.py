"""``flyball env``: lead a program's model calls through the gateway, by its base addresses."""

from __future__ import annotations

import argparse
import os
import shlex

from flyball.cli.ui.render import print_json, say
from flyball.cli.ui.units import whole
from flyball.errors import UsageError

SUMMARY = """Lead the model calls of a command through the gateway: each call takes a slot of its provider's
pool and gives it back when its answer is over. Works for every program that honours ANTHROPIC_BASE_URL,
OPENAI_BASE_URL or GOOGLE_GEMINI_BASE_URL and has a key in the environment. Without a command, prints the
variables for your shell, and the gateway stays until `flyball gateway stop`."""
EXAMPLE = """flyball env -- python nightly.py
eval "$(flyball env)"
flyball env --project blog --name t-14 -- claude -p "fix the failing tests"
subscription logins are never led through it: only calls with a key of your own"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--pool", help="the limited resource (default: by the provider's host)")
    parser.add_argument("--project", help="who competes for fairness (default: the repository's name)")
    parser.add_argument("--name", help="the name in status and messages (default: command and pid)")
    parser.add_argument("--priority", type=whole, default=0, help="higher first; above 0 may use the reserve")
    parser.add_argument("--json", action="store_true", help="print the variables as JSON")
    parser.add_argument("command", nargs=argparse.REMAINDER, metavar="-- CMD ...", help="what to run")


def run(args: argparse.Namespace) -> int:
    from flyball.gateway.agent_route import GATEWAY_VARIABLE
    from flyball.gateway.environment import VENDORS, gateway_variables, has_key
    from flyball.gateway.lifetime import GatewayConnection, ask_gateway, ensure_gateway
    from flyball.governor.ask import default_name, default_project

    argv = args.command[1:] if args.command[:1] == ["--"] else args.command
    if argv and args.json:
        raise UsageError("--json prints the variables; leave it out where a command is given")
    project = args.project if args.project is not None else default_project()
    name = args.name if args.name is not None else default_name(argv[0] if argv else "shell")
    if not any(has_key(vendor, os.environ) for vendor in VENDORS):
        keys = ", ".join(key for vendor in VENDORS for key in vendor.keys)
        raise UsageError(
            f"the environment has no key to lead through the gateway ({keys}); a subscription's login is "
            "not led through it: use flyball exec for those"
        )
    gateway = ensure_gateway()
    added = gateway_variables(
        os.environ,
        gateway.address,
        project=project,
        name=name,
        pool=args.pool or None,
        priority=args.priority,
    )
    added[GATEWAY_VARIABLE] = "1"
    if argv:
        from flyball.governor.launch.gated_child import GatedChild, die_like, passing_on

        gateway_connection = GatewayConnection(
            gateway
        )  # its connection is inherited: the gateway stays as long as the command
        child = GatedChild(argv, {**os.environ, **added})
        with passing_on(child.pid):
            child.open_gate()
            gateway_connection.watch()
            status = child.wait()
        gateway_connection.close()
        return die_like(status)
    ask_gateway(gateway, "stay")
    if args.json:
        print_json(added)
    else:
        for variable, value in added.items():
            say(f"export {variable}={shlex.quote(value)}")
    return 0
