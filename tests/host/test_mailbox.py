"""Mail between processes: it says only "look", it never blocks, and no other user can read it."""

from __future__ import annotations

import os
import shutil
import socket
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from flyball.wake.mailbox import (
    OVERFLOW,
    Delivery,
    Mailbox,
    abandoned,
    discard,
    folder_for,
    mail_folder,
    open_mailbox,
    send,
    sweep,
)


@pytest.fixture
def home() -> Iterator[Path]:
    """Short, as a socket's path must be."""
    folder = Path(tempfile.mkdtemp(prefix="fb-"))
    yield folder
    shutil.rmtree(folder)


@pytest.fixture
def box(home: Path) -> Iterator[Mailbox]:
    box = open_mailbox(home)
    assert box is not None
    yield box
    box.close()


def test_what_is_sent_arrives(box: Mailbox) -> None:
    assert box.drain() == []
    assert [send(box.address, n) for n in (7, 8, 7)] == [Delivery.SENT] * 3
    assert box.drain() == [7, 8, 7]
    assert box.drain() == []


def test_a_full_mailbox_takes_no_more_and_does_not_block(box: Mailbox) -> None:
    deliveries = [send(box.address, n) for n in range(5000)]
    assert deliveries[-1] is Delivery.FULL
    assert OVERFLOW <= deliveries.count(Delivery.SENT) < 5000
    assert box.drain() == list(range(deliveries.count(Delivery.SENT)))


def test_there_is_no_listener_where_there_never_was_one(home: Path) -> None:
    assert send(str(home / "nothing"), 1) is Delivery.MISSING


def test_a_socket_whose_owner_is_gone_refuses(box: Mailbox, home: Path) -> None:
    left = str(home / "left")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as dead:
        dead.bind(left)
    assert send(left, 1) is Delivery.REFUSED


def test_an_address_that_is_too_long_reaches_no_mailbox() -> None:
    assert send("/tmp/" + "x" * 300, 1) is Delivery.MISSING


def test_nonsense_in_the_mail_is_ignored(box: Mailbox) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as stranger:
        for junk in (b"", b"x", b"1 2", b"\xff", b"9" * 200):
            stranger.sendto(junk, box.path)
    send(box.address, 5)
    assert box.drain()[-1:] == [5]


def test_closing_removes_the_socket(home: Path) -> None:
    box = Mailbox(mail_folder(home))
    box.close()
    assert not os.path.exists(box.path)
    assert send(box.address, 1) is Delivery.MISSING


def test_a_process_may_have_many(home: Path) -> None:
    folder = mail_folder(home)
    boxes = [Mailbox(folder) for _ in range(3)]
    assert len({box.address for box in boxes}) == 3
    for box in boxes:
        box.close()


def test_a_forked_child_does_not_take_its_parents_mailbox_away(box: Mailbox) -> None:
    pid = os.fork()
    if pid == 0:
        box.close()
        os._exit(1 if box.ours else 0)
    _, status = os.waitpid(pid, 0)
    assert status == 0
    assert box.ours
    assert send(box.address, 3) is Delivery.SENT
    assert box.drain() == [3]


# -- folders ----------------------------------------------------------------------------------------


def test_the_folder_is_private(home: Path) -> None:
    folder = mail_folder(home)
    assert folder == home / "wake"
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700


def test_a_long_home_has_its_mail_in_the_runtime_folder(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(home))
    long, other = tmp_path / ("x" * 120), tmp_path / ("y" * 120)
    box = open_mailbox(long)
    assert box is not None
    assert Path(box.address).is_relative_to(home)
    assert stat.S_IMODE(Path(box.address).parent.stat().st_mode) == 0o700
    assert folder_for(long) != folder_for(other)
    assert send(box.address, 1) is Delivery.SENT
    box.close()


def test_a_folder_that_others_may_write_to_is_refused(home: Path) -> None:
    (home / "wake").mkdir()
    (home / "wake").chmod(0o777)
    with pytest.raises(PermissionError):
        mail_folder(home)


def test_without_a_folder_there_is_no_mailbox_and_no_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    assert open_mailbox(tmp_path / "file") is None


# -- leftovers --------------------------------------------------------------------------------------


def test_sockets_without_a_listener_are_swept(home: Path) -> None:
    alive = Mailbox(mail_folder(home))
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as dead:
        dead.bind(str(home / "wake" / "dead"))
    (home / "wake" / "file").write_text("not a socket")
    assert abandoned(home / "wake") == [home / "wake" / "dead"]
    assert sweep(home / "wake") == [str(home / "wake" / "dead")]
    assert sorted(path.name for path in (home / "wake").iterdir()) == sorted([Path(alive.path).name, "file"])
    assert alive.drain() == [], "asking who listens names no claim"
    alive.close()


def test_sweeping_what_is_not_there_is_harmless(home: Path) -> None:
    assert sweep(home / "nothing") == []
    discard(str(home / "nothing"))


def test_a_mailbox_whose_file_and_folder_were_removed_is_reachable_again_under_its_address(
    home: Path, box: Mailbox
) -> None:
    shutil.rmtree(folder_for(home))
    assert send(box.address, 7) is Delivery.MISSING
    assert box.mend()
    assert send(box.address, 8) is Delivery.SENT
    assert box.drain() == [8]
    assert not box.mend()


def test_a_mailbox_is_not_put_back_where_another_user_could_listen_in(home: Path, box: Mailbox) -> None:
    shutil.rmtree(folder_for(home))
    folder_for(home).mkdir()
    folder_for(home).chmod(0o777)
    assert not box.mend()
    assert send(box.address, 7) is Delivery.MISSING


def test_a_message_without_the_nonce_of_the_mailbox_is_dropped(home: Path) -> None:
    """The nonce is in no file's name: who lists the folder cannot wake a waiter."""
    box, other = Mailbox(mail_folder(home)), Mailbox(mail_folder(home))
    nonce = box.address.removeprefix(box.path)
    assert nonce not in " ".join(path.name for path in Path(box.path).parent.iterdir())
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as forger:
        for word in ("7", "-1", "0" * 16 + " 7", other.address.removeprefix(other.path)[1:] + " 7"):
            forger.sendto(word.encode(), box.path)
    assert box.drain() == []
    assert send(box.address, 7) is Delivery.SENT
    assert box.drain() == [7]
    assert send(box.path, 7) is Delivery.SENT, "as a flyball without nonces would"
    assert box.drain() == []
    box.close()
    other.close()


def test_a_mailbox_of_a_flyball_without_nonces_is_told_as_before(home: Path) -> None:
    path = str(mail_folder(home) / "older")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as older:
        older.bind(path)
        assert send(path, 7) is Delivery.SENT
        assert older.recv(32) == b"7"
