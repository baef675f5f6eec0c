"""A provider with a hidden capacity behind a real HTTP port, on the loopback only.

    POST /v1/messages           served in tokens / tokens_per_s seconds, or refused with 429 and retry-after
    POST /v1/chat/completions   the same in OpenAI's API; and /v1/responses
    POST /v1beta/models/M:generateContent, :streamGenerateContent    and in Google's
    POST /model/M/converse, /converse-stream    and in that of Amazon Bedrock
    /v1/messages/batches        message batches, each look a step further
    GET  /__fake/tally          what the provider counted, for people and not for clients

    python -m flyball.sim.provider.server --port 8787 --capacity 6,20:3,40:6 --script 429x2
    curl -d '{"max_tokens": 80}' http://127.0.0.1:8787/v1/messages

The real claude, codex, gemini and opencode are served well enough to run to their end (``make
test-agents``), and use their tools where the prompt asks for it in the format of ``tool_calls.py``.

The script decides, then the counter of the capacity; the dialect makes the reply, and this file only waits
and writes. Its clock starts with ``open``, so a schedule of capacities lines up with the work. A request's
body is read whether it is counted or in chunks, packed or not. Requests that are not for a model (token
counts, lists of models) are free and never refused.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
import threading
import time
import zlib
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import closing
from copy import deepcopy
from dataclasses import dataclass, field, replace
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from io import BufferedIOBase
from itertools import count

from flyball.core.signals import SignalKind
from flyball.errors import FlyballError
from flyball.host.background_thread import start_thread
from flyball.sim.provider.batches import FakeBatches
from flyball.sim.provider.capacity import Capacity, CapacityCounter, CapacityTally
from flyball.sim.provider.dialect import Anthropic, Dialect, ProviderReply
from flyball.sim.provider.dialect_bedrock import BedrockDialect
from flyball.sim.provider.dialect_gemini import GeminiDialect
from flyball.sim.provider.dialect_openai import ChatCompletions, Responses
from flyball.sim.provider.script import ProviderScript, ScriptStep

BODY_LIMIT = 10_000_000
_GZIP = 32 + zlib.MAX_WBITS
"""gzip or zlib, whichever it is."""


def read_body(headers: Mapping[str, str], stream: BufferedIOBase) -> bytes:
    """Everything the client sends; ValueError if it is too large or makes no sense."""
    headers = {name.lower(): value for name, value in headers.items()}
    if "chunked" in (headers.get("transfer-encoding") or "").lower():
        raw = b"".join(_chunks(stream))
    else:
        length = int(headers.get("content-length") or 0)
        if not 0 <= length <= BODY_LIMIT:
            raise ValueError("the body is too large")
        raw = stream.read(length)
    packed = (headers.get("content-encoding") or "identity").lower()
    if packed == "identity":
        return raw
    if packed not in ("gzip", "deflate"):
        raise ValueError(f"the body is packed with {packed}")
    return _unpack(raw)


def _chunks(stream: BufferedIOBase) -> Iterator[bytes]:
    total = 0
    while size := int(stream.readline(64).partition(b";")[0], 16):
        total += size
        if size < 0 or total > BODY_LIMIT:
            raise ValueError("the body is too large")
        yield stream.read(size)
        stream.readline(64)
    stream.readline(64)


def _unpack(raw: bytes) -> bytes:
    unpacking = zlib.decompressobj(_GZIP)
    try:
        body = unpacking.decompress(raw, BODY_LIMIT)
    except zlib.error as error:
        raise ValueError(f"the body cannot be unpacked: {error}") from error
    if unpacking.unconsumed_tail:
        raise ValueError("the body is too large")
    return body


_COUNTED = 1234
_MODEL = re.compile(r"/v1(?:beta)?/models/([^/:]+)")


def side_reply(method: str, path: str) -> ProviderReply | None:
    """The answer to a request that is not for a model; None if it may be for one.

    >>> side_reply("POST", "/v1/messages/count_tokens?beta=true").body
    {'input_tokens': 1234}
    """
    bare = path.partition("?")[0]
    if method == "POST" and bare.endswith("/messages/count_tokens"):
        return ProviderReply(200, {"input_tokens": _COUNTED})
    if method == "POST" and bare.endswith(":countTokens"):
        return ProviderReply(200, {"totalTokens": _COUNTED})
    if method != "GET":
        return None
    if bare in ("/v1/models", "/v1beta/models"):
        # Each vendor's client looks for its own field and is content with none in it.
        return ProviderReply(200, {"object": "list", "data": [], "has_more": False, "models": []})
    model = _MODEL.fullmatch(bare)
    if model is None:
        return None
    name = model[1]
    return ProviderReply(200, {"id": name, "type": "model", "object": "model", "name": f"models/{name}"})


DIALECTS: tuple[Dialect, ...] = (
    Anthropic(),
    ChatCompletions(),
    Responses(),
    GeminiDialect(),
    BedrockDialect(),
)
HOST = "127.0.0.1"


@dataclass(frozen=True, slots=True)
class Manner:
    """How a provider behaves apart from its capacity."""

    tokens_per_s: float = 100.0
    reject_s: float = 0.1
    """A refusal takes this long."""
    retry_after_s: float | None = 1.0
    headers: Mapping[str, str] = field(default_factory=dict)
    """With each answer of a request that was served."""
    think_s: float = 0.0
    """So long until an answer begins."""


USUAL = Manner()


@dataclass(frozen=True, slots=True)
class ProviderCall:
    """A model request that is over, in the provider's own eyes."""

    body: Mapping[str, object]
    began_s: float
    """Seconds since the provider opened."""
    ended_s: float
    """From then on it took no capacity."""
    accepted: bool
    open: int
    """How many requests were open when it came, itself among them."""


Write = Callable[[ProviderReply, Iterator[bytes]], None]
"""Writes the head of a reply, then its parts as they come."""


class Provider:
    """Use as a context manager; it serves from a thread of this process until the block ends."""

    def __init__(
        self,
        capacity: Capacity,
        manner: Manner = USUAL,
        *,
        script: str = "",
        port: int = 0,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
        on_request: Callable[[Mapping[str, object]], ScriptStep | None] | None = None,
        on_end: Callable[[ProviderCall], None] | None = None,
    ) -> None:
        """``script`` is a text as in ``script.py``; ``on_request`` is shown every model request as it comes,
        and may say what that one is answered; ``on_end`` when it is over."""
        self.manner = manner
        self._counter = CapacityCounter(capacity)
        self._script, self._requests = ProviderScript.parse(script, usual_s=manner.retry_after_s), 0
        self._on_request, self._on_end = on_request, on_end
        self._lock = threading.Lock()
        self._clock, self._sleep = clock, sleep
        self._opened_at = clock()
        self._numbers = count(1)
        self.batches = FakeBatches()
        self._server = _ProviderServer((HOST, port), _handler(self))
        self._thread: threading.Thread | None = None

    @property
    def url(self) -> str:
        return f"http://{HOST}:{self._server.server_address[1]}"

    def __enter__(self) -> Provider:
        self._thread = start_thread(partial(self._server.serve_forever, 0.05), name="flyball-provider")
        self.open()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        if self._thread is not None:
            self._thread.join()
        self._server.server_close()

    def open(self) -> None:
        """Start the clock that the capacity's steps are counted from."""
        self._opened_at = self._clock()

    @property
    def t_s(self) -> float:
        return self._clock() - self._opened_at

    @property
    def capacity_now(self) -> int:
        return self._counter.capacity.at(self.t_s)

    def tally(self) -> CapacityTally:
        """A copy of what was counted so far."""
        with self._lock:
            return deepcopy(self._counter.tally)

    def handle(self, dialect: Dialect, body: Mapping[str, object], write: Write) -> None:
        """Serve or refuse one request. The capacity is given back even if the client has gone."""
        number = next(self._numbers)
        asked = self._on_request(body) if self._on_request is not None else None
        with self._lock:
            step = asked or self._script.at(self._requests)
            self._requests += 1
            began_s = self.t_s
            accepted = self._counter.enter(began_s, refuse=step.kind is not SignalKind.OK)
            opened = self._counter.tally.open
        if accepted:
            if self.manner.think_s:
                self._sleep(self.manner.think_s)
            served = dialect.answer(body, number=number)
            reply = replace(served, cut=step.cut, headers={**served.headers, **self.manner.headers})
            for_s = dialect.tokens(body) / self.manner.tokens_per_s
        else:
            for_s = self.manner.reject_s
            if step.kind is SignalKind.OK:
                reply = dialect.throttle(number=number, retry_after_s=self.manner.retry_after_s)
            else:
                wait_s, wall_s = step.retry_after_s, time.time()
                reply = dialect.refusal(step.kind, number=number, retry_after_s=wait_s, wall_s=wall_s)
        parts = self._in_time(
            reply.parts(), for_s, partial(self._leave, body, began_s, opened, accepted=accepted)
        )
        with closing(parts):
            write(reply, parts)

    def _leave(self, body: Mapping[str, object], began_s: float, opened: int, *, accepted: bool) -> None:
        with self._lock:
            self._counter.leave(accepted=accepted)
        if self._on_end is not None:
            self._on_end(ProviderCall(body, began_s, self.t_s, accepted=accepted, open=opened))

    def _in_time(
        self, parts: Sequence[bytes], for_s: float, leave: Callable[[], None]
    ) -> Generator[bytes, None, None]:
        """The parts of an answer as they get ready, spread evenly; the last one frees the capacity."""
        try:
            for part in parts[:-1]:
                self._sleep(for_s / len(parts))
                yield part
            self._sleep(for_s / len(parts))
        finally:
            # Before the end is written: a client that has its answer must not be counted any more.
            leave()
        yield parts[-1]

    def refuse(self, dialect: Dialect, words: str, write: Write) -> None:
        reply = dialect.invalid(words, number=next(self._numbers))
        write(reply, iter(reply.parts()))


class _ProviderServer(ThreadingHTTPServer):
    daemon_threads = True
    # With the default of 5, a dozen clients that connect at once wait a second for a lost SYN.
    request_queue_size = 128

    def handle_error(self, request: object, client_address: object) -> None:
        """Ignore a client that went away; everything else is a bug and is shown."""
        if not isinstance(sys.exc_info()[1], ConnectionError):
            super().handle_error(request, client_address)  # type: ignore[arg-type]


def _handler(provider: Provider) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        server_version = "fake/1"
        sys_version = ""

        def do_POST(self) -> None:
            # Read in any case: what is left unread makes the kernel tear the answer down with the connection.
            try:
                body, problem = self._body(), ""
            except ValueError as error:
                body, problem = {}, str(error)
            batches = provider.batches.answer("POST", self.path, body, self._headers())
            if batches is not None:
                return self._say(batches)
            dialect = next((each for each in DIALECTS if each.handles(self.path)), None)
            if dialect is None:
                unknown = ProviderReply(404, {"error": f"no dialect answers {self.path}"})
                return self._say(side_reply("POST", self.path) or unknown)
            if problem:
                return provider.refuse(dialect, problem, self._write)
            return provider.handle(dialect, dialect.request_body(self.path, body), self._write)

        def do_GET(self) -> None:
            if self.path == "/__fake/tally":
                found = {"capacity": provider.capacity_now, **provider.tally().as_json()}
                return self._say(ProviderReply(200, found))
            batches = provider.batches.answer("GET", self.path, {}, self._headers())
            if batches is not None:
                return self._say(batches)
            if "upgrade" in self.headers:
                # Clients that would rather have a socket fall back to plain requests.
                return self._say(ProviderReply(426, {"error": {"message": "no websockets here"}}))
            unknown = ProviderReply(404, {"error": "POST /v1/messages, or GET /__fake/tally"})
            return self._say(side_reply("GET", self.path) or unknown)

        def do_HEAD(self) -> None:
            self.send_response(200)
            self.send_header("content-length", "0")
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:
            """Quiet: the tally says what happened."""

        def _headers(self) -> dict[str, str]:
            return {name.lower(): value for name, value in self.headers.items()}

        def _body(self) -> Mapping[str, object]:
            body = json.loads(read_body(dict(self.headers.items()), self.rfile) or b"{}")
            if not isinstance(body, dict):
                raise ValueError("the body must be a JSON object")
            return body

        def _say(self, reply: ProviderReply) -> None:
            self._write(reply, iter(reply.parts()))

        def _write(self, reply: ProviderReply, parts: Iterator[bytes]) -> None:
            """The head with the first part; an answer of unknown length ends with the connection."""
            first = next(parts)
            self.close_connection = True
            self.send_response(reply.status)
            kind = "text/event-stream" if reply.events else "application/json"
            for name, value in {"content-type": kind, **reply.headers}.items():
                self.send_header(name, value)
            if reply.length is not None:
                self.send_header("content-length", str(reply.length))
            self.send_header("connection", "close")
            self.end_headers()
            self.wfile.write(first)
            for part in parts:
                self.wfile.write(part)

    return Handler


def main(argv: Sequence[str] | None = None) -> int:
    """``python -m flyball.sim.provider.server``: serve until Ctrl-C, then print the tally."""
    parser = argparse.ArgumentParser(
        prog="python -m flyball.sim.provider.server", description="A fake provider."
    )
    parser.add_argument("--port", type=int, default=0, help="0 takes a free one (default)")
    parser.add_argument("--capacity", default="6", help="6, or steps by second: 6,20:3,40:6")
    parser.add_argument("--script", default="", help="what the first requests get: 429x2, 529:5, window:60x*")
    parser.add_argument("--tokens-per-s", type=float, default=USUAL.tokens_per_s)
    parser.add_argument(
        "--retry-after", type=float, default=USUAL.retry_after_s, help="seconds; 0 sends none"
    )
    args = parser.parse_args(argv)
    manner = Manner(tokens_per_s=args.tokens_per_s, retry_after_s=args.retry_after or None)
    try:
        provider = Provider(Capacity.parse(args.capacity), manner, script=args.script, port=args.port)
    except FlyballError as error:
        parser.error(str(error))
    with provider:
        print(provider.url, flush=True)
        try:
            threading.Event().wait()
        except KeyboardInterrupt:
            print(json.dumps(provider.tally().as_json()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
