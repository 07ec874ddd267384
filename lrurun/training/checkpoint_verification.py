"""Verification of a checkpoint: the digest of its files, and whether they hold the bytes that were saved. Imports no
jax."""

from __future__ import annotations

import hashlib
from pathlib import Path

from lrurun.errors import LrurunError


def verify(folder: Path, sha256: str | None) -> None:
    """Checks that the checkpoint in `folder` holds the bytes that were saved.

    Raises:
        LrurunError: it is missing, contains a link, or has another digest than `sha256`.
        OSError: it cannot be read.
    """
    if not folder.is_dir():
        raise LrurunError(f"{folder} is missing")
    if digest(folder)[1] != sha256:
        raise LrurunError(f"{folder} does not hold the bytes that were saved")


def digest(folder: Path) -> tuple[int, str]:
    """The size in bytes of all files below `folder`, and a digest of their names and bytes.

    Raises:
        LrurunError: there is a link, which could lead anywhere.
        OSError: a file cannot be read.
    """
    total = 0
    combined = hashlib.sha256()
    everything = sorted(folder.rglob("*"))
    for path in everything:
        if path.is_symlink():
            raise LrurunError(f"{path}: a link in a checkpoint", "checkpoints are saved without links; it is not read")
    for path in (p for p in everything if p.is_file()):
        with path.open("rb") as file:
            inner = hashlib.file_digest(file, "sha256").hexdigest()
        total += path.stat().st_size
        combined.update(f"{path.relative_to(folder)}={inner}\n".encode())
    return total, "sha256:" + combined.hexdigest()
