"""Where the way out leads through a proxy, and a program's way to the gateway does not."""

from __future__ import annotations

import base64
import json
import socket
import ssl
import sys
import threading
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path

import pytest

from flyball.gateway.address import Upstream
from flyball.gateway.agent_route import AgentRoute, find_route
from flyball.gateway.outbound_proxy import find_proxy
from flyball.sim.provider.server import Provider
from tests.gateway.conftest import RunningGateway
from tests.gateway.machine import CALL, Machine

HOST = "provider.test"
CERTIFICATE = """\
-----BEGIN PRIVATE KEY-----
MIGHAgEAMBMGByqGSM49AgEGCCqGSM49AwEHBG0wawIBAQQgFg/CaQvog0yV8ejd
HlKv2PyEoOQIvIsmTx0p3PRWGu2hRANCAASDuy18kMcJW1vWTr2EdUTh3Z5y4qiW
d6KSszYz9iU5oYxT4U0Wy3+/V+BiVbnftcWQwgron2XCe3ckaXWxbsht
-----END PRIVATE KEY-----
-----BEGIN CERTIFICATE-----
MIIBoTCCAUegAwIBAgIUAg4yt2dQX+zWfzivxboFIKkd4/swCgYIKoZIzj0EAwIw
GDEWMBQGA1UEAwwNcHJvdmlkZXIudGVzdDAgFw0yNjExMTkyMTEzNDNaGA8yMTI1
MDYxMzIxMTM0M1owGDEWMBQGA1UEAwwNcHJvdmlkZXIudGVzdDBZMBMGByqGSM49
AgEGCCqGSM49AwEHA0IABIO7LXyQxwlbW9ZOvYR1ROHdnnLiqJZ3opKzNjP2JTmh
jFPhTRbLf79X4GJVud+1xZDCCuifZcJ7dyRpdbFuyG2jbTBrMB0GA1UdDgQWBBSA
Sg2P/mgOAn24vGOIHkZII5Fy+zAfBgNVHSMEGDAWgBSASg2P/mgOAn24vGOIHkZI
I5Fy+zAYBgNVHREEETAPgg1wcm92aWRlci50ZXN0MA8GA1UdEwEB/wQFMAMBAf8w
CgYIKoZIzj0EAwIDSAAwRQIgJ6pfxnOy84eU9laJUW9wABgzgd3ORYuWLrEEZXxG
2WUCIQCCutdjWhCPtmzvDf/lXfIiQ1GYL9b/YiH/Fx8ur0B4cw==
-----END CERTIFICATE-----
"""
ANSWER = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\nconnection: close\r\n\r\n{}"
VARIABLES = ("http_proxy", "https_proxy", "all_proxy", "no_proxy")


class ProxyAndProvider:
    """A proxy that leads to one server with TLS, whose name only the proxy knows."""

    def __init__(self, folder: Path, *, refusal: bytes = b"") -> None:
        self.certificate = folder / "provider.pem"
        self.certificate.write_text(CERTIFICATE)
        self._tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._tls.load_cert_chain(self.certificate)
        self._refusal = refusal
        self.asked: list[bytes] = []
        """What the proxy saw."""
        self.heard: list[bytes] = []
        """What the server was sent."""
        self._place = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._place.getsockname()[1]}"
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._place.accept()
                with client:
                    self.asked.append(client.recv(65536))
                    if self._refusal:
                        client.sendall(self._refusal)
                        continue
                    client.sendall(b"HTTP/1.1 200 Connection established\r\nVia: x\r\n\r\n")
                    with self._tls.wrap_socket(client, server_side=True) as secured:
                        self.heard.append(secured.recv(65536))
                        secured.sendall(ANSWER)

    def close(self) -> None:
        self._place.close()


@pytest.fixture
def no_proxies(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)


@pytest.fixture
def proxy(tmp_path: Path, no_proxies: None) -> Iterator[ProxyAndProvider]:
    with closing(ProxyAndProvider(tmp_path)) as proxy:
        yield proxy


def test_a_provider_is_reached_through_the_proxy_of_the_environment(
    running: RunningGateway, proxy: ProxyAndProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HTTPS_PROXY", f"http://me:p%40ss@{proxy.address}")
    monkeypatch.setenv("SSL_CERT_FILE", str(proxy.certificate))
    assert running.call(f"https://{HOST}")[::2] == (200, b"{}")
    assert proxy.asked[0].startswith(f"CONNECT {HOST}:443 HTTP/1.1\r\nHost: {HOST}:443\r\n".encode())
    assert b"Basic " + base64.b64encode(b"me:p@ss") in proxy.asked[0]
    assert proxy.heard[0].startswith(b"POST /v1/messages HTTP/1.1\r\nHost: provider.test\r\n")
    assert b"x-api-key" not in proxy.asked[0]


def test_a_proxy_that_refuses_is_a_502_that_says_so(
    running: RunningGateway, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, no_proxies: None
) -> None:
    refusal = b"HTTP/1.1 407 Proxy Authentication Required\r\ncontent-length: 0\r\n\r\n"
    with closing(ProxyAndProvider(tmp_path, refusal=refusal)) as proxy:
        monkeypatch.setenv("HTTPS_PROXY", f"http://me:secret@{proxy.address}")
        status, _, body = running.call(f"https://{HOST}")
    assert status == 502
    message = json.loads(body)["error"]["message"]
    assert "the proxy said '407 Proxy Authentication Required'" in message
    assert "secret" not in message
    assert running.pool(HOST).in_use == 0


@pytest.mark.parametrize(
    ("variables", "found"),
    [
        ({}, None),
        ({"HTTPS_PROXY": "http://h:3128"}, ("h", 3128)),
        ({"https_proxy": "h:3128"}, ("h", 3128)),
        ({"ALL_PROXY": "http://h"}, ("h", 80)),
        ({"HTTP_PROXY": "http://h:3128"}, None),
        ({"HTTPS_PROXY": "http://h:3128", "NO_PROXY": ".test"}, None),
        ({"HTTPS_PROXY": "http://h:3128", "NO_PROXY": "*"}, None),
    ],
)
def test_the_variables_mean_what_they_mean_to_every_client(
    variables: dict[str, str],
    found: tuple[str, int] | None,
    monkeypatch: pytest.MonkeyPatch,
    no_proxies: None,
) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    proxy = find_proxy(Upstream("https", HOST, 443))
    assert (None if proxy is None else (proxy.host, proxy.port)) == found
    assert find_proxy(Upstream("http", "127.0.0.1", 80)) is None


def test_a_program_whose_environment_names_a_proxy_calls_the_gateway_itself(
    machine: Machine, provider: Provider
) -> None:
    nowhere = {"HTTP_PROXY": "http://127.0.0.1:9", "http_proxy": "http://127.0.0.1:9", "NO_PROXY": "x.test"}
    done = machine.run("env", "--", sys.executable, "-c", CALL, "1", "1", **nowhere)
    assert (done.stdout, provider.tally().accepted) == ("200\n", 1), done.stderr
    assert "NO_PROXY=x.test,127.0.0.1" in machine.run("env", **nowhere).stdout


def test_so_does_an_agent(tmp_path: Path) -> None:
    env = {"HOME": str(tmp_path), "ANTHROPIC_API_KEY": "k", "HTTPS_PROXY": "http://proxy:3128"}
    route = find_route("claude", ["claude"], env)
    assert isinstance(route, AgentRoute)
    added = route.change("http://127.0.0.1:1/k", project="p", name="n").variables
    assert (added["NO_PROXY"], added["no_proxy"]) == ("127.0.0.1", "127.0.0.1")
