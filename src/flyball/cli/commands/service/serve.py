"""``flyball serve``: the governor over HTTP, for any language, and the page that shows it."""

from __future__ import annotations

import argparse
import os
from importlib.util import find_spec
from typing import TYPE_CHECKING

from flyball.cli.ui.render import say
from flyball.cli.ui.units import whole
from flyball.errors import UsageError
from flyball.host.install_hints import extra_command

if TYPE_CHECKING:
    import socket

    from flyball.governor.governor import Governor
    from flyball.observe.metrics import MetricRegistry
    from flyball.observe.otel import Telemetry

SUMMARY = """Serve the state over HTTP: a web page at /, an API under /v1, metrics. On this machine
only, and without a token, unless --host says otherwise. Ctrl-C ends it."""
EXAMPLE = """flyball serve --open
flyball token add ops --scope admin && flyball serve --host 0.0.0.0
flyball serve --grafana > board.json"""

HOST, PORT = "127.0.0.1", 8790


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--host", default=HOST, help=f"where to listen ({HOST}); beyond this machine only with a token"
    )
    parser.add_argument(
        "--port", type=whole, default=PORT, metavar="N", help=f"the port ({PORT}); 0 takes any that is free"
    )
    parser.add_argument(
        "--url", metavar="ADDRESS", help="where the state is (default: FLYBALL_URL, or the home)"
    )
    parser.add_argument("--open", action="store_true", help="open the page in a browser")
    parser.add_argument(
        "--require-token",
        action="store_true",
        help="ask for a token on this machine, too: behind a proxy, or where others have accounts",
    )
    parser.add_argument("--access-log", action="store_true", help="a line for every request, on stderr")
    parser.add_argument("--json", action="store_true", help="everything it says as JSON, one object a line")
    parser.add_argument("--grafana", action="store_true", help="print a board for Grafana, and serve nothing")


def run(args: argparse.Namespace) -> int:
    if args.grafana:
        from flyball.observe.grafana import board

        print(board(), end="")
        return 0
    if not 0 <= args.port <= 65535:
        raise UsageError(f"--port is between 0 and 65535, not {args.port}")
    missing = [name for name in ("litestar", "uvicorn", "httptools") if find_spec(name) is None]
    if missing:
        raise UsageError(f"flyball serve needs {', '.join(missing)}; install with: {extra_command('serve')}")
    _serve(args)
    return 0


def _serve(args: argparse.Namespace) -> None:
    from flyball.governor.governor import Governor
    from flyball.governor.state_url import home
    from flyball.observe.metrics import MetricRegistry
    from flyball.service import server
    from flyball.service.state import Service
    from flyball.service.tokens import TokenFile, TokenStore

    governor = Governor(args.url)
    # A state that cannot be read is an error of this command, not of the first request.
    governor.status()
    keyring, registry = TokenStore(TokenFile(home())), MetricRegistry()
    with server.bind(args.host, args.port) as place:
        access = server.access_for(place, keyring, host=args.host, require_token=args.require_token)
        telemetry = _telemetry(registry)
        server.set_up(as_json=args.json, access_log=args.access_log)
        service = Service(governor, access, registry=registry)
        ready = _Announcement(place, governor, as_json=args.json, opens=args.open)
        try:
            server.serve(place, server.server_for(service, tracing=telemetry, on_ready=ready.tell))
        finally:
            if telemetry is not None:
                telemetry.close()


def _telemetry(registry: MetricRegistry) -> Telemetry | None:
    from flyball.observe.otel_wanted import is_wanted

    if not is_wanted(os.environ):
        return None
    if find_spec("opentelemetry") is None or find_spec("opentelemetry.sdk") is None:
        raise UsageError(
            "OTEL_... asks for OpenTelemetry, which is not installed; "
            f"install it with: {extra_command('otel')}, or unset OTEL_..."
        )
    from flyball.observe.otel import from_environment

    return from_environment(registry, os.environ)


class _Announcement:
    """What is said once it listens."""

    def __init__(self, place: socket.socket, governor: Governor, *, as_json: bool, opens: bool) -> None:
        from flyball.service.server import url_of

        self._url, self._location = url_of(place), governor.place
        self._as_json, self._opens = as_json, opens

    def tell(self) -> None:
        if self._as_json:
            import json

            print(json.dumps({"url": self._url, "location": self._location}), flush=True)
        else:
            say(f"serving {self._location}")
            say(f"the page is at {self._url} (Ctrl-C ends)")
        if self._opens:
            import threading
            import webbrowser

            # A browser may take its time, or run in this terminal: it is not waited for. Not by start_thread:
            # it would inherit that thread's blocked signals.
            threading.Thread(target=webbrowser.open, args=(self._url,), daemon=True).start()
