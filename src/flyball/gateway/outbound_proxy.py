"""The proxy that the environment names, where the way to a provider leads through one.

``HTTPS_PROXY``, ``ALL_PROXY`` and ``NO_PROXY`` mean what they mean to every client. The connection is a
tunnel (CONNECT): the proxy sees the provider's name, and neither key nor call. A server that is called
without TLS is on this machine or in its network, and is called directly.
"""

from __future__ import annotations

import asyncio
import base64
import ssl
from dataclasses import dataclass
from urllib.parse import unquote, urlsplit
from urllib.request import getproxies_environment, proxy_bypass

from flyball.gateway.address import Upstream

_HEAD_BYTES = 64 * 1024


@dataclass(frozen=True, slots=True)
class OutboundProxy:
    """Where it is, and what it wants to know."""

    host: str
    port: int
    credentials: str = ""
    """What the header says, where it asks for a name and a password."""

    def request(self, upstream: Upstream) -> bytes:
        host = f"[{upstream.host}]" if ":" in upstream.host else upstream.host
        place = f"{host}:{upstream.port}"
        lines = [f"CONNECT {place} HTTP/1.1", f"Host: {place}"]
        if self.credentials:
            lines.append(f"Proxy-Authorization: Basic {self.credentials}")
        return "\r\n".join((*lines, "", "")).encode()


def find_proxy(upstream: Upstream) -> OutboundProxy | None:
    """Raises OSError for one that is named in a way that is not understood."""
    if upstream.scheme != "https":
        return None
    named = getproxies_environment()
    address = named.get("https") or named.get("all")
    if not address or proxy_bypass(f"{upstream.host}:{upstream.port}"):
        return None
    try:
        parts = urlsplit(address if "://" in address else f"http://{address}")
        if parts.scheme != "http" or not parts.hostname:
            raise ValueError
        said = f"{unquote(parts.username)}:{unquote(parts.password or '')}" if parts.username else ""
        return OutboundProxy(parts.hostname, parts.port or 80, base64.b64encode(said.encode()).decode())
    except ValueError:
        raise OSError("HTTPS_PROXY is not the address of a proxy: http://HOST:PORT") from None


class _Tunnel(asyncio.Protocol):
    """Until the proxy has said that the way is free."""

    def __init__(self) -> None:
        self.opened: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._head = b""

    def data_received(self, data: bytes) -> None:
        self._head += data
        if b"\r\n\r\n" in self._head or len(self._head) > _HEAD_BYTES:
            said = self._head.split(b"\r\n", 1)[0][:200].split(b" ", 2)
            if said[1:2] == [b"200"]:
                self._end(None)
            else:
                self._end(OSError(f"the proxy said {b' '.join(said[1:]).decode('latin-1')!r}"))

    def connection_lost(self, error: Exception | None) -> None:
        self._end(OSError(f"the proxy closed the connection: {error or 'without an answer'}"))

    def _end(self, error: OSError | None) -> None:
        if self.opened.done():
            return
        if error is None:
            self.opened.set_result(None)
        else:
            self.opened.set_exception(error)


async def open_tunnel(
    proxy: OutboundProxy, upstream: Upstream, connection: asyncio.Protocol, tls: ssl.SSLContext
) -> None:
    """Connect ``connection`` to the server. Raises OSError where the proxy does not lead there."""
    loop = asyncio.get_running_loop()
    transport, tunnel = await loop.create_connection(_Tunnel, proxy.host, proxy.port)
    try:
        transport.write(proxy.request(upstream))
        await tunnel.opened
        secured = await loop.start_tls(transport, connection, tls, server_hostname=upstream.host)
    except BaseException:
        transport.abort()
        raise
    if secured is None:
        raise OSError("the server closed the connection")
    connection.connection_made(secured)
