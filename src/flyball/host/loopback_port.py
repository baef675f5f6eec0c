"""A port of the loopback that stays with one user of the machine.

An address is called as long as a program knows it, also while its server is not there. A process that binds
the port then gets what was meant for the server.

    bind_port      for the server
    reserve_port   for each process that the address was given to: while one of them has this socket open, no
                   other user's process can bind the port, and callers are refused
    peer_uid       whose process is at the other end of a connection

Linux only. There sockets that share a port (SO_REUSEPORT) are of one user, and one that does not listen gets
no connection; on macOS it would get some. And only Linux tells whose socket another one is.
"""

from __future__ import annotations

import contextlib
import socket
import struct
import sys

HOST = "127.0.0.1"
_CAN_SHARE = sys.platform == "linux"
_SOCK_DIAG, _SOCK_DIAG_BY_FAMILY, _REQUEST = 4, 20, 1
_HEADER = struct.Struct("=IHHII")
_QUERY = struct.Struct("=BBBxIHH16s16sI8s")
_ANSWER = struct.Struct("=BBxxHH16s16sI8xIIIII")
_ANY_COOKIE = b"\xff" * 8
_ESTABLISHED = 1


def bind_port(port: int) -> socket.socket:
    """A socket on this port, 0 for a free one. Raises OSError where it is another's, or is listened on."""
    place = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    try:
        place.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if _CAN_SHARE:
            if port and _is_listened_on(port):
                raise OSError(f"port {port} is in use")
            place.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        place.bind((HOST, port))
    except BaseException:
        place.close()
        raise
    return place


def _is_listened_on(port: int) -> bool:
    """Two of one user may share it, and each would get a part of the connections."""
    try:
        socket.create_connection((HOST, port), timeout=1.0).close()
    except ConnectionRefusedError:
        return False
    except OSError:
        return True
    return True


def reserve_port(port: int) -> socket.socket | None:
    """Children inherit it. None: it cannot be reserved here, or is another's."""
    if not _CAN_SHARE:
        return None
    place = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    try:
        # Without SO_REUSEADDR, or it would give way to the next one that asks.
        place.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        place.bind((HOST, port))
        place.set_inheritable(True)
    except OSError:
        place.close()
        return None
    return place


def peer_uid(ours: tuple[str, int], theirs: tuple[str, int]) -> int | None:
    """The user at ``theirs`` end of a connection over IPv4; None: the system does not say."""
    if not _CAN_SHARE:
        return None
    query = _QUERY.pack(
        socket.AF_INET,
        socket.IPPROTO_TCP,
        0,
        0xFFFFFFFF,
        socket.htons(theirs[1]),
        socket.htons(ours[1]),
        socket.inet_aton(theirs[0]).ljust(16, b"\0"),
        socket.inet_aton(ours[0]).ljust(16, b"\0"),
        0,
        _ANY_COOKIE,
    )
    header = _HEADER.pack(_HEADER.size + len(query), _SOCK_DIAG_BY_FAMILY, _REQUEST, 1, 0)
    with contextlib.suppress(OSError, struct.error):
        with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, _SOCK_DIAG) as link:
            link.settimeout(1.0)
            link.send(header + query)
            answer = link.recv(4096)
        _, kind, *_ = _HEADER.unpack_from(answer)
        if kind == _SOCK_DIAG_BY_FAMILY:
            _, state, *_, uid, _ = _ANSWER.unpack_from(answer, _HEADER.size)
            # Of an end that is closed the kernel forgets the user, and says that it is root's.
            return int(uid) if state == _ESTABLISHED else None
    return None
