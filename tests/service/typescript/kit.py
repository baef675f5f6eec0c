"""The TypeScript client in a real Node: compiled once for its sources, driven by lines, seen by a proxy."""

from __future__ import annotations

import hashlib
import json
import os
import queue
import re
import shutil
import subprocess
import tempfile
import threading
from collections.abc import Callable, Mapping
from contextlib import closing, suppress
from http.client import HTTPConnection, HTTPException, HTTPResponse
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from tests.service.kit import PATIENCE_S
from tests.tools import TYPESCRIPT, TYPESCRIPT_CLIENT, find_node

DRIVER = Path(__file__).parent / "driver.ts"
README = TYPESCRIPT_CLIENT / "README.md"
_TSC = str(TYPESCRIPT / "typescript" / "bin" / "tsc")
_STRICT = json.loads((TYPESCRIPT_CLIENT / "tsconfig.json").read_text("utf-8"))["compilerOptions"]


def examples() -> list[str]:
    """Those of the README."""
    return re.findall(r"```ts\n(.*?)```", README.read_text("utf-8"), flags=re.DOTALL)


def build() -> Path:
    """The folder with the programs, which import the client as a package. Its name is that of its sources."""
    package = [TYPESCRIPT_CLIENT / "package.json", TYPESCRIPT_CLIENT / "tsconfig.json"]
    sources = [*package, README, DRIVER, *sorted((TYPESCRIPT_CLIENT / "src").glob("*.ts"))]
    name = hashlib.sha256(b"\0".join(path.read_bytes() for path in sources)).hexdigest()[:16]
    built = TYPESCRIPT.parent / f"built-{name}"
    if not built.exists():
        making = Path(tempfile.mkdtemp(dir=TYPESCRIPT.parent, prefix="making-"))
        try:
            _compile(making)
            with suppress(OSError):  # another worker was first
                making.rename(built)
        finally:
            shutil.rmtree(making, ignore_errors=True)
    return built


def _compile(folder: Path) -> None:
    installed = folder / "node_modules" / "@flyball" / "client"
    installed.mkdir(parents=True)
    shutil.copytree(TYPESCRIPT_CLIENT / "src", installed / "src")
    for name in ("package.json", "tsconfig.json"):
        shutil.copy(TYPESCRIPT_CLIENT / name, installed)
    types = {"typeRoots": [str(TYPESCRIPT / "@types")]}
    _tsc(installed, {"extends": "./tsconfig.json", "compilerOptions": types, "include": ["src"]})
    shutil.copy(DRIVER, folder)
    for number, code in enumerate(examples(), 1):
        (folder / f"example-{number}.ts").write_text(code, "utf-8")
    (folder / "package.json").write_text('{"type": "module"}')
    options = {**_STRICT, **types, "rootDir": ".", "outDir": ".", "declaration": False}
    _tsc(folder, {"compilerOptions": options, "include": ["*.ts"], "exclude": []})


def _tsc(folder: Path, config: Mapping[str, object]) -> None:
    path = folder / "tsconfig.test.json"
    path.write_text(json.dumps(config))
    node = find_node()
    assert node is not None
    done = subprocess.run(
        [node, _TSC, "-p", str(path)], capture_output=True, text=True, timeout=PATIENCE_S * 3
    )
    assert done.returncode == 0, done.stdout + done.stderr


def run_node(program: Path, **environment: str) -> str:
    """What it printed."""
    node = find_node()
    assert node is not None
    env = {**os.environ, **environment}
    done = subprocess.run(
        [node, str(program)], env=env, capture_output=True, text=True, timeout=PATIENCE_S, check=True
    )
    return done.stdout


class Driver:
    """A Node process that does what it is told; what it says, in order."""

    def __init__(self, built: Path, url: str, **options: object) -> None:
        node = find_node()
        assert node is not None
        command = [node, str(built / "driver.js"), url, json.dumps(options)]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self._events: queue.Queue[dict[str, Any]] = queue.Queue()
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def tell(self, do: str, name: str = "a", **fields: object) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps({"do": do, "as": name, **fields}) + "\n")
        self.process.stdin.flush()

    def hear(self, event: str) -> dict[str, Any]:
        """The next event, which must be this one."""
        said = self._events.get(timeout=PATIENCE_S)
        assert said["event"] == event, said
        return said

    def ask(self, do: str, event: str, name: str = "a", **fields: object) -> dict[str, Any]:
        self.tell(do, name, **fields)
        return self.hear(event)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait(PATIENCE_S)

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self._events.put(json.loads(line))

    def close(self) -> None:
        self.kill()
        self._reader.join(PATIENCE_S)
        for pipe in (self.process.stdin, self.process.stdout):
            assert pipe is not None
            pipe.close()


class Proxy:
    """Stands before a server and writes down what is asked; ``loses`` says which answers never arrive."""

    def __init__(self, url: str, *, loses: Callable[[str, int], bool] = lambda _line, _number: False) -> None:
        self.seen: list[str] = []
        self.keys: list[str] = []
        proxy = self
        self.go_to(url)

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def _pass_on(self) -> None:
                line = f"{self.command} {self.path}"
                proxy.seen.append(line)
                number = proxy.seen.count(line)
                if key := self.headers.get("Idempotency-Key"):
                    proxy.keys.append(key)
                body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                try:
                    answer, content = proxy._ask_server(self.command, self.path, body, dict(self.headers))
                except (OSError, HTTPException):  # the server is away
                    self.close_connection = True
                    return
                if loses(line, number):
                    self.close_connection = True
                    return
                try:
                    self.send_response(answer.status)
                    for name, value in answer.getheaders():
                        if name.lower() not in {"content-length", "transfer-encoding", "connection"}:
                            self.send_header(name, value)
                    if answer.status != 204:
                        self.send_header("Content-Length", str(len(content)))
                    self.end_headers()
                    self.wfile.write(content)
                except OSError:  # the client did not wait
                    self.close_connection = True

            do_GET = do_POST = do_DELETE = _pass_on  # noqa: N815

            def log_message(self, *_: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever)
        self._thread.start()
        self.url = f"http://127.0.0.1:{self._server.server_port}"

    def go_to(self, url: str) -> None:
        """The server behind it is another from now on."""
        self._place = urlsplit(url)

    def _ask_server(
        self, method: str, path: str, body: bytes, headers: Mapping[str, str]
    ) -> tuple[HTTPResponse, bytes]:
        place = self._place
        with closing(HTTPConnection(place.hostname or "", place.port, timeout=PATIENCE_S)) as upstream:
            upstream.request(method, path, body, headers)
            answer = upstream.getresponse()
            return answer, answer.read()

    def count(self, start: str) -> int:
        return sum(line.startswith(start) for line in self.seen)

    def __enter__(self) -> Proxy:
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._thread.join(PATIENCE_S)
        self._server.server_close()
