"""Which file system a path is on: SQLite's locks and shared memory do not work over a network."""

import os

from refold.errors import Unusable

NETWORKED = frozenset(
    {
        "9p",
        "acfs",
        "afs",
        "beegfs",
        "ceph",
        "cifs",
        "coda",
        "davfs",
        "gfs2",
        "glusterfs",
        "gpfs",
        "lustre",
        "ncpfs",
        "nfs",
        "nfs4",
        "ocfs2",
        "orangefs",
        "pvfs2",
        "smb",
        "smb3",
        "smbfs",
        "vboxsf",
    }
)
NETWORKED_FUSE = frozenset({"ceph", "cephfs", "davfs", "glusterfs", "rclone", "s3fs", "smbnetfs", "sshfs"})

MOUNTS = "/proc/mounts"


def mount_table() -> str:
    """The table of this machine; empty where there is none to read."""
    try:
        with open(MOUNTS, encoding="utf-8", errors="surrogateescape") as table:
            return table.read()
    except OSError:
        return ""


def file_system_of(path: str, mounts: str) -> str:
    """The type of the mount that holds an absolute path, by a table like /proc/mounts; empty if none does."""
    best, kind = "", ""
    for line in mounts.splitlines():
        fields = line.split()
        if len(fields) < 3:
            continue
        point = _unescaped(fields[1])
        if len(point) >= len(best) and _holds(point, path):  # of two mounts on one point the later covers the earlier
            best, kind = point, fields[2]
    return kind


def refuse_network(path: str, mounts: str) -> None:
    kind = file_system_of(path, mounts)
    if kind in NETWORKED or kind.removeprefix("fuse.") in NETWORKED_FUSE:
        raise Unusable(
            f"{path} is on a network file system ({kind}), where SQLite can lose data: put it on a local disk, "
            "or use Postgres as the store that machines share"
        )


def _holds(point: str, path: str) -> bool:
    return os.path.commonpath([point, path]) == point if point.startswith("/") else False


def _unescaped(point: str) -> str:
    for code, character in (("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")):
        point = point.replace(code, character)
    return point
