"""SQLite's errors in our words, with the way out."""

from __future__ import annotations

import errno
import sqlite3
from pathlib import Path

from flyball.errors import (
    StoreBusyError,
    StoreError,
    StoreFullError,
    StoreReadOnlyError,
    StoreUnreadableError,
)
from flyball.host.resources import is_full

GARBLED = "its schema is garbled"
_DAMAGE = ("malformed", "not a database", "Could not decode")


def as_store_error(path: Path, error: sqlite3.Error | UnicodeDecodeError, *, busy_s: float) -> StoreError:
    """``busy_s``: how long a locked file was waited for."""
    name = getattr(error, "sqlite_errorname", "") or ""
    words = str(error)
    if isinstance(error, UnicodeDecodeError):
        # SQLite quotes what it found in the schema; Python cannot read the quotation.
        name, words = "SQLITE_CORRUPT", GARBLED
    if name.startswith("SQLITE_FULL") or name == "SQLITE_IOERR_WRITE":
        return full(path)
    # Who only reads needs room too, for the index beside the file; SQLite does not say what was missing.
    if name.startswith("SQLITE_IOERR") and is_full(str(path.parent)):
        return full(path)
    if name.startswith(("SQLITE_READONLY", "SQLITE_PERM")) or "readonly" in words:
        return unwritable(path, words)
    if name.startswith(("SQLITE_CANTOPEN", "SQLITE_AUTH")):
        return unwritable(path, words)
    if name.startswith(("SQLITE_BUSY", "SQLITE_LOCKED")):
        return StoreBusyError(
            f"{path} is locked by another program for over {busy_s:.0f} s; close whatever has it open"
        )
    if name.startswith(("SQLITE_CORRUPT", "SQLITE_NOTADB")) or (
        isinstance(error, sqlite3.DatabaseError) and any(sign in words for sign in _DAMAGE)
    ):
        return StoreUnreadableError(
            f"{path} is damaged ({words}); `flyball doctor --fix` sets it aside and starts a new one"
        )
    return StoreError(f"{path}: {words}")


def full(path: Path) -> StoreFullError:
    return StoreFullError(f"no space left to write {path}; free some disk space and try again")


def refused_by_system(path: Path, error: OSError) -> StoreError:
    """Why a file or folder of the state could not be made."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return full(path)
    return unwritable(path, error.strerror or str(error))


def unwritable(path: Path, words: str) -> StoreReadOnlyError:
    return StoreReadOnlyError(f"cannot write {path} ({words}); set FLYBALL_HOME to a folder you can write to")
