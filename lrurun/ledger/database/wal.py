"""The write-ahead log of an SQLite file: where it may be used, and whether it is still the one that was opened."""

from __future__ import annotations

import os
import random
import sqlite3
import time
from collections.abc import MutableMapping, Sequence
from pathlib import Path
from typing import Any

from lrurun.errors import LedgerError
from lrurun.files import identity
from lrurun.ledger.database.files import busy

NETWORK = frozenset(
    "9p afpfs afs beegfs ceph cifs davfs fhgfs glusterfs gpfs lustre ncpfs nfs nfs4 orangefs panfs pvfs2 smb3 smbfs "
    "wekafs fuse.afp fuse.beegfs fuse.ceph fuse.cephfs fuse.davfs fuse.gcsfuse fuse.glusterfs fuse.juicefs fuse.rclone "
    "fuse.s3fs fuse.sshfs fuse.smbnetfs webdav".split()
)
"""File systems on which the shared memory of SQLite's write-ahead log is not shared."""


def log_of(path: Path) -> Path:
    """The write-ahead log of a file."""
    return path.with_name(f"{path.name}-wal")


def filesystem(path: Path) -> str:
    """The type of the file system that holds `path`, "" if it is unknown."""
    import psutil

    real = os.path.realpath(path)
    best, filesystem_type = "", ""
    for partition in psutil.disk_partitions(all=True):
        mount = partition.mountpoint
        inside = real == mount or real.startswith(mount.rstrip("/") + "/")
        # Of two mounts on one point, the later one hides the earlier one.
        if inside and len(mount) >= len(best):
            best, filesystem_type = mount, partition.fstype
    return filesystem_type.lower()


def set_journal(connection: sqlite3.Connection, target: str, timeout: float) -> str:
    """Set the file's journal mode to `target` ("wal" or "delete") and return the mode that is read back."""
    deadline = time.monotonic() + timeout
    while True:
        mode = str(connection.execute("PRAGMA journal_mode").fetchone()[0])
        if mode == target:
            return mode
        try:
            return str(connection.execute(f"PRAGMA journal_mode={target}").fetchone()[0])
        except sqlite3.OperationalError as error:
            # The switch needs exclusive access, and SQLite does not always wait for it.
            if not busy(error) or time.monotonic() > deadline:
                raise
        time.sleep(random.uniform(0.005, 0.05))


def check_files(known: MutableMapping[Any, Any], files: Sequence[Path]) -> None:
    """Checks that the file and its write-ahead log are those that a connection has opened.

    Removed files still accept what is written to them, and nobody would see it. SQLite itself removes neither while
    a connection is open.

    Args:
        known: what is known of the connection; the first call keeps the identities of the files there.
        files: the file, and its log if it has one.

    Raises:
        LedgerError: one was removed or replaced.
    """
    identities = {path: identity(path) for path in files}
    expected = known.get("lrurun_files")
    if expected is None and None not in identities.values():  # the first statement of a connection makes the log
        expected = known["lrurun_files"] = identities
    if expected and (lost := next((path for path in identities if identities[path] != expected[path]), None)):
        name = "the ledger" if lost == files[0] else "the write-ahead log of the ledger"
        raise LedgerError(
            f"{name}, {lost}, was removed or replaced while this command was writing to it",
            "restore it if you can; the same command continues with what is there",
        )
