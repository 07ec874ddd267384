"""Snapshots of the files of users' programs, made when runs are queued: a program may be edited while it trains.

A snapshot is a folder in the runs folder: the files that the recipe lists, and links to everything else that is beside
them in the folder of the recipe.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path, PurePosixPath

from lrurun import files
from lrurun.config.programs import SNAPSHOTS, digest_of
from lrurun.errors import LrurunError
from lrurun.runner.storage import storage_for


class ProgramSnapshot:
    """A snapshot of the files of a program: one version of them."""

    def __init__(self, runs: Path, folder: Path, digests: Mapping[str, str]) -> None:
        """
        Args:
            runs: folder of logs and checkpoints.
            folder: the folder of the recipe.
            digests: path of each file from there -> its digest. Files outside of the folder are not copied.
        """
        self.runs, self.folder = runs, folder
        self.digests = {name: digest for name, digest in digests.items() if _is_inside(name)}
        version = [os.path.realpath(folder), sorted(self.digests.items())]
        key = hashlib.sha256(json.dumps(version).encode()).hexdigest()[:16]
        self.path = runs / SNAPSHOTS / key

    def __bool__(self) -> bool:
        return bool(self.digests)

    def has(self, name: str) -> bool:
        """Whether a file is in the snapshot, as it was."""
        return self.digests[name] == digest_at(self.path / name)

    def keep(self, *others: Path) -> None:
        """Makes the snapshot, or what is missing or damaged of it.

        Each file is from the folder of the recipe, or from one of the folders `others`.

        Each file and each link appears at once, so that several processes may do so, and be killed.

        Raises:
            LrurunError: a file is nowhere as it was when its digest was taken; nothing can be written.
        """
        if not self:
            return
        storage = storage_for(self.runs)
        try:
            for name, digest in self.digests.items():
                target = self.path / name
                target.parent.mkdir(parents=True, exist_ok=True)
                storage.fetch(target)
                if digest_at(target) == digest:
                    continue
                if not any(_copied(source / name, target, digest) for source in (self.folder, *others)):
                    raise self._lost(name, digest)
                storage.put(target)
            for link, original in self._links():
                with contextlib.suppress(FileExistsError):
                    link.symlink_to(original)
        except OSError as error:
            raise LrurunError(
                f"{self.path}: the files of the program cannot be copied: {error.strerror or error}",
                "free some space, or choose another --runs-dir",
            ) from None

    def _links(self) -> Iterator[tuple[Path, str]]:
        """Each link that is missing beside the copied files, and the path to which it leads from there, so that both
        folders may be moved together."""
        here, there = os.path.realpath(self.path), os.path.realpath(self.folder)
        for at in {str(parent) for name in self.digests for parent in PurePosixPath(name).parents}:
            with contextlib.suppress(FileNotFoundError, NotADirectoryError):  # the folder was moved since
                for entry in os.listdir(self.folder / at):
                    link = self.path / at / entry
                    if not (os.path.lexists(link) or _is_own(self.folder / at / entry, self.runs)):
                        yield link, os.path.relpath(os.path.join(there, at, entry), os.path.join(here, at))

    def _lost(self, name: str, digest: str) -> LrurunError:
        altered = f", and {self.path / name} was altered" if (self.path / name).exists() else ""
        return changed(self.folder / name, digest, altered)


def changed(path: Path, digest: str, more: str = "") -> LrurunError:
    """The error about a file of a program that is not as it was. `more` ends its first line."""
    now = digest_at(path)
    if now is None:
        return LrurunError(f"{path}: cannot be read, or is gone{more}", "restore the file of the program")
    return LrurunError(
        f"{path}: has changed since this run was queued: {digest[:19]} then, {now[:19]} now{more}",
        "restore the file; or repeat the ladder command, which queues runs of the new one",
    )


def digest_at(path: Path) -> str | None:
    """The digest of a file; None if it cannot be read."""
    try:
        return digest_of(path)
    except OSError:
        return None


def _is_inside(name: str) -> bool:
    path = PurePosixPath(name)
    return not path.is_absolute() and ".." not in path.parts


def _is_own(path: Path, runs: Path) -> bool:
    """Whether nothing needs this beside a snapshot.

    It is a compiled module, which belongs to the originals, the runs folder, which has the snapshot, or a file that
    SQLite keeps beside the ledger for a while.
    """
    number = files.identity(runs)
    is_runs = number is not None and files.identity(path) == number
    return is_runs or path.name == "__pycache__" or path.name.endswith(("-wal", "-shm", "-journal"))


def _copied(source: Path, target: Path, digest: str) -> bool:
    """Copies a file with its permissions, if it has this digest; whether it does."""
    if digest_at(source) != digest:
        return False
    with contextlib.suppress(_Changed), files.atomic(target) as partial:
        shutil.copyfile(source, partial)
        shutil.copymode(source, partial)
        if digest_of(partial) != digest:
            raise _Changed
        return True
    return False


class _Changed(Exception):
    """A file changed while it was copied."""


def has_all(snapshot: Path, digests: Mapping[str, str]) -> bool:
    """Whether a folder is a snapshot of files with these digests. Files outside of the folder of a recipe have no
    copy."""
    inside = {name: digest for name, digest in digests.items() if _is_inside(name)}
    return bool(inside) and all(digest_at(snapshot / name) == digest for name, digest in inside.items())
