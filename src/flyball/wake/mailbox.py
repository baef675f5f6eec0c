"""A unix datagram socket that other processes can drop a claim's id into.

The message says "look at this claim", and the store says what is true: any process of this user can write
into a mailbox, so a message proves nothing. A mailbox has a nonce in its address, which is not in its
file's name: a message without it was sent by a process that never read the ask, and is dropped. A full
mailbox means that its owner has plenty of reasons to look already; a mailbox on which no process listens
means that its owner is gone.
"""

from __future__ import annotations

import atexit
import contextlib
import errno
import os
import socket
import stat
import weakref
from enum import Enum
from itertools import count
from pathlib import Path
from typing import Protocol

_PATH_LIMIT = 100
"""A socket's path may hold 108 bytes on Linux and 104 on macOS."""
OVERFLOW = 8
"""This many messages in one go: more may have been dropped, look at everything."""
LOOK = -1
"""In place of a claim: something may have been missed, look at everything."""


_MARK = "#"
_numbers = count(1)


class Delivery(Enum):
    SENT = "sent"
    FULL = "full"
    REFUSED = "refused"
    """Its socket is there and was closed: the process that made it has ended."""
    MISSING = "missing"
    """Its socket does not exist: it may have been removed under a process that lives."""
    PUBLISHED = "published"
    """The store itself told it; whether a waiter heard is not known."""


class Box(Protocol):
    """What a waiter waits on."""

    address: str
    lossy: bool
    """Full, it drops messages without a word."""

    def fileno(self) -> int: ...

    @property
    def ours(self) -> bool: ...

    def receive(self) -> int | None: ...

    def drain(self) -> list[int]: ...

    def mend(self) -> bool:
        """Make it reachable again, under its address. True if it was not: what was sent meanwhile is lost."""

    def close(self) -> None: ...


class Mailbox:
    """One socket of this process. ``address`` goes into the asks it waits for."""

    lossy = True

    def __init__(self, folder: Path) -> None:
        self._pid = os.getpid()
        # Processes of two pid namespaces may share the folder, and a pid.
        self.path = str(folder / f"{self._pid}-{next(_numbers)}-{os.urandom(3).hex()}")
        nonce = os.urandom(8).hex()
        self.address, self._nonce = f"{self.path}{_MARK}{nonce}", f"{nonce} ".encode()
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self.path)
        self._socket = _listening(self.path)
        # Left to the garbage collector, the socket may go before the object that would have closed it.
        self._forget = weakref.finalize(self, self._socket.close)

    def fileno(self) -> int:
        return self._socket.fileno()

    @property
    def ours(self) -> bool:
        """False in a forked child, which must not read its parent's mail."""
        return self._pid == os.getpid()

    def receive(self) -> int | None:
        """The next claim we were told to look at; None if no mail has come."""
        while True:
            try:
                told = self._socket.recv(64)
                if told.startswith(self._nonce):
                    return int(told.removeprefix(self._nonce))
            except (BlockingIOError, ConnectionError):
                return None
            except ValueError:
                continue

    def drain(self) -> list[int]:
        """All the claims we were told to look at."""
        found: list[int] = []
        while (claim_id := self.receive()) is not None:
            found.append(claim_id)
        return found

    def mend(self) -> bool:
        """A cleaner, or a person, may have removed the file: the socket lives on, and cannot be reached."""
        if os.path.exists(self.path):
            return False
        try:
            _private(Path(self.path).parent)
            fresh = _listening(self.path)
        except OSError:
            return False
        self._forget()
        self._socket, self._forget = fresh, weakref.finalize(self, fresh.close)
        return True

    def close(self) -> None:
        self._socket.close()
        if self.ours:
            with contextlib.suppress(OSError):
                os.unlink(self.path)

    def __del__(self) -> None:
        with contextlib.suppress(Exception):
            self.close()


def path_of(address: str) -> str:
    """The socket's file."""
    return _split(address)[0]


def _split(address: str) -> tuple[str, str]:
    """File and nonce; a mailbox of an older flyball has none."""
    path, mark, nonce = address.rpartition(_MARK)
    return (path, nonce) if mark and len(nonce) == 16 else (address, "")


def _listening(address: str) -> socket.socket:
    made = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    try:
        made.setblocking(False)
        made.bind(address)
    except OSError:
        made.close()
        raise
    return made


def open_mailbox(home: Path) -> Mailbox | None:
    """A mailbox for this process, or None where none can be had: then the waiter polls."""
    try:
        return Mailbox(mail_folder(home))
    except OSError:
        return None


def folder_for(home: Path) -> Path:
    """Where sockets live: beside the state if the path is short enough, else in a private folder."""
    folder = home / "wake"
    if len(os.fsencode(folder)) > _PATH_LIMIT - 20:
        import hashlib

        folder = runtime_folder() / hashlib.sha256(os.fsencode(home)).hexdigest()[:16]
    return folder


def runtime_folder() -> Path:
    """A short, private place for what lives only as long as processes do."""
    return Path(os.environ.get("XDG_RUNTIME_DIR") or "/tmp") / f"flyball-{os.getuid()}"  # noqa: S108


def mail_folder(home: Path) -> Path:
    """The folder for sockets, made private; refused if another user could listen in."""
    home.mkdir(mode=0o700, parents=True, exist_ok=True)
    return _private(folder_for(home))


def _private(folder: Path) -> Path:
    folder.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    folder.mkdir(mode=0o700, exist_ok=True)
    for part in (folder, folder.parent):
        owned = part.stat()
        if owned.st_uid != os.getuid() or stat.S_IMODE(owned.st_mode) & 0o022:
            raise PermissionError(errno.EPERM, "another user may write to the mail folder", str(part))
    return folder


def send(address: str, claim_id: int) -> Delivery:
    """Tell the owner of a mailbox to look at a claim. Never blocks."""
    if not address.startswith("/"):
        return Delivery.PUBLISHED
    path, nonce = _split(address)
    try:
        _sender().sendto(f"{nonce} {claim_id}".strip().encode(), path)
    except BlockingIOError:
        return Delivery.FULL
    except OSError as error:
        known = {errno.ENOBUFS: Delivery.FULL, errno.ECONNREFUSED: Delivery.REFUSED}
        return known.get(error.errno or 0, Delivery.MISSING)
    return Delivery.SENT


_senders: list[socket.socket] = []


def _sender() -> socket.socket:
    """One socket for all that this process says; it has no name, so children may share it."""
    if not _senders:
        sender = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        sender.setblocking(False)
        # Two threads may come here at once; the first to append wins, and the other's is closed.
        _senders.append(sender)
        if _senders[0] is sender:
            atexit.register(sender.close)
        else:
            sender.close()
    return _senders[0]


def discard(address: str) -> None:
    """Remove the socket of an owner who is known to be dead."""
    if address.startswith("/"):
        with contextlib.suppress(OSError):
            os.unlink(path_of(address))


def abandoned(folder: Path) -> list[Path]:
    """Sockets on which no process listens."""
    found = sorted(folder.iterdir()) if folder.is_dir() else []
    return [path for path in found if path.is_socket() and send(str(path), 0) is Delivery.REFUSED]


def sweep(folder: Path) -> list[str]:
    """Remove sockets on which no process listens; says which."""
    swept = [str(path) for path in abandoned(folder)]
    for address in swept:
        discard(address)
    return swept
