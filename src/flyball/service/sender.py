"""Whose process sent a request over the loopback: what it may do without a token.

    another user's, or not known       it may look
    the server's own user's            it may ask for slots
    that, and no governed command's    it may change pools

A governed command, an agent above all, runs under a lease of flyball or beside its guards. Such a process and
all that descends from it may not move the limits that it works under; a sandbox with a process table of its
own keeps what is in it from leaving its parents. A server that was started inside the same command is that
command's own.
"""

from __future__ import annotations

import os
from contextlib import suppress

from flyball.factory.guards.policy import VARIABLE as GUARDED
from flyball.governor.inherited_lease import VARIABLE as LEASED
from flyball.host.process import ancestors
from flyball.host.socket_peer import Address, Peer, find_peer, possible_holders
from flyball.service.tokens import Scope

_MARKS = tuple(f"{name}=".encode() for name in (LEASED, GUARDED))


Place = tuple[str, int | None] | None
"""An end of a connection as a server of ASGI tells it."""


def sender_scope(ours: Place, theirs: Place, needed: Scope) -> Scope:
    """What the process at the other end may do, as far as ``needed``. May take a moment for ADMIN."""
    here, there = _address(ours), _address(theirs)
    peer = find_peer(here, there) if here is not None and there is not None else None
    if peer is None or peer.uid not in (0, os.geteuid()):
        return Scope.READ
    return Scope.ADMIN if needed is not Scope.ADMIN or not _is_governed(peer) else Scope.LEASE


def _address(place: Place) -> Address | None:
    """None for a unix socket."""
    return (place[0], place[1]) if place is not None and place[1] is not None else None


def _is_governed(peer: Peer) -> bool:
    ours = _marks(os.getpid())
    holders = possible_holders(peer.inode)
    # A socket that no process has open any more belongs to none that could be trusted.
    return not holders or any(_marks(pid) - ours for pid in holders)


def _marks(pid: int) -> set[bytes]:
    """What a process and those that it descends from were started with. The environment of another user's
    process cannot be read, and says nothing."""
    found: set[bytes] = set()
    for each in ancestors(pid):
        with suppress(OSError), open(f"/proc/{each}/environ", "rb") as file:
            found.update(entry for entry in file.read().split(b"\0") if entry.startswith(_MARKS))
    return found
