"""Reading on in a file while it grows."""

from __future__ import annotations

import os
from pathlib import Path

from flyball.host.growing_file import PIECE_BYTES, GrowingFile


def test_each_read_begins_where_the_last_one_ended(tmp_path: Path) -> None:
    path = tmp_path / "out"
    path.write_bytes(b"one")
    file = GrowingFile.open(path)
    assert (file.read(), file.read()) == (b"one", b"")
    with path.open("ab") as writer:
        writer.write(b"two")
    assert (file.read(), file.at, file.size()) == (b"two", 6, 6)
    file.close()


def test_a_long_file_comes_in_pieces(tmp_path: Path) -> None:
    path = tmp_path / "out"
    path.write_bytes(b"x" * (PIECE_BYTES + 1))
    file = GrowingFile.open(path)
    assert [len(file.read()), len(file.read()), len(file.read())] == [PIECE_BYTES, 1, 0]
    file.close()


def test_reading_does_not_move_the_writer_that_shares_the_descriptor(tmp_path: Path) -> None:
    shared = os.open(tmp_path / "out", os.O_RDWR | os.O_CREAT)
    file = GrowingFile(shared)
    for piece in (b"one", b"two"):
        os.write(shared, piece)
        assert file.read() == piece
    file.close()
    assert (tmp_path / "out").read_bytes() == b"onetwo"


def test_a_read_can_begin_in_the_middle(tmp_path: Path) -> None:
    (tmp_path / "out").write_bytes(b"old new")
    fd = os.open(tmp_path / "out", os.O_RDONLY)
    file = GrowingFile(fd, at=4)
    assert file.read() == b"new"
    file.close()
