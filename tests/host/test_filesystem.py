"""Local or network, told from the table of mounts."""

from __future__ import annotations

from pathlib import Path

import pytest

from flyball.errors import StoreError
from flyball.host import resources
from flyball.host.resources import network_type
from flyball.testing import FakeWorld, make_sqlite

_TABLE = r"""
22 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw
30 22 0:40 / /home rw - nfs4 server:/home rw
31 30 8:2 / /home/local rw - xfs /dev/sdb1 rw
32 22 0:41 / /mnt/two\040words rw - cifs //server/share rw
33 22 0:42 / /mnt/covered rw - nfs server:/old rw
34 22 8:3 / /mnt/covered rw - ext4 /dev/sdc1 rw
35 22 0:43 / /work rw shared:9 master:1 - fuse.sshfs me@box:/work rw
36 22 0:44 / /odd\134path rw - 9p share rw
37 22 0:45 / /Users rw - virtiofs mount0 rw
38 22 0:46 / /host_mnt rw - fuse.grpcfuse grpcfuse rw
a broken line
"""


@pytest.fixture
def mounts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    table = tmp_path / "mountinfo"
    table.write_text(_TABLE)
    monkeypatch.setattr(resources, "MOUNTS", table)
    return table


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("/var/lib", ""),
        ("/home", "nfs4"),
        ("/home/me/.flyball", "nfs4"),
        ("/homework", ""),
        ("/home/local/me", ""),
        ("/mnt/two words/x", "cifs"),
        ("/mnt/covered/x", ""),
        ("/work/deep/down", "fuse.sshfs"),
        ("/odd\\path/x", "9p"),
        ("/Users/me/.flyball", "virtiofs"),
        ("/host_mnt/me", "fuse.grpcfuse"),
    ],
)
def test_the_longest_and_latest_mount_decides(mounts: Path, path: str, kind: str) -> None:
    assert network_type(path) == kind


def test_where_there_is_no_table_nothing_is_refused(mounts: Path) -> None:
    mounts.unlink()
    assert network_type("/home") == ""


def test_a_link_is_followed(mounts: Path, tmp_path: Path) -> None:
    link = tmp_path / "link"
    link.symlink_to("/home/me")
    assert network_type(str(link)) == "nfs4"


def test_state_on_a_network_is_refused_with_the_way_out(mounts: Path, tmp_path: Path) -> None:
    home = tmp_path / "home"
    mounts.write_text(f"40 1 0:50 / {tmp_path.resolve()} rw - nfs4 server:/x rw\n")
    with pytest.raises(StoreError, match=r"network file system \(nfs4\).*FLYBALL_HOME"):
        make_sqlite(FakeWorld(), home / "governor.db")
    assert not (home / "governor.db").exists()


def test_this_test_runs_on_a_local_disk(tmp_path: Path) -> None:
    assert network_type(str(tmp_path)) == ""
