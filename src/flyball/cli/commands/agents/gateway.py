"""``flyball gateway``: run the loopback gateway in the foreground, or look at or stop the one that runs."""

from __future__ import annotations

import argparse
import sys

from flyball.cli.ui.render import print_json, say
from flyball.cli.ui.units import whole
from flyball.errors import UsageError

SUMMARY = """A pass-through on this machine's loopback that gives every model call a slot of its own. Programs
reach it by a base address (`flyball env`). Bytes and headers pass as they are, nothing is stored, keys are
the caller's own. It starts by itself where it is needed; `run` keeps one in the foreground."""
EXAMPLE = """flyball gateway run
flyball gateway status --json
flyball gateway stop
flyball env -- python nightly.py"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("action", choices=("run", "status", "stop"), help="what to do")
    parser.add_argument(
        "--port",
        type=whole,
        metavar="N",
        help="with run: the port (default: that of the last time, or a free one)",
    )
    parser.add_argument("--json", action="store_true", help="print JSON")


def run(args: argparse.Namespace) -> int:
    from flyball.gateway import lifetime
    from flyball.host.loopback_port import HOST

    if args.action == "run":
        if args.port is not None and not 0 <= args.port <= 65535:
            raise UsageError(f"--port is between 0 and 65535, not {args.port}")

        from flyball.gateway import server

        def tell(gateway: lifetime.Gateway) -> None:
            if args.json:
                print_json({"port": gateway.port, "host": HOST})
            else:
                say(f"gateway on {HOST}:{gateway.port}; `flyball env` leads to it; Ctrl-C ends it")
            sys.stdout.flush()

        if not server.run_gateway(port=args.port, linger_s=None, on_ready=tell):
            raise UsageError("a gateway runs already; flyball gateway status shows it")
        return 0
    gateway = lifetime.find_gateway()
    said = None if gateway is None else lifetime.ask_gateway(gateway, args.action)
    if args.json:
        print_json({"running": said is not None, **(said or {})})
    elif gateway is None or said is None:
        say("no gateway runs; it starts by itself with `flyball env`, or with `flyball gateway run`")
    elif args.action == "stop":
        say("the gateway stops; calls under way are broken off")
    else:
        say(
            f"gateway on {HOST}:{gateway.port}, pid {said['pid']}: "
            f"{said['connections']} connections, {said['calls']} calls, {said['waiting']} of them waiting, "
            f"needed by {said['users']} processes; {said['refused']} calls were refused so far"
        )
        if said["away"] is not None:
            say(f"its state does not answer: calls go on with the slots they had ({said['away']})")
    return 0
