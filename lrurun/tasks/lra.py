"""Where things lie in the release of Long Range Arena."""

from __future__ import annotations

import tarfile
from pathlib import Path, PurePath

ARCHIVES = ("lra_release.gz", "lra_release.tar.gz")
"""Published as `.gz`; it is a compressed tar all the same."""


def folders(path: Path, name: str) -> list[Path]:
    """Where the folder `name` may be below `path`, or `path` itself; the best place first.

    The archive holds `lra_release/<name>` and `lra_release/lra_release/<name>`: published work reads the inner one.
    """
    return [path / "lra_release" / "lra_release" / name, path / "lra_release" / name, path / name, path]


def inner(folder: PurePath) -> int:
    """How far inside the release a folder of the archive lies, 2 at most; the innermost copy is the best."""
    return folder.parts.count("lra_release")


def is_archive(path: Path) -> bool:
    """Whether a tar begins at `path`, compressed or not."""
    try:
        with tarfile.open(path, "r|*"):
            return True
    except (tarfile.TarError, EOFError):
        return False
