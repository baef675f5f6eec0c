"""Servers that no wheel brings: one that is too old, and one whose certificate nobody vouches for."""

from __future__ import annotations

import socket
import ssl
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

# Made for these tests, for nobody else: a key that everybody may read.
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
def untrusted_tls() -> Iterator[int]:
    """Speaks TLS with a certificate that it signed itself."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    with tempfile.NamedTemporaryFile("w", suffix=".pem") as file:
        file.write(CERTIFICATE)
        file.flush()
        context.load_cert_chain(Path(file.name))

    def serve(link: socket.socket) -> None:
        with suppress(OSError), context.wrap_socket(link, server_side=True) as secure:
            secure.recv(4096)

    with _listening(serve) as port:
        yield port
