"""A port of the loopback that stays with one user of the machine.

An address is called as long as a program knows it, also while its server is not there. A process that binds
the port then gets what was meant for the server.

    bind_port      for the server
    reserve_port   for each process that the address was given to: while one of them has this socket open, no
                   other user's process can bind the port, and callers are refused

Linux only. There sockets that share a port (SO_REUSEPORT) are of one user, and one that does not listen gets
no connection; on macOS it would get some.
"""

from __future__ import annotations

import socket
import sys

HOST = "127.0.0.1"
_CAN_SHARE = sys.platform == "linux"


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
