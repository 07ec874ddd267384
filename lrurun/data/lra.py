"""The layout of Long Range Arena's release."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from pathlib import Path, PurePath, PurePosixPath
from typing import IO

from lrurun.data import archives
from lrurun.data.task import Progress
from lrurun.errors import LrurunError

ARCHIVES = ("lra_release.gz", "lra_release.tar.gz")
"""The published name ends in `.gz`; it is a compressed tar archive."""


def folders(path: Path, name: str) -> list[Path]:
    """Possible places of the folder `name` at `path` and below, the best first.

    The archive has `lra_release/<name>` and `lra_release/lra_release/<name>`; published work reads the inner one.
    """
    return [path / "lra_release" / "lra_release" / name, path / "lra_release" / name, path / name, path]


def tables(path: Path, places: Iterable[Path], files: Collection[str], hint: str) -> Path | None:
    """The first of the folders `places` that holds all `files`, or the release's archive at `path` or in it.

    Raises:
        LrurunError: only some of the files were found, and no archive.
    """
    if path.is_file():
        return path if archives.is_archive(path) else None
    partial = None
    for folder in places:
        missing = [name for name in files if not (folder / name).is_file()]
        if not missing:
            return folder
        if len(missing) < len(files):
            partial = partial or f"{folder}: {' and '.join(missing)} missing"
    for name in ARCHIVES:
        if (path / name).is_file():
            return path / name
    if partial:
        raise LrurunError(partial, hint)
    return None


def innermost(
    path: Path, files: Collection[str], hint: str, progress: Progress
) -> Iterator[tuple[PurePosixPath, IO[bytes]]]:
    """The members of an archive with these names: path and content. Of several copies, the innermost comes last.

    Raises:
        LrurunError: at the end, if one is missing in the innermost copy.
    """
    chosen, done = PurePosixPath(), set[str]()
    for member, file in archives.members(path, progress):
        place = PurePosixPath(member)
        if place.name not in files:
            continue
        if done and place.parent != chosen:
            if inner(place.parent) <= inner(chosen):
                continue
            done.clear()  # an outer copy came first
        chosen = place.parent
        yield place, file
        done.add(place.name)
        if len(done) == len(files) and inner(chosen) == 2:
            break  # what follows are gigabytes of other tasks
    if missing := [name for name in files if name not in done]:
        raise LrurunError(f"{path}: {' and '.join(str(chosen / name) for name in missing)} missing", hint)


def inner(folder: PurePath) -> int:
    """The depth of a folder inside the release, 2 at most; the innermost copy is the best."""
    return folder.parts.count("lra_release")
