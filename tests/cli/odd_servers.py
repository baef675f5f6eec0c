"""Servers that no wheel brings: one that is too old, and one whose certificate has no known issuer."""

from __future__ import annotations

import socket
import ssl
import struct
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

# Made for these tests, and used nowhere else: a key that is public.
CERTIFICATE = """\
-----BEGIN PRIVATE KEY-----
MIGHAgEAMBMGByqGSM49AgEGCCqGSM49AwEHBG0wawIBAQQg4zPEqmLbmDst5bzr
SryK3+VfoNDZkbCX40P21Cj6GcmhRANCAATvaHzOHlifYUwj6KbWpUWm+1wWcjJN
mJF1DrLOD3kJ0uPBS6qzGl0QAklQNLOfknlkAoN6zDbQvXtDx20jsydl
-----END PRIVATE KEY-----
-----BEGIN CERTIFICATE-----
MIIBgDCCASWgAwIBAgIUawGFiMBm+aaxJ8IKECRnmAAlIJkwCgYIKoZIzj0EAwIw
FDESMBAGA1UEAwwJbG9jYWxob3N0MCAXDTI2MTExNTE4NDAwNloYDzIxMjYxMDIy
MTg0MDA2WjAUMRIwEAYDVQQDDAlsb2NhbGhvc3QwWTATBgcqhkjOPQIBBggqhkjO
PQMBBwNCAATvaHzOHlifYUwj6KbWpUWm+1wWcjJNmJF1DrLOD3kJ0uPBS6qzGl0Q
AklQNLOfknlkAoN6zDbQvXtDx20jsydlo1MwUTAdBgNVHQ4EFgQUNme2NiWgb66K
xdaiCr1uEOQ3edgwHwYDVR0jBBgwFoAUNme2NiWgb66KxdaiCr1uEOQ3edgwDwYD
VR0TAQH/BAUwAwEB/zAKBggqhkjOPQQDAgNJADBGAiEA5ljMsr30G8ptc+mJl2Wt
5ng7gn4dtWgQdWP+FmY2KSMCIQD4neGzNw7ph47By/7TzdMWi2P1BK6fIJIV+GKa
+2Mh1w==
-----END CERTIFICATE-----
"""


@contextmanager
def _listening(serve: Callable[[socket.socket], None]) -> Iterator[int]:
    """A port on which every connection is served by a thread, until the end of the block."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def accept() -> None:
            with suppress(OSError):
                while True:
                    link, _ = listener.accept()
                    threading.Thread(target=serve, args=(link,), daemon=True).start()

        threading.Thread(target=accept, daemon=True).start()
        yield int(listener.getsockname()[1])
        listener.shutdown(socket.SHUT_RDWR)


@contextmanager
def old_redis(version: str) -> Iterator[int]:
    """Answers what is asked when a connection is made, as a server of that version would."""
    info = f"redis_version:{version}\r\nrole:master\r\n"
    answers = {b"TIME": b"*2\r\n$1\r\n1\r\n$1\r\n0\r\n", b"INFO": f"${len(info)}\r\n{info}\r\n".encode()}

    def serve(link: socket.socket) -> None:
        with suppress(OSError), link, link.makefile("rb") as lines:
            while first := lines.readline():
                words = [lines.read(int(lines.readline()[1:]) + 2)[:-2] for _ in range(int(first[1:]))]
                link.sendall(answers.get(words[0].upper(), b"+OK\r\n"))

    with _listening(serve) as port:
        yield port


@contextmanager
def old_postgres(version: str) -> Iterator[int]:
    """Lets every client in and says which version it is, as the protocol has it; then hears nothing more."""

    def message(kind: bytes, body: bytes) -> bytes:
        return kind + struct.pack("!I", len(body) + 4) + body

    hello = message(b"R", struct.pack("!I", 0))
    for name, value in (
        ("server_version", version),
        ("server_encoding", "UTF8"),
        ("client_encoding", "UTF8"),
    ):
        hello += message(b"S", f"{name}\0{value}\0".encode())
    hello += message(b"K", struct.pack("!II", 1, 1)) + message(b"Z", b"I")

    def serve(link: socket.socket) -> None:
        with suppress(OSError), link:
            while (code := _startup(link)) in _ENCRYPTION:
                link.sendall(b"N")
            if code is not None:
                link.sendall(hello)
                link.recv(4096)

    with _listening(serve) as port:
        yield port


_ENCRYPTION = (80877103, 80877104)
"""What a client asks instead of signing in: for TLS, for GSSAPI."""


def _startup(link: socket.socket) -> int | None:
    """What a client begins with; None where it hung up."""
    head = link.recv(8, socket.MSG_WAITALL)
    if len(head) < 8:
        return None
    length, code = struct.unpack("!II", head)
    link.recv(length - 8, socket.MSG_WAITALL) if length > 8 else b""
    return int(code)


@contextmanager
def untrusted_tls(*, postgres: bool = False) -> Iterator[int]:
    """Speaks TLS with a certificate that it signed itself. A PostgreSQL server is asked for it first."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    with tempfile.NamedTemporaryFile("w", suffix=".pem") as file:
        file.write(CERTIFICATE)
        file.flush()
        context.load_cert_chain(Path(file.name))

    def serve(link: socket.socket) -> None:
        if postgres and _startup(link) is not None:
            link.sendall(b"S")
        with suppress(OSError), context.wrap_socket(link, server_side=True) as secure:
            secure.recv(4096)

    with _listening(serve) as port:
        yield port
