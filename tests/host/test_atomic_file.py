"""Files that are there whole or not at all."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from flyball.host.atomic_file import UNFINISHED, create_file, replace_file


def left_over(folder: Path) -> list[Path]:
    return list(folder.glob(UNFINISHED))


def fails(*_: object) -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_a_write_that_fails_leaves_the_old_file_and_nothing_beside_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "a"
    replace_file(path, b"old")
    monkeypatch.setattr("os.fsync", fails)
    with pytest.raises(OSError, match="No space"):
        replace_file(path, b"new")
    with pytest.raises(OSError, match="No space"):
        create_file(tmp_path / "b", b"new")
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


def test_what_need_not_survive_the_machine_does_not_wait_for_the_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("os.fsync", fails)
    replace_file(tmp_path / "a", b"old", durable=False)
    replace_file(tmp_path / "a", b"new", durable=False)
    assert (tmp_path / "a").read_bytes() == b"new"
    assert not left_over(tmp_path)


@pytest.mark.parametrize("kind", ["file", "folder", "dangling link"])
def test_what_is_there_is_never_replaced_by_a_new_file(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "a"
    if kind == "file":
        path.touch()
    elif kind == "folder":
        path.mkdir()
    else:
        path.symlink_to("gone")
    with pytest.raises(FileExistsError):
        create_file(path, b"new")
    assert list(tmp_path.iterdir()) == [path]


def test_a_file_system_without_hard_links_gets_its_new_file_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_links(*_: object) -> None:
        raise PermissionError(errno.EPERM, "Operation not permitted")

    monkeypatch.setattr("os.link", no_links)
    create_file(tmp_path / "a", b"new", mode=0o640)
    assert (tmp_path / "a").read_bytes() == b"new"
    assert (tmp_path / "a").stat().st_mode & 0o777 == 0o640
    with pytest.raises(FileExistsError):
        create_file(tmp_path / "a", b"newer")
    assert not left_over(tmp_path)


def test_content_and_mode_are_what_was_asked_for(tmp_path: Path) -> None:
    replace_file(tmp_path / "private", b"\x00\xff")
    create_file(tmp_path / "public", b"hello")
    assert (tmp_path / "private").read_bytes() == b"\x00\xff"
    assert (tmp_path / "private").stat().st_mode & 0o777 == 0o600
    assert (tmp_path / "public").stat().st_mode & 0o777 == 0o644
    assert not left_over(tmp_path)
