"""The reference page of the HTTP API, made from the routes, the limits and the list of metrics.

    python -m flyball.service.reference docs/reference

writes it; a test fails while it does not say what the code says.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from flyball.host.atomic_file import replace_file
from flyball.observe.metrics import METRICS, MOST, OTHER
from flyball.service import app, auth, monitor, server, store_reader, streams, timeline
from flyball.service.tokens import Scope

PAGE = "service.md"

_TOP = """\
# The HTTP API of `flyball serve`

Everything is JSON. Times are relative (`..._s` seconds, `s_ago`), so an answer means the same on any
machine. A no is a problem document (RFC 9457, `application/problem+json`): `type` ends in one word for
scripts, `detail` is a sentence for people. Examples that work: [with curl](service-with-curl.md). For
programs: `GET /v1/openapi.json`.

## Tokens and scopes

On a loopback bind (the default) no token is needed to look, and none by processes of the server's own user:
they may do everything, but for commands that flyball governs, such as agents, which have the scope `lease`.
Other users of the machine change nothing without a token (`403`, `own-user`); where the system does not say
whose a connection is (macOS), no process does. The server answers as localhost only, and pages of other
sites may not change anything. Elsewhere, and with `--require-token`, send `Authorization: Bearer ...`.
`flyball token add NAME --scope SCOPE` makes a token and shows it once; `remove` ends it at once. A token
that is brought is judged in any case.

| scope | may |
|---|---|
| `read` | look at everything |
| `lease` | read, and ask for slots |
| `admin` | lease, and change pools, release what the dead hold |

`401`: no token, or an unknown one. `403`: its scope is too small. Both say so in `WWW-Authenticate`.
"""

_EVENTS = f"""\
## Events

`GET /v1/events` is a stream of server-sent events that ends only with the server. However many watch, the
store is looked at once.

| event | data | when |
|---|---|---|
| `state` | the answer of `GET /v1/status` | at once and on a change; at most every {monitor.TICK_S:g} s |
| `fact` | one of `GET /v1/facts`; its `id` is the event's | when it happened |
| `outage` | `{{"detail": "..."}}` | the store does not answer; a `state` follows when it does again |
| `end` | `{{"detail": "..."}}` | the server is about to end; nothing follows |

Time alone changes nothing: clients count ages and countdowns on by themselves. A comment comes after
{streams.HEARTBEAT_S:g} s without an event. With `Last-Event-ID` the facts since that one are told first.
A client that reads slowly gets the newest state and the last {streams.FACTS_HELD} facts; a gap shows in the
ids, which end in a number that counts up by one.
"""

_LIMITS = f"""\
## Limits

| what | limit | answer |
|---|---|---|
| body of a request | {app.BODY_BYTES // 1024} KiB | 413 |
| request line and headers | {server.HEAD_BYTES // 1024} KiB | 431 |
| time for a request to arrive whole | {server.ARRIVAL_S:g} s | 408 |
| time in which a reader reads nothing | {server.READING_S:g} s | dropped |
| connections | {server.CONNECTIONS:,} | 503 |
| event streams | {streams.MOST_STREAMS:,} | 503 |
| history | {timeline.KEPT_S} s, {timeline.POOLS_KEPT} pools | |
| facts | the newest {store_reader.FACTS_SEEN} | |

A client that closes its half of the connection is taken for gone. A name in a path may contain anything; a
slash in it is written `%2F`. Names are those of the rest of flyball: printable, at most 200 characters.

On SIGTERM and Ctrl-C `/readyz` answers 503, every event stream gets `end`, and {server.DRAIN_S:g} s later
the port closes; what was asked is still answered, for up to {server.ANSWERING_S} s.
"""


def reference_page() -> str:
    parts = [_TOP, _routes(), _EVENTS, *_schemas(), _LIMITS, _metrics()]
    return "\n".join(parts)


def _routes() -> str:
    rows = [
        f"| `{method.upper()} {path}` | {_scope_words(operation)} | {_cell(_description(operation))} |"
        for path, item in app.document()["paths"].items()
        for method, operation in item.items()
    ]
    return "\n".join(["## Routes\n", "| route | scope | |", "|---|---|---|", *rows, ""])


def _scope_words(operation: Mapping[str, Any]) -> str:
    needed = operation.get("security", [{}])[0].get("token")
    return f"`{Scope(needed[0]).value}`" if needed else auth.OPEN


def _description(operation: Mapping[str, Any]) -> str:
    told = str(operation.get("description", ""))
    for given in operation.get("parameters", []):
        if given["in"] in ("query", "header"):
            told += f" `{given['name']}`: {given.get('description', '')}"
            schema = given["schema"]
            if "maximum" in schema:
                told += f" ({schema['minimum']:g} to {schema['maximum']:g}, default {schema.get('default')})"
    return told


_SHOWN = {
    "HistoryView": "`GET /v1/history`",
    "PoolHistory": "A pool in it",
    "FactView": "A fact",
    "PoolRecord": "`GET /v1/pools/{pool}`, and the answer to a change of it",
    "Whoami": "`GET /v1/whoami`",
    "Problem": "A problem",
    "PoolSettingsBody": "The body of `PATCH /v1/pools/{pool}`; [what each means](pool-settings.md)",
    "Status": "`GET /v1/status`",
    "PoolStatus": "A pool in it",
    "LeaseStatus": "A lease",
    "AskStatus": "An ask",
}


def _schemas() -> Iterator[str]:
    known = app.document()["components"]["schemas"]
    yield "## Bodies\n"
    for name, words in _SHOWN.items():
        rows = [
            f"| `{field}` | {_cell(_kind(about))} | {_cell(str(about.get('description', '')))} |"
            for field, about in known[name]["properties"].items()
        ]
        yield "\n".join([f"**{words}** (`{name}`)\n", "| member | type | |", "|---|---|---|", *rows, ""])


def _kind(schema: Mapping[str, Any]) -> str:
    """A type in a few words."""
    for several in ("anyOf", "oneOf"):
        if several in schema:
            return " or ".join(_kind(each) for each in schema[several])
    if "$ref" in schema:
        return f"`{schema['$ref'].rpartition('/')[2]}`"
    kind = schema.get("type", "anything")
    if isinstance(kind, list):
        return " or ".join(kind)
    if kind == "array":
        return f"list of {_kind(schema.get('items', {}))}"
    if kind == "object" and isinstance(schema.get("additionalProperties"), Mapping):
        return f"object of {_kind(schema['additionalProperties'])}"
    if "enum" in schema:
        return " or ".join(f"`{value}`" for value in schema["enum"])
    signs = {"exclusiveMinimum": ">", "minimum": "≥", "maximum": "≤"}
    return " ".join([str(kind), *(f"{sign} {schema[key]:g}" for key, sign in signs.items() if key in schema)])


def _metrics() -> str:
    rows = [
        f"| `{metric.name}` | {metric.kind.value} | {', '.join(metric.labels)} | {_cell(metric.help)} |"
        for metric in METRICS
    ]
    bounds = ", ".join(f"{most} of `{label}`" for label, most in MOST.items() if label in ("pool", "tenant"))
    words = f"""\
`GET /metrics`, for Prometheus; `flyball serve --grafana` prints a board. `flyball_http_...` counts what this
server was asked; `flyball_pool_...` what it sees of the store once a second. Labels are bounded:
{bounds}; what comes later is `{OTHER}`. With the extra `otel` and `OTEL_...` set, the
same goes to OpenTelemetry, with a span for each request.
"""
    return "\n".join(["## Metrics\n", words, "| name | kind | labels | |", "|---|---|---|---|", *rows, ""])


def _cell(words: str) -> str:
    return " ".join(words.split()).replace("|", "\\|")


def main(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    replace_file(folder / PAGE, reference_page().encode(), mode=0o644)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
