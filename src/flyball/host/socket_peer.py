"""Whose process is at the other end of a connection on this machine.

The kernel says to which user a socket belongs, and its number; which processes have it open is looked up in
/proc. Linux only: elsewhere nothing is known.
"""

from __future__ import annotations

import contextlib
import os
import socket
import struct
import sys
from collections.abc import Iterator
from typing import NamedTuple

_SOCK_DIAG, _SOCK_DIAG_BY_FAMILY, _REQUEST = 4, 20, 1
_HEADER = struct.Struct("=IHHII")
_QUERY = struct.Struct("=BBBxIHH16s16sI8s")
_ANSWER = struct.Struct("=BBxxHH16s16sI8xIIIII")
_ANY_COOKIE = b"\xff" * 8

Address = tuple[str, int]


class Peer(NamedTuple):
    """The other end of a connection."""

    uid: int
    inode: int
    """The number of its socket."""


def find_peer(ours: Address, theirs: Address) -> Peer | None:
    """What is at ``theirs`` end of a TCP connection; None: the system does not say."""
    if sys.platform != "linux":
        return None
    with contextlib.suppress(OSError, struct.error):
        family = socket.AF_INET6 if ":" in ours[0] else socket.AF_INET
        query = _QUERY.pack(
            family,
            socket.IPPROTO_TCP,
            0,
            0xFFFFFFFF,
            socket.htons(theirs[1]),
            socket.htons(ours[1]),
            socket.inet_pton(family, theirs[0]).ljust(16, b"\0"),
            socket.inet_pton(family, ours[0]).ljust(16, b"\0"),
            0,
            _ANY_COOKIE,
        )
        header = _HEADER.pack(_HEADER.size + len(query), _SOCK_DIAG_BY_FAMILY, _REQUEST, 1, 0)
        with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, _SOCK_DIAG) as link:
            link.settimeout(1.0)
            link.send(header + query)
            answer = link.recv(4096)
        _, kind, *_ = _HEADER.unpack_from(answer)
        if kind == _SOCK_DIAG_BY_FAMILY:
            *_, uid, inode = _ANSWER.unpack_from(answer, _HEADER.size)
            # Of an end that is closed the kernel forgets the user, and says that it is root's.
            return Peer(int(uid), int(inode)) if inode else None
    return None


def possible_holders(inode: int) -> list[int]:
    """The processes that have a socket open. Where none of those that can be looked into has it: those that
    cannot, any of which may have it."""
    wanted, hidden = f"socket:[{inode}]", list[int]()
    found: list[int] = []
    for pid in _pids():
        try:
            if wanted in _open_files(pid):
                found.append(pid)
        except PermissionError:
            hidden.append(pid)
        except OSError:
            continue  # it ended while we looked
    return found or hidden


def _pids() -> list[int]:
    try:
        return [int(name) for name in os.listdir("/proc") if name.isdigit()]
    except OSError:
        return []


def _open_files(pid: int) -> Iterator[str]:
    folder = f"/proc/{pid}/fd"
    for name in os.listdir(folder):
        with contextlib.suppress(FileNotFoundError):
            yield os.readlink(f"{folder}/{name}")
