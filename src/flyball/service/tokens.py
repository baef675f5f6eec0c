"""Bearer tokens: who may talk to the server, and what each may do.

A token is 256 random bits, shown once and kept as its SHA-256: there is nothing to guess, so nothing slower
is needed. The file is ``FLYBALL_HOME/tokens.json``, private, and there whole or not at all. A running server
reads it again when it changes, so a removed token ends at once.

    read     look at everything
    lease    read, and ask for slots
    admin    lease, and change pools, release what the dead hold
"""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import os
import secrets
import threading
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from enum import Enum
from pathlib import Path

import msgspec

from flyball.core.pool.settings import check_name
from flyball.core.suggestions import did_you_mean
from flyball.errors import StoreError, StoreReadOnlyError, StoreUnreadableError, UsageError
from flyball.host.atomic_file import replace_file
from flyball.host.lock_file import LockFile

FILE_NAME = "tokens.json"
LAYOUT = 1
MOST = 1000
"""Tokens in one file: each request that brings one compares it with all of them."""
_MARK = "flyball_"
"""Every token begins with this, so that scanners for leaked secrets can know it."""
_WRITABLE_BY_OTHERS = 0o022


class Scope(Enum):
    """What a token may do. Each includes those before it."""

    READ = "read"
    LEASE = "lease"
    ADMIN = "admin"

    def allows(self, needed: Scope) -> bool:
        """
        >>> Scope.ADMIN.allows(Scope.READ), Scope.READ.allows(Scope.LEASE)
        (True, False)
        """
        order = list(Scope)
        return order.index(self) >= order.index(needed)


class Token(msgspec.Struct, frozen=True):
    """What is kept of a token: everything but itself."""

    name: str
    scope: Scope
    sha256: str
    added: str
    """The day, for people."""


class _Layout(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    version: int
    tokens: tuple[Token, ...]


class TokenFile:
    """The tokens of one home. Several processes may change it at once."""

    def __init__(self, home: Path) -> None:
        self.path = home / FILE_NAME

    def add(self, name: str, scope: Scope) -> str:
        """Make a token and keep its hash; the token itself is only here."""
        check_name("token", name)
        token = _MARK + secrets.token_urlsafe(32)
        kept = Token(name, scope, _hash(token), datetime.now(UTC).date().isoformat())
        with self._changing() as tokens:
            if any(known.name == name for known in tokens):
                raise UsageError(f"there is a token {name!r} already; flyball token remove {name} ends it")
            if len(tokens) >= MOST:
                raise UsageError(f"there are {MOST} tokens already; flyball token list shows them")
            self._write([*tokens, kept])
        return token

    def remove(self, name: str) -> Token:
        """End a token."""
        with self._changing() as tokens:
            found = next((token for token in tokens if token.name == name), None)
            if found is None:
                names = [token.name for token in tokens]
                hint = did_you_mean(name, names) or f"there are: {', '.join(names) or 'none'}"
                raise UsageError(f"there is no token {name!r}; {hint}")
            self._write([token for token in tokens if token is not found])
        return found

    def read(self) -> tuple[Token, ...]:
        """All tokens, in the order in which they were added. A file that cannot be understood is refused."""
        try:
            mode, content = self.path.stat().st_mode, self.path.read_bytes()
        except FileNotFoundError:
            return ()
        except OSError as error:
            raise StoreError(f"cannot read {self.path} ({error.strerror})") from error
        if mode & _WRITABLE_BY_OTHERS:
            raise StoreUnreadableError(f"others may write {self.path}; chmod 600 {self.path}")
        try:
            layout = msgspec.json.decode(content, type=_Layout)
        except msgspec.MsgspecError as error:
            words = f"{self.path} cannot be understood ({error}); move it away and add the tokens again"
            raise StoreUnreadableError(words) from error
        if layout.version != LAYOUT:
            raise StoreUnreadableError(
                f"{self.path} was written by another flyball (layout {layout.version}, this one knows "
                f"{LAYOUT}); use that one, or move the file away and add the tokens again"
            )
        return layout.tokens

    def stamp(self) -> tuple[int, ...]:
        """Changes with the file."""
        try:
            found = self.path.stat()
        except OSError:
            return ()
        return (found.st_mtime_ns, found.st_size, found.st_ino, found.st_mode)

    @contextlib.contextmanager
    def _changing(self) -> Iterator[tuple[Token, ...]]:
        try:
            self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            words = f"cannot make {self.path.parent} ({error.strerror}); set FLYBALL_HOME to a folder you own"
            raise StoreReadOnlyError(words) from error
        lock = LockFile.of(f"{self.path}.lock")
        lock.acquire()
        try:
            yield self.read()
        finally:
            lock.release()

    def _write(self, tokens: Sequence[Token]) -> None:
        content = msgspec.json.format(msgspec.json.encode(_Layout(LAYOUT, tuple(tokens))), indent=2)
        try:
            replace_file(self.path, content + b"\n", mode=0o600)
        except OSError as error:
            words = (
                f"cannot write {self.path} ({error.strerror}); set FLYBALL_HOME to a folder you can write to"
            )
            raise StoreReadOnlyError(words) from error


class TokenStore:
    """The tokens as a server uses them: read again when the file has changed."""

    def __init__(self, file: TokenFile) -> None:
        self._file = file
        self._lock = threading.Lock()
        self._stamp: tuple[int, ...] | None = None
        self._tokens: tuple[Token, ...] = ()

    def find(self, token: str) -> Token | None:
        """Whose token it is. Takes as long for an unknown one."""
        presented, found = _hash(token), None
        for known in self.tokens():
            if hmac.compare_digest(known.sha256.encode(), presented.encode()):
                found = known
        return found

    def tokens(self) -> tuple[Token, ...]:
        """All of them; StoreError where the file has become unreadable, so that no request is let in."""
        stamp = self._file.stamp()
        with self._lock:
            if stamp != self._stamp:
                self._tokens = self._file.read()
                self._stamp = stamp
            return self._tokens


def _hash(token: str) -> str:
    return hashlib.sha256(os.fsencode(token)).hexdigest()
