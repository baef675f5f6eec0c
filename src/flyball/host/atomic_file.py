"""Files that are there whole or not at all, whatever happens while they are written."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

UNFINISHED = ".flyball-*.tmp"
"""What a process leaves behind that is killed while writing."""
_NO_LINKS = (errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS)
"""What a file system without hard links answers."""
_FRONT, _BACK = UNFINISHED.split("*")


def replace_file(
    path: Path,
    content: bytes,
    *,
    mode: int = 0o600,
    durable: bool = True,
    owner: tuple[int, int] | None = None,
) -> None:
    """Put this content in the place of what is there, if anything.

    ``durable=False`` does not wait for the disk: for what is written often and worth nothing after a crash of
    the machine. ``owner``: the user that the file is to belong to, and its group where we may set that.
    """
    with _beside(path, content, mode, durable) as made:
        if owner is not None and owner != (os.geteuid(), os.getegid()):
            try:
                os.chown(made, *owner)
            except PermissionError:
                if owner[0] != os.geteuid():
                    raise
        os.replace(made, path)
    if durable:
        _sync_folder(path.parent)


def create_file(path: Path, content: bytes, *, mode: int = 0o644) -> None:
    """Make a new file. FileExistsError if anything is there already, a dangling link included."""
    with _beside(path, content, mode, durable=True) as made:
        try:
            # A link fails where the name is taken; a rename would take it.
            os.link(made, path)
        except OSError as error:
            if error.errno not in _NO_LINKS:
                raise
            with open(path, "xb") as file:
                file.write(content)
            os.chmod(path, mode)
    _sync_folder(path.parent)


@contextmanager
def _beside(path: Path, content: bytes, mode: int, durable: bool) -> Iterator[str]:
    """The content in a file of another name in the same folder; gone afterwards."""
    # As the module tempfile makes them, which loads compressors on the way.
    made = f"{path.parent}/{_FRONT}{os.urandom(8).hex()}{_BACK}"
    descriptor = os.open(made, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        with open(descriptor, "wb") as file:
            file.write(content)
            os.fchmod(file.fileno(), mode)
            if durable:
                file.flush()
                os.fsync(file.fileno())
        yield made
    finally:
        with suppress(FileNotFoundError):
            os.unlink(made)


def _sync_folder(folder: Path) -> None:
    """A new name is safe only when its folder is. Some file systems cannot say so, and need not."""
    with suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
