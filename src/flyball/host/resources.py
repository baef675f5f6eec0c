"""Is a folder on a local disk, and is there room on it?

Locks and shared memory do not work reliably across a network, nor between a virtual machine and its host.

How much memory there is, how much of it could be used without swapping, and how long work waits for a CPU.
"""

from __future__ import annotations

import os
from pathlib import Path

MOUNTS = Path("/proc/self/mountinfo")
NETWORK_TYPES = frozenset(
    [
        "nfs",
        "nfs4",
        "cifs",
        "smb",
        "smb2",
        "smb3",
        "smbfs",
        "afpfs",
        "webdav",
        "9p",
        "afs",
        "ceph",
        "lustre",
        "gpfs",
        "glusterfs",
        "fuse.glusterfs",
        "fuse.sshfs",
        "fuse.s3fs",
        "fuse.rclone",
        "beegfs",
        "ocfs2",
        "gfs2",
        "ncpfs",
        "coda",
        # Folders that a virtual machine shares with its host: two kernels, and locks of neither.
        "virtiofs",
        "grpcfuse",
        "fuse.grpcfuse",
        "vboxsf",
        "prl_fs",
        "vmhgfs",
        "fuse.vmhgfs-fuse",
    ]
)


def network_type(path: str) -> str:
    """The kind of network file system ``path`` is on; empty for a local one or an unknown system."""
    kind = _mount_type(os.path.realpath(path))
    return kind if kind in NETWORK_TYPES else ""


def is_full(path: str) -> bool:
    """Is there no room for us on the disk of ``path``? False where the system does not say."""
    try:
        disk = os.statvfs(path)
    except OSError:
        return False
    # Some keep a rest that only root may use; some, such as /proc, have no size at all.
    room = disk.f_bfree if os.geteuid() == 0 else disk.f_bavail
    return disk.f_blocks > 0 and room == 0


def _mount_type(path: str) -> str:
    try:
        lines = MOUNTS.read_text(errors="replace").splitlines()
    except OSError:
        return ""
    best, kind = "", ""
    for line in lines:
        before, _, after = line.partition(" - ")
        fields, described = before.split(), after.split()
        if len(fields) < 5 or not described:
            continue
        point = fields[4]
        for code, char in (("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")):
            point = point.replace(code, char)
        inside = path == point or path.startswith(point.rstrip("/") + "/")
        # Later mounts cover earlier ones of the same length.
        if inside and len(point) >= len(best):
            best, kind = point, described[0]
    return kind


def free_bytes() -> int | None:
    """Available memory, or None where the system does not say."""
    return _bytes(b"MemAvailable:", "available")


def total_bytes() -> int | None:
    """All memory of the machine, or None where the system does not say."""
    return _bytes(b"MemTotal:", "total")


def _bytes(line_start: bytes, attribute: str) -> int | None:
    try:
        with open("/proc/meminfo", "rb") as file:
            for line in file:
                if line.startswith(line_start):
                    return int(line.split()[1]) * 1024
    except OSError:
        pass
    try:
        import psutil
    except ImportError:
        return None
    return int(getattr(psutil.virtual_memory(), attribute)) if os.name == "posix" else None


def cpu_pressure() -> float | None:
    """The part of the last ten seconds in which some work waited for a CPU, per cent, as Linux counts it;
    None where the system does not say."""
    try:
        with open("/proc/pressure/cpu", "rb") as file:
            some = file.readline().split()
    except OSError:
        return None
    return next((float(field[6:]) for field in some if field.startswith(b"avg10=")), None)
